"""The commands that read and carry the log, as a shell sees them, on every store."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dagster_bus import Bus, Message
from tests.support.command import COMMAND, call
from tests.support.project import write_topics


@pytest.fixture
def folder(tmp_path: Path, store_url: str) -> Path:
    write_topics(tmp_path, **{"sqlite:///bus.db": store_url})
    return tmp_path


def open_bus(folder: Path) -> Bus:
    return Bus.open(folder / "topics.yaml")


def publish(folder: Path, *messages: Message, topic: str = "orders.created") -> None:
    with open_bus(folder) as bus:
        bus.publish_many(topic, messages)


def lines(folder: Path, *words: str) -> list[Any]:
    said = call(folder, *words)
    assert said.returncode == 0, said.stderr
    return [json.loads(line) for line in said.stdout.splitlines()]


def test_a_repeated_event_is_dropped_and_told_by_exit_code_5(folder: Path) -> None:
    words = ("publish", "orders.created", '{"n": 1}', "--idempotency-key", "once", "--json")
    first, again = call(folder, *words), call(folder, *words)
    assert (first.returncode, again.returncode) == (0, 5)
    assert json.loads(again.stdout) == {**json.loads(first.stdout), "duplicate": True}
    assert len(lines(folder, "tail", "--json")) == 1


def test_a_file_of_lines_is_published_with_keys_from_its_fields(folder: Path) -> None:
    (folder / "orders.ndjson").write_text("".join(f'{{"n": {n}}}\n' for n in range(2_500)))
    said = call(
        folder, "publish", "orders.created", "--file", "orders.ndjson", "--key-field", "n", "-q",
        "--priority", "high", "--ttl", "60",
    )  # fmt: skip
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "2,500 events published\n")
    events = lines(folder, "tail", "orders.*", "--json")
    assert {event["key"] for event in events} == {str(n) for n in range(2_500)}
    assert {(event["priority"], event["ttl_s"]) for event in events} == {("high", 60)}


def test_what_a_strict_topic_refuses_in_a_stream_is_told_with_its_line(folder: Path) -> None:
    text = '{"n": 1}\n{"n": 2}\n\n{"n": "three"}\n{"n": 4}\n'
    said = subprocess.run(
        [str(COMMAND), "publish", "strict", "-q"],
        cwd=folder, input=text, text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert said.returncode == 4
    assert said.stderr.startswith("dagster-bus: line 4: the payload does not fit strict: n: ")
    assert "(2 events before it published; go on from there)" in said.stderr
    assert [event["payload"]["n"] for event in lines(folder, "tail", "strict", "--json")] == [1, 2]


def test_tail_shows_events_by_time_and_filters_them(folder: Path) -> None:
    publish(
        folder,
        Message({"n": 1}, key="a", attributes={"channel": "web", "tier": 1}),
        Message({"n": 2}, key="b", attributes={"channel": "phone"}),
        Message({"n": 3}, key="a"),
    )
    publish(folder, Message("later"), topic="stock")

    def found(*words: str) -> list[Any]:
        return [event["payload"] for event in lines(folder, "tail", "--json", *words)]

    assert sorted(found("orders.*"), key=str) == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert found()[-1] == "later"
    assert found("--key", "b") == [{"n": 2}]
    assert found("--where", "channel=web", "--where", "tier=1") == [{"n": 1}]
    assert found("--where", "tier=true") == []
    assert sorted(found("--has", "channel"), key=str) == [{"n": 1}, {"n": 2}]
    assert len(found("-n", "2")) == 2
    assert found("--from", "latest") == []
    assert found("stock", "--from", "1") == ["later"]
    assert found("--from", "2099-01-01T00:00:00Z") == []
    assert len(found("--from", "2026-01-01")) == 4
    shown = call(folder, "tail", "orders.created", "--key", "b").stdout
    assert 'b  {"channel":"phone"}  {"n":2}' in shown


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["tail", "nothing.*"], "dagster-bus: topic 'nothing.*' is not declared"),
        (["tail", "A.*"], "dagster-bus: 'A.*' is not a topic pattern"),
        (["tail", "--from", "soon"], "Usage: dagster-bus tail"),
        (["tail", "--from", "0"], "dagster-bus: 0 is not an offset; they begin with 1"),
        (["tail", "--where", "x"], "Usage: dagster-bus tail"),
        (["export", "-o", "topics.yaml"], "dagster-bus: topics.yaml exists already"),
        (["export", "-o", "no/such/folder"], "dagster-bus: cannot write no/such/folder: No such"),
        (["import", "missing"], "dagster-bus: cannot read missing: No such file"),
        (["topics", "nothing"], "dagster-bus: topic 'nothing' is not declared"),
    ],
)
def test_bad_arguments_are_told_in_one_message(
    folder: Path, words: list[str], complaint: str
) -> None:
    publish(folder, Message({"n": 1}))
    said = call(folder, *words)
    assert said.returncode == 4
    assert said.stderr.startswith(complaint), said.stderr
    assert "Traceback" not in said.stderr


def test_tail_follows_what_others_publish_until_it_is_stopped(folder: Path) -> None:
    publish(folder, Message({"n": 1}))
    process = subprocess.Popen(
        [str(COMMAND), "tail", "orders.*", "--follow", "--from", "earliest", "--json"],
        cwd=folder, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["payload"] == {"n": 1}
    for n in (2, 3):
        publish(folder, Message({"n": n}))
        assert json.loads(process.stdout.readline())["payload"] == {"n": n}
    process.send_signal(signal.SIGINT)
    assert process.stdout.read() == ""
    assert process.wait(30) == 0
    process.stdout.close()


def test_tail_ends_quietly_when_nobody_reads_on(folder: Path) -> None:
    publish(folder, *(Message("x" * 1_000) for _ in range(2_000)), topic="stock")
    said = subprocess.run(
        f"'{COMMAND}' tail stock | head -n 1", shell=True, cwd=folder, text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    assert len(said.stdout.splitlines()) == 1
    assert said.stderr == ""


def test_publishing_goes_on_when_nobody_reads_of_it(folder: Path) -> None:
    (folder / "many.ndjson").write_text("1\n" * 30_000)
    said = subprocess.run(
        f"'{COMMAND}' publish stock --file many.ndjson | head -n 1", shell=True, cwd=folder,
        text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert said.stderr == "30,000 events published\n"


def test_topics_in_memory_are_left_to_their_program(folder: Path, store_url: str) -> None:
    replaced = {"sqlite:///bus.db": store_url, "stock: {}": "stock: {durable: false}"}
    write_topics(folder, **replaced)
    publish(folder, Message({"n": 1}))
    assert len(lines(folder, "tail", "--json")) == 1
    assert len(exported(folder)) == 1
    for words in (["publish", "stock", "1"], ["tail", "stock"], ["export", "stock", "-o", "x"]):
        said = call(folder, *words)
        assert (said.returncode, "durable: false" in said.stderr) == (4, True)
    assert not (folder / "x").exists()


def test_the_first_of_several_mistakes_is_told_and_what_stands_before_it_is_in(
    folder: Path,
) -> None:
    good = '{"topic": "strict", "payload": {"n": 1}'
    (folder / "in.ndjson").write_text(
        f'{good}}}\n{good}, "priority": "urgent"}}\n{good}}}\n{good}, "payload_sha256": "0"}}\n'
    )
    said = call(folder, "import", "in.ndjson")
    assert said.returncode == 4
    assert said.stderr.startswith("dagster-bus: line 2: priority is one of")
    assert "(1 event imported; mend it and go on with --skip 1)" in said.stderr


def test_topics_show_what_each_holds(folder: Path) -> None:
    publish(folder, *(Message({"n": n}) for n in range(5)))
    (orders, stock, strict) = json.loads(call(folder, "topics", "--json").stdout)
    assert (orders["topic"], orders["published"], orders["trimmed"]) == ("orders.created", 5, 0)
    assert [part["partition"] for part in orders["offsets"]] == [0, 1]
    assert sum(part["end"] - part["first"] for part in orders["offsets"]) == 5
    assert (stock["published"], stock["last_ts"], stock["schema_version"]) == (0, None, None)
    assert (strict["schema_version"], strict["strict"]) == (1, True)
    table = call(folder, "topics", "orders.*").stdout
    assert "orders.created" in table
    assert "stock" not in table
    assert max(map(len, table.splitlines())) <= 80


def test_prune_applies_what_topics_declare(folder: Path, store_url: str) -> None:
    write_topics(
        folder,
        **{
            "sqlite:///bus.db": store_url,
            "stock: {}": "stock: {retention: {size: 100B}}",
            "    partitions: 2\n": "    partitions: 2\n    retention: {size: 1B}\n",
        },
    )
    publish(folder, *(Message("x" * 20) for _ in range(10)), topic="stock")
    publish(folder, *(Message({"n": n}) for n in range(6)))
    orders, stock, _ = json.loads(call(folder, "prune", "--json").stdout)
    assert (stock["trimmed"], stock["held"]) == (6, 0)
    assert (orders["trimmed"], orders["held"], orders["by"]) == (0, 6, ["order-table"])
    assert "order-table" in call(folder, "prune", "orders.*").stdout
    said = call(folder, "tail", "stock", "--from", "2")
    assert said.returncode == 4
    assert said.stderr.startswith("dagster-bus: stock/0 begins with offset 7: 2 was deleted by")


def exported(folder: Path) -> list[Any]:
    return lines(folder, "export")


def test_what_is_exported_is_imported_without_loss(folder: Path, tmp_path: Path) -> None:
    publish(
        folder,
        Message(
            {"n": 1, "é": [None, 1e300, 12345678901234567890123, "😀\n"]},
            key="k", source="shop", attributes={"scope": "eu", "tier": 1, "x": True, "y": 1.0},
            priority="low", idempotency_key="once", ttl_s=7, schema_version=1,
        ),
        Message(None, key="k"),
        topic="stock",
    )  # fmt: skip
    publish(folder, *(Message({"n": n}, attributes={"scope": 5}) for n in range(49)))
    said = call(folder, "export", "-o", "events.ndjson")
    assert (said.returncode, said.stderr) == (0, "51 events exported\n")
    first = json.loads((folder / "events.ndjson").read_text().splitlines()[0])
    assert {"event_id", "ts", "topic", "payload"} <= first.keys()
    other = tmp_path / "other"
    write_topics(other)
    said = call(other, "import", str(folder / "events.ndjson"))
    assert (said.returncode, said.stderr) == (0, "51 events imported\n")
    assert exported(other) == exported(folder)
    with open_bus(other) as there, open_bus(folder) as here:
        texts = [(e.payload_json, e.attributes_json) for e in there.tail()]
        assert texts == [(e.payload_json, e.attributes_json) for e in here.tail()]


def test_lines_of_other_programs_are_imported(folder: Path) -> None:
    (folder / "in.ndjson").write_text(
        '{"event_id": "e1", "ts": "2026-01-31T08:00:00Z", "topic": "stock", "scope": "eu",'
        ' "actor": "me", "payload": 1, "ttl_s": null, "idempotency_key": "a"}\n'
        '{"topic": "stock", "payload": 2, "idempotency_key": "a", "ts": 1769846400001}\n'
        '{"topic": "orders.created", "payload": {"n": 3}}\n'
    )
    said = call(folder, "import", "in.ndjson")
    assert said.stderr == "3 events imported, 1 duplicate among them dropped\n"
    (one,) = lines(folder, "tail", "stock", "--json")
    assert (one["event_id"], one["ts"], one["scope"], one["actor"]) == (
        "e1", 1769846400000, "eu", "me",
    )  # fmt: skip
    said = call(folder, "import", "in.ndjson", "--topic", "orders.created", "--skip", "2")
    assert said.returncode == 0
    assert len(lines(folder, "tail", "orders.created", "--json")) == 2


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "line 3: not JSON: Expecting property name"),
        ("[]", "line 3: a line is a JSON object with at least `topic` and `payload`"),
        ('{"topic": "stock"}', "line 3: the field 'payload' is missing"),
        ('{"payload": 1}', "line 3: the field 'topic' is missing"),
        ('{"topic": "stock", "payload": 1, "colour": 2}', "line 3: unknown field 'colour' (known:"),
        ('{"topic": "stock", "payload": 1, "ts": "noon"}', "line 3: the field 'ts' is millisec"),
        ('{"topic": "stock", "payload": 1, "key": 5}', "line 3: key is text, not int (5)"),
        ('{"topic": "nowhere", "payload": 1}', "line 3: topic 'nowhere' is not declared"),
        ('{"topic": "strict", "payload": {"n": "x"}}', "line 3: the payload does not fit strict"),
        ('{"topic": "stock", "payload": 1, "attributes": 1}', "line 3: the field 'attributes' is"),
    ],
)
def test_a_wrong_line_stops_an_import_which_says_how_to_go_on(
    folder: Path, line: str, complaint: str
) -> None:
    good = '{"topic": "stock", "payload": %d}\n'
    (folder / "in.ndjson").write_text(good % 1 + good % 2 + line + "\n" + good % 4)
    said = call(folder, "import", "in.ndjson")
    assert said.returncode == 4
    assert said.stderr.startswith(f"dagster-bus: {complaint}"), said.stderr
    assert "(2 events imported; mend it and go on with --skip 2)" in said.stderr
    (folder / "in.ndjson").write_text(good % 1 + good % 2 + good % 3 + good % 4)
    assert call(folder, "import", "in.ndjson", "--skip", "2").returncode == 0
    events = lines(folder, "tail", "stock", "--json")
    assert [event["payload"] for event in events] == [1, 2, 3, 4]


def test_a_bus_opened_by_its_stores_address_obeys_the_declared_rules(
    folder: Path, store_url: str
) -> None:
    from dagster_bus.errors import SchemaMismatch

    publish(folder, Message({"n": 1}))
    with Bus.open(store_url) as bus:
        assert {topic.name for topic in bus.topics} == {"orders.created", "stock", "strict"}
        with pytest.raises(SchemaMismatch):
            bus.publish("strict", {"n": "x"})
        assert bus.publish("strict", {"n": 1}).offset == 1


def test_long_work_shows_its_progress_on_a_screen(folder: Path) -> None:
    """A screen is a pseudo terminal; the bar is drawn on standard error."""
    (folder / "orders.ndjson").write_text("".join(f'{{"n": {n}}}\n' for n in range(3_000)))
    script = f"'{COMMAND}' publish orders.created -q --file orders.ndjson"
    code = (
        "import pty, sys, os\n"
        f"sys.exit(os.waitstatus_to_exitcode(pty.spawn(['sh', '-c', {script!r}])))"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert said.returncode == 0
    assert "orders.ndjson" in said.stdout
    assert "3,000 events published" in said.stdout


def test_topics_and_groups_have_names_in_dagster_that_are_told_without_the_store(
    tmp_path: Path,
) -> None:
    folder = write_topics(tmp_path).parent
    told = json.loads(call(folder, "topics", "--dagster", "--json").stdout)
    assert told[0] == {
        "kind": "topic",
        "name": "orders.created",
        "asset": "orders/created",
        "dead_letters": None,
        "job": None,
        "sensor": None,
    }
    assert told[-1] == {
        "kind": "group",
        "name": "order-table",
        "asset": "order_table",
        "dead_letters": "order_table/dead_letters",
        "job": "order_table_job",
        "sensor": "order_table_sensor",
    }
    assert "order_table_sensor" in call(folder, "topics", "--dagster", "orders.*").stdout
    assert "order_table" not in call(folder, "topics", "--dagster", "stock").stdout
    wrong = call(folder, "topics", "--dagster", "nothing")
    assert "topic 'nothing' is not declared" in wrong.stderr
    assert not (folder / "bus.db").exists()

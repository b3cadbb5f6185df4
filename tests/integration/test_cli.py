"""The command line, as a shell sees it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dagster_bus import Bus
from tests.support.command import COMMAND, call
from tests.support.project import write_topics

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_topics(tmp_path)
    return tmp_path


def payloads(folder: Path, topic: str = "orders.created") -> list[Any]:
    if not (folder / "bus.db").exists():
        return []
    with Bus.open(folder / "topics.yaml") as bus:
        return [event.payload for event in bus.tail(topic)]


def bury(folder: Path) -> None:
    """Let every event that there is fail until it is dead."""
    with Bus.open(folder / "topics.yaml") as bus:
        group = bus.group("order-table")
        while reserved := group.reserve():
            held = group.lease(reserved[0].id, reservation=reserved[0].reservation, worker="run")
            due_ms = group.fail(held, ValueError("bad [bold]")).due_ms
            group = bus.group("order-table")
            group._clock = lambda due_ms=due_ms: due_ms + 1  # type: ignore[misc]


def test_validate_says_that_all_is_fine(folder: Path) -> None:
    said = call(folder, "validate")
    assert (said.returncode, said.stdout) == (
        0,
        "topics.yaml is fine: 3 topics, 1 group "
        "(pipelines are looked at when Dagster loads them)\n",
    )


def test_validate_lists_mistakes_and_exits_with_4(folder: Path) -> None:
    write_topics(folder, partitions="partition", quick="quik")
    said = call(folder, "validate")
    assert said.returncode == 4
    assert said.stderr.splitlines() == [
        "topics.yaml:12:5: topics.orders.created: unknown key 'partition' "
        "(did you mean 'partitions'?)"
    ]


def test_publish_takes_one_payload(folder: Path) -> None:
    said = call(
        folder, "publish", "orders.created", '{"n": 1}', "--key", "k", "-a", "channel=web",
        "-a", "tier=1", "--source", "shell", "--json",
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    at = json.loads(said.stdout)
    with Bus.open(folder / "topics.yaml") as bus:
        (event,) = bus.read("orders.created", at["partition"])
    assert (event.id, event.key, event.source, event.payload) == (at["id"], "k", "shell", {"n": 1})
    assert event.attributes == {"channel": "web", "tier": 1}


def test_publish_takes_a_stream_of_lines(folder: Path) -> None:
    said = call(folder, "publish", "orders.created", stdin='{"n": 1}\n\n{"n": 2}\n')
    assert said.returncode == 0
    assert len(said.stdout.splitlines()) == 2
    assert said.stderr == "2 events published\n"
    assert sorted(payloads(folder), key=str) == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize(
    ("words", "stdin", "complaint"),
    [
        (
            ["publish", "nowhere", "1"],
            "",
            "dagster-bus: topic 'nowhere' is not declared (declared:",
        ),
        (["publish", "orders.created", "{"], "", "dagster-bus: PAYLOAD: not JSON: Expect"),
        (["publish", "orders.created"], "NaN\n1\n", "dagster-bus: line 1: not JSON: NaN is n"),
        (["publish", "system.metrics", "1"], "", "dagster-bus: 'system.metrics' is reserved"),
        (["publish", "No Topic", "1"], "", "dagster-bus: 'No Topic' is not a topic name"),
        (["publish", "orders.created", '{"n": 1}', "--ttl", "-5"], "", "dagster-bus: ttl_s is a"),
        (["publish", "orders.created", '{"n": 1}', "--file", "x"], "", "Usage: dagster-bus publi"),
        (["publish", "orders.created", "--file", "x"], "", "dagster-bus: cannot read x: No such"),
        (["publish", "orders.created", "--key-field", "id"], '{"n": 1}', "dagster-bus: line 1: no"),
        (["publish", "strict", '{"m": 1}'], "", "dagster-bus: the payload does not fit strict: "),
        (["publish", "strict"], '{"n": "x"}\n', "dagster-bus: line 1: the payload does not fit s"),
        (
            ["publish", "orders.created", "9" * 5_000],
            "",
            "dagster-bus: PAYLOAD: not JSON: Exceed",
        ),
        (
            ["publish", "orders.created", "[" * 9_999],
            "",
            "dagster-bus: PAYLOAD: not JSON: maximu",
        ),
        (["publish", "orders.created", "1", "-a", "x"], "", "Usage: dagster-bus publish"),
        (["frobnicate"], "", "Usage: dagster-bus"),
        (["-f", "missing.yaml", "groups"], "", "dagster-bus: cannot read missing.yaml: No such fi"),
    ],
)
def test_bad_input_gets_one_message_exit_code_4_and_changes_nothing(
    folder: Path, words: list[str], stdin: str, complaint: str
) -> None:
    said = call(folder, *words, stdin=stdin)
    assert said.returncode == 4
    assert said.stderr.startswith(complaint)
    assert "Traceback" not in said.stderr
    assert payloads(folder) == []


def test_what_stands_before_a_mistake_in_a_stream_is_published_and_said_to_be(
    folder: Path,
) -> None:
    said = call(folder, "publish", "stock", stdin="1\n2\n{\n4\n")
    assert said.returncode == 4
    assert said.stderr.startswith("dagster-bus: line 3: not JSON: Expecting property name")
    assert "(2 events before it published; go on from there)" in said.stderr
    assert sorted(payloads(folder, "stock")) == [1, 2]


def test_a_line_is_published_as_soon_as_it_is_there(folder: Path) -> None:
    process = subprocess.Popen(
        [str(COMMAND), "publish", "orders.created"],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"1\n")
    process.stdin.flush()
    assert process.stdout.readline().startswith(b"orders.created/")
    assert payloads(folder) == [1]
    process.stdin.close()
    assert process.wait() == 0
    process.stdout.close()


@pytest.mark.parametrize("words", [["groups"], ["dlq", "list", "order-table"]])
def test_looking_at_a_store_that_is_not_there_exits_with_2_and_makes_none(
    folder: Path, words: list[str]
) -> None:
    said = call(folder, *words)
    assert said.returncode == 2
    assert "yet; the first publish makes it" in said.stderr
    assert not (folder / "bus.db").exists()


def test_the_version_is_told(folder: Path) -> None:
    assert call(folder, "--version").stdout.startswith("dagster-bus, version 0.")


def test_groups_show_where_every_event_is(folder: Path) -> None:
    call(folder, "publish", "orders.created", stdin="1\n2\n3\n")
    (row,) = json.loads(call(folder, "groups", "--json").stdout)
    assert row == {
        "group": "order-table",
        "published": 3,
        "processed": 0,
        "filtered": 0,
        "expired": 0,
        "dead_lettered": 0,
        "in_runs": 0,
        "waiting_for_retry": 0,
        "blocked": 0,
        "not_yet_reserved": 3,
        "state": "runs",
        "paused_until_ms": None,
    }
    table = call(folder, "groups").stdout
    assert "order-table" in table
    assert max(map(len, table.splitlines())) <= 80


def test_dead_letters_are_listed_with_their_story(folder: Path) -> None:
    call(folder, "publish", "orders.created", '{"n": 1}')
    unknown = call(folder, "dlq", "list", "nobody")
    assert unknown.returncode == 4
    assert unknown.stderr.startswith("dagster-bus: group 'nobody' is not declared (declared: order")
    assert call(folder, "dlq", "list", "order-table").stdout == "order-table has no dead letters\n"
    bury(folder)
    (letter,) = json.loads(call(folder, "dlq", "list", "order-table", "--json").stdout)
    assert letter["event"]["payload"] == {"n": 1}
    assert [error["message"] for error in letter["errors"]] == ["bad [bold]", "bad [bold]"]
    table = call(folder, "dlq", "list", "order-table").stdout
    assert "ValueError: bad [bold]" in table


def test_the_guides_python_does_what_it_shows(tmp_path: Path) -> None:
    guide = (REPOSITORY / "docs" / "guide.md").read_text(encoding="utf-8")
    code = guide.split("```python\n")[1].split("```")[0]
    shutil.copy(REPOSITORY / "topics.yaml", tmp_path)
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith("orders.created ")


def test_the_guides_topics_are_fine(tmp_path: Path) -> None:
    guide = (REPOSITORY / "docs" / "guide.md").read_text(encoding="utf-8")
    (tmp_path / "topics.yaml").write_text(guide.split("```yaml\n")[1].split("```")[0])
    (tmp_path / "customer.schema.json").write_text('{"type": "object"}')
    said = call(tmp_path, "validate")
    assert (said.returncode, said.stderr) == (0, "")


def test_the_guides_commands_do_what_it_says(tmp_path: Path) -> None:
    """In the shop's project; then the backup is imported into an empty store, as the text says."""
    guide = (REPOSITORY / "docs" / "guide.md").read_text(encoding="utf-8")
    block = next(code for code in guide.split("```sh\n")[1:] if "--key-field" in code)
    script = block.split("```")[0].replace("dagster-bus", str(COMMAND))
    shutil.copy(REPOSITORY / "topics.yaml", tmp_path)
    said = subprocess.run(
        ["sh", "-ec", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
    assert "A-4" in said.stdout
    assert "3 events exported" in said.stderr
    shutil.rmtree(tmp_path / ".bus")
    said = call(tmp_path, "import", "backup.ndjson")
    assert said.stderr == "3 events imported\n"


def test_the_guides_groups_are_fine(tmp_path: Path) -> None:
    guide = (REPOSITORY / "docs" / "guide.md").read_text(encoding="utf-8")
    topics, *others = (part.split("```")[0] for part in guide.split("```yaml\n")[1:])
    blocks = [block for block in others if "groups:" in block]
    assert len(blocks) == 3
    (tmp_path / "customer.schema.json").write_text('{"type": "object"}')
    for groups in blocks:
        (tmp_path / "topics.yaml").write_text(topics + groups)
        said = call(tmp_path, "validate")
        assert (said.returncode, said.stderr) == (0, "")


def test_the_guides_commands_for_dead_letters_do_what_it_says(folder: Path) -> None:
    guide = (REPOSITORY / "docs" / "guide.md").read_text(encoding="utf-8")
    block = next(code for code in guide.split("```sh\n")[1:] if "dlq list" in code).split("```")[0]
    for n in (1, 2):
        call(folder, "publish", "orders.created", json.dumps({"n": n}))
        bury(folder)
    newest, _ = json.loads(call(folder, "dlq", "list", "order-table", "--json").stdout)
    script = block.replace("dagster-bus", str(COMMAND)).replace("orders-enriched", "order-table")
    script = script.replace("3f2a9c0d1b5e", newest["fingerprint"]).replace("/amount", "/n")
    script = script.replace(" 17", f" {newest['id']}").replace("]'\n", "]' --yes\n")
    said = subprocess.run(
        ["sh", "-ec", script], cwd=folder, check=False, capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    with Bus.open(folder / "topics.yaml") as bus:
        assert bus.dead_letters("order-table").list() == []
        sent = [
            e
            for d in bus.group("order-table").reserve()
            for e in bus.group("order-table").events(d)
        ]
    assert sorted(event.payload["n"] for event in sent) == [1, 5]

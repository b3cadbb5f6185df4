"""The commands for dead letters, as a shell sees them, on every store."""

import os
import pty
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dagster_bus import Bus, Message
from dagster_bus.cli.redrive import _send
from dagster_bus.core.letters import Chosen
from dagster_bus.errors import SchemaMismatch
from tests.integration.test_cli_groups import answer, as_of, begin, cells, shown, told
from tests.support.command import COMMAND, call
from tests.support.project import write_topics

GROUP = "order-table"
HOUR_MS = 3_600_000
RAISE = '[{"op": "replace", "path": "/n", "value": 7}]'


@pytest.fixture
def folder(tmp_path: Path, store_url: str) -> Path:
    """Two topics that one group reads, one of them strict."""
    write_topics(
        tmp_path,
        **{
            "sqlite:///bus.db": store_url,
            'topics: ["orders.*"]': 'topics: ["orders.*", strict]',
        },
    )
    return tmp_path


def bury(
    folder: Path,
    *payloads: Any,
    topic: str = "orders.created",
    error: str = "bad",
    hours_ago: int = 0,
    **envelope: Any,
) -> None:
    """Publish events, and let the group fail with them until they are dead."""
    with Bus.open(folder / "topics.yaml") as bus:
        clock = as_of(bus, hours_ago * HOUR_MS)
        bus.publish_many(topic, [Message(each, partition=0, **envelope) for each in payloads])
        group = bus.group(GROUP)
        for _ in range(2):
            held = begin(group)
            group.fail(held, ValueError(error))
            clock.advance(10)


def listed(folder: Path, *words: str) -> list[Any]:
    letters: list[Any] = told(folder, "dlq", "list", GROUP, *words)
    return letters


def payloads(letters: list[Any]) -> list[Any]:
    return [letter["event"]["payload"] for letter in letters]


def redelivered(folder: Path) -> list[Any]:
    """The payloads that the group gets next."""
    with Bus.open(folder / "topics.yaml") as bus:
        group = bus.group(GROUP)
        return sorted((e.payload for d in group.reserve() for e in group.events(d)), key=str)


def iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1_000, UTC).isoformat()


# looking


def test_letters_are_listed_newest_first_with_ids_and_fingerprints(folder: Path) -> None:
    bury(folder, {"n": 1}, {"n": 2}, error="first kind")
    bury(folder, {"n": 3}, error="second kind")
    letters = listed(folder)
    assert payloads(letters) == [{"n": 3}, {"n": 2}, {"n": 1}]
    table = cells(shown(folder, "dlq", "list", GROUP))
    assert table[0] == ["id", "died", "event", "attempts", "fingerprint", "error"]
    newest = letters[0]
    assert table[1][0] == str(newest["id"])
    assert table[1][3:6] == ["orders.created/0:3", "2", newest["fingerprint"]]
    assert table[1][6:] == ["ValueError:", "second", "kind"]


def test_a_long_list_is_gone_through_page_by_page(folder: Path) -> None:
    bury(folder, *({"n": n} for n in range(5)))
    first = call(folder, "dlq", "list", GROUP, "--limit", "2").stdout
    newest = listed(folder, "--limit", "2")
    assert f"go on with --before {newest[-1]['id']}" in first
    rest = listed(folder, "--before", str(newest[-1]["id"]))
    assert [letter["n"] for letter in payloads([*newest, *rest])] == [4, 3, 2, 1, 0]
    last = shown(folder, "dlq", "list", GROUP, "--before", str(newest[-1]["id"]))
    assert "There are more" not in last
    assert "There are more" not in shown(folder, "dlq", "list", GROUP, "--limit", "5")


def test_letters_are_found_by_error_topic_time_and_state(folder: Path) -> None:
    bury(folder, {"n": 1}, error="one", hours_ago=5)
    bury(folder, {"n": 2}, error="two", hours_ago=2)
    bury(folder, {"n": 3}, error="two", topic="strict")
    _, middle, _ = listed(folder)
    assert payloads(listed(folder, "--fingerprint", middle["fingerprint"])) == [{"n": 3}, {"n": 2}]
    assert payloads(listed(folder, "--topic", "orders.created")) == [{"n": 2}, {"n": 1}]
    at = iso(middle["died_ms"])
    assert payloads(listed(folder, "--since", at)) == [{"n": 3}, {"n": 2}]
    assert payloads(listed(folder, "--until", at)) == [{"n": 1}]
    assert payloads(listed(folder, "--since", at, "--topic", "orders.created")) == [{"n": 2}]
    empty = shown(folder, "dlq", "list", GROUP, "--since", "2099-01-01")
    assert empty == f"{GROUP} has no such letters\n"
    told(folder, "dlq", "redrive", GROUP, str(middle["id"]), "--yes")
    assert payloads(listed(folder)) == [{"n": 3}, {"n": 1}]
    assert payloads(listed(folder, "--state", "redriven")) == [{"n": 2}]
    assert [letter["state"] for letter in listed(folder, "--state", "all")] == [
        "dead", "redriven", "dead",
    ]  # fmt: skip
    table = cells(shown(folder, "dlq", "list", GROUP, "--state", "all"))
    assert (table[0][5], table[2][6]) == ("state", "redriven")


def test_letters_are_counted_by_error_with_an_example(folder: Path) -> None:
    with Bus.open(folder / "topics.yaml"):
        assert shown(folder, "dlq", "counts", GROUP) == f"{GROUP} has no dead letters\n"
    bury(folder, {"n": 1}, error="no column 'a'")
    bury(folder, {"n": 2}, {"n": 3}, error="timeout after 20 s")
    bury(folder, {"n": 4}, error="timeout after 30 s")
    newest = listed(folder)[0]
    often, once = told(folder, "dlq", "counts", GROUP)
    assert often == {
        "fingerprint": newest["fingerprint"],
        "count": 3,
        "newest": {"id": newest["id"], "died_ms": newest["died_ms"]},
        "error": "ValueError: timeout after 30 s",
    }
    assert (once["count"], once["error"]) == (1, "ValueError: no column 'a'")
    table = cells(shown(folder, "dlq", "counts", GROUP))
    assert table[0] == ["letters", "fingerprint", "newest", "error"]
    assert table[1][:2] == ["3", newest["fingerprint"]]


def test_one_letter_is_shown_with_its_whole_story(folder: Path) -> None:
    bury(
        folder, {"n": 1, "text": "é\x9b31m"}, error="bad \x1b[31mred",
        key="k-1", source="shop", attributes={"channel": "web"}, priority="high", ttl_s=600,
        idempotency_key="once",
    )  # fmt: skip
    (listed_one,) = listed(folder)
    letter = told(folder, "dlq", "show", GROUP, str(listed_one["id"]))
    assert letter == listed_one
    assert letter["event"]["attributes"] == {"channel": "web"}
    assert [error["attempt"] for error in letter["errors"]] == [1, 2]
    story = shown(folder, "dlq", "show", GROUP, str(letter["id"]))
    for part in (
        f"{letter['id']} of {GROUP}", letter["fingerprint"], "orders.created/0:1",
        letter["event"]["id"], "k-1", "shop", '{"channel":"web"}', "high", "600s", "once",
        '"n": 1', "attempt 1, ", "attempt 2, ", "by run-1", "ValueError: bad ",
    ):  # fmt: skip
        assert part in story, part
    assert story.count(iso(letter["errors"][0]["at_ms"])[11:23]) >= 1
    assert "\x1b" not in story
    assert "\x9b" not in story, "a terminal would obey it"


def test_a_story_has_the_traceback_of_every_attempt(folder: Path) -> None:
    with Bus.open(folder / "topics.yaml") as bus:
        clock = as_of(bus, 0)
        bus.publish("orders.created", {"n": 1})
        group = bus.group(GROUP)
        for _ in range(2):
            try:
                int("x")
            except ValueError as error:
                group.fail(begin(group), error)
            clock.advance(10)
    (letter,) = listed(folder)
    story = shown(folder, "dlq", "show", GROUP, str(letter["id"]))
    assert story.count("Traceback (most recent call last):") == 2
    assert "test_a_story_has_the_traceback_of_every_attempt" in story


def test_a_letter_that_is_not_there_is_told_by_exit_code_3(folder: Path) -> None:
    bury(folder, {"n": 1})
    for words in (["show", GROUP, "999"], ["redrive", GROUP, "999", "--yes"]):
        said = call(folder, "dlq", *words)
        assert said.returncode == 3
        assert said.stderr == f"dagster-bus: group {GROUP} has no dead letter 999" + (
            "\n" if "show" in words else " (or it was sent back already)\n"
        )


# sending back


def test_letters_go_back_by_their_ids(folder: Path) -> None:
    bury(folder, {"n": 1}, {"n": 2}, {"n": 3})
    three, _, one = [str(letter["id"]) for letter in listed(folder)]
    said = call(folder, "dlq", "redrive", GROUP, one, three, "--yes")
    assert (said.returncode, said.stdout) == (0, f"2 letters sent back to {GROUP}\n")
    assert payloads(listed(folder)) == [{"n": 2}]
    assert redelivered(folder) == [{"n": 1}, {"n": 3}]
    again = call(folder, "dlq", "redrive", GROUP, one, "--yes")
    assert again.returncode == 3, "it was sent back already"


def test_letters_go_back_by_error_by_topic_or_all_together(folder: Path) -> None:
    bury(folder, {"n": 1}, error="one")
    bury(folder, {"n": 2}, error="two")
    bury(folder, {"n": 3}, error="two", topic="strict")
    bury(folder, {"n": 4}, error="four")
    _, three, two, _ = listed(folder)
    redrive = ("dlq", "redrive", GROUP, "--yes")
    found = told(folder, *redrive, "--fingerprint", two["fingerprint"], "--topic", "strict")
    assert found == {"group": GROUP, "found": 1, "redriven": 1, "dry_run": False}
    assert three["fingerprint"] == two["fingerprint"]
    assert told(folder, *redrive, "--fingerprint", two["fingerprint"])["redriven"] == 1
    assert payloads(listed(folder)) == [{"n": 4}, {"n": 1}]
    assert told(folder, *redrive, "--topic", "strict")["redriven"] == 0
    assert told(folder, *redrive, "--all")["redriven"] == 2
    assert listed(folder) == []
    assert call(folder, *redrive, "--all").stdout == f"0 letters sent back to {GROUP}\n"
    assert told(folder, "groups")[0]["waiting_for_retry"] == 4


def test_a_dry_run_counts_and_sends_nothing(folder: Path) -> None:
    bury(folder, {"n": 1}, {"n": 2})
    said = shown(folder, "dlq", "redrive", GROUP, "--all", "--dry-run")
    assert said == f"2 letters would go back to {GROUP}; nothing was changed\n"
    found = told(folder, "dlq", "redrive", GROUP, "--topic", "orders.created", "--dry-run")
    assert found == {"group": GROUP, "found": 2, "redriven": 0, "dry_run": True}
    assert len(listed(folder)) == 2
    assert redelivered(folder) == []


def test_sending_back_asks_first(folder: Path) -> None:
    bury(folder, {"n": 1}, {"n": 2})
    said = call(folder, "dlq", "redrive", GROUP, "--all")
    assert said.returncode == 4
    assert "add --yes" in said.stderr
    refused = answer(folder, "n\n", "dlq", "redrive", GROUP, "--all")
    assert refused.returncode == 1
    assert b"Send 2 dead letters back to order-table?" in refused.stderr
    assert len(listed(folder)) == 2
    assert answer(folder, "y\n", "dlq", "redrive", GROUP, "--all").returncode == 0
    assert listed(folder) == []


@pytest.mark.parametrize("in_file", [False, True])
def test_payloads_are_mended_on_the_way(folder: Path, in_file: bool) -> None:
    bury(folder, {"n": 1}, {"n": 2})
    (folder / "patch.json").write_text(RAISE)
    patch = "@patch.json" if in_file else RAISE
    assert told(folder, "dlq", "redrive", GROUP, "--all", "--patch", patch, "-y")["redriven"] == 2
    assert redelivered(folder) == [{"n": 7}, {"n": 7}]
    letter = listed(folder, "--state", "redriven")[0]
    assert (letter["event"]["payload"], letter["patched"]) == ({"n": 2}, {"payload": {"n": 7}})
    story = shown(folder, "dlq", "show", GROUP, str(letter["id"]))
    assert "sent back with the payload" in story


@pytest.mark.parametrize(
    ("patch", "complaint"),
    [
        ("{", "dagster-bus: --patch: not JSON: "),
        ("@missing.json", "dagster-bus: --patch: cannot read missing.json: No such file"),
        ('{"op": "add"}', "dagster-bus: this is not a JSON Patch: "),
        ('[{"op": "jump", "path": "/n"}]', "dagster-bus: this is not a JSON Patch: "),
        ("5", "dagster-bus: this is not a JSON Patch: "),
        (
            '[{"op": "remove", "path": "/m"}]',
            "dagster-bus: dead letter 4: the patch does not fit the payload: ",
        ),
        (
            '[{"op": "replace", "path": "/n", "value": "x"}]',
            "dagster-bus: dead letter 1: the payload does not fit strict: ",
        ),
    ],
)
def test_a_patch_that_does_not_fit_one_of_the_letters_sends_none(
    folder: Path, patch: str, complaint: str
) -> None:
    bury(folder, {"n": 1}, topic="strict")
    bury(folder, *({"n": n} for n in range(3)))
    one_by_one = ("--rate", "1", "--yes")
    said = call(folder, "dlq", "redrive", GROUP, "--all", "--patch", patch, *one_by_one)
    assert said.returncode == 4
    assert said.stderr.splitlines()[-1].startswith(complaint), said.stderr
    assert "Traceback" not in said.stderr
    assert len(listed(folder)) == 4


def test_what_was_sent_before_a_failure_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As when somebody changes a letter after the patch was tried on it."""
    bury(folder, {"n": 1}, topic="strict")
    bury(folder, *({"n": n} for n in range(3)))
    patch = [{"op": "replace", "path": "/n", "value": "x"}]
    with Bus.open(folder / "topics.yaml") as bus, pytest.raises(SchemaMismatch):
        _send(bus.dead_letters(GROUP), Chosen(), patch, 1.0, 4)
    assert capsys.readouterr().err.endswith("3 letters sent back before this:\n")
    assert payloads(listed(folder)) == [{"n": 1}]


def test_letters_go_back_at_a_rate(folder: Path) -> None:
    bury(folder, *({"n": n} for n in range(6)))
    said = shown(folder, "dlq", "redrive", GROUP, "--all", "--rate", "2", "--yes")
    assert said == f"6 letters sent back to {GROUP}, over 3 s\n"
    with Bus.open(folder / "topics.yaml") as bus:
        due = sorted(each.due_ms for each in bus._store.open_deliveries(GROUP))
    assert len(due) == 3
    assert 1_900 <= due[-1] - due[0] <= 3_000


def test_sending_many_back_shows_its_progress_on_a_screen(folder: Path) -> None:
    bury(folder, *({"n": n} for n in range(30)))
    terminal, inside = pty.openpty()
    said = subprocess.run(
        [str(COMMAND), "dlq", "redrive", GROUP, "--all", "--yes", "--rate", "10"],
        cwd=folder, stderr=inside, stdout=subprocess.PIPE, check=False,
        env={**os.environ, "COLUMNS": "100", "TERM": "xterm"},
    )  # fmt: skip
    os.close(inside)
    drawn = os.read(terminal, 1 << 16).decode()
    os.close(terminal)
    assert said.stdout == b"30 letters sent back to order-table, over 3 s\n"
    assert "sending back" in drawn


# deleting


def test_old_letters_are_deleted_for_good(folder: Path) -> None:
    bury(folder, {"n": 1}, {"n": 2}, hours_ago=48)
    bury(folder, {"n": 3}, hours_ago=1)
    said = call(folder, "dlq", "purge", GROUP, "--older-than", "1d")
    assert said.returncode == 4
    assert "add --yes" in said.stderr
    refused = answer(folder, "n\n", "dlq", "purge", GROUP, "--older-than", "1d")
    assert refused.returncode == 1
    assert b"order-table that died 1d ago or earlier, for good?" in refused.stderr
    assert len(listed(folder)) == 3
    said = call(folder, "dlq", "purge", GROUP, "--older-than", "1d", "--yes")
    assert (said.returncode, said.stdout) == (0, f"2 letters of {GROUP} deleted\n")
    assert payloads(listed(folder)) == [{"n": 3}]
    again = told(folder, "dlq", "purge", GROUP, "--older-than", "1d", "--yes")
    assert again == {"group": GROUP, "purged": 0}
    assert told(folder, "groups")[0]["dead_lettered"] == 3, "they are still accounted for"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["list", "nobody"], "dagster-bus: group 'nobody' is not declared (declared: order-table)"),
        (["list", GROUP, "--since", "noon"], "Usage: dagster-bus dlq list"),
        (["list", GROUP, "--limit", "0"], "Usage: dagster-bus dlq list"),
        (["list", GROUP, "--before", "9" * 30], "Usage: dagster-bus dlq list"),
        (["list", GROUP, "--state", "alive"], "Usage: dagster-bus dlq list"),
        (["counts", "nobody"], "dagster-bus: group 'nobody' is not declared"),
        (["show", GROUP, "x"], "Usage: dagster-bus dlq show"),
        (["show", GROUP, "9" * 30], "Usage: dagster-bus dlq show"),
        (["redrive", GROUP, "-y"], "Usage: dagster-bus dlq redrive"),
        (["redrive", GROUP, "1", "--all", "-y"], "Usage: dagster-bus dlq redrive"),
        (["redrive", GROUP, "1", "--topic", "strict", "-y"], "Usage: dagster-bus dlq redrive"),
        (["redrive", GROUP, "--all", "--topic", "strict"], "Usage: dagster-bus dlq redrive"),
        (["redrive", GROUP, "--all", "--rate", "0", "-y"], "Usage: dagster-bus dlq redrive"),
        (["redrive", GROUP, "--all", "--rate", "nan", "-y"], "Usage: dagster-bus dlq redrive"),
        (["redrive", GROUP, "--all", "--rate", "inf", "-y"], "Usage: dagster-bus dlq redrive"),
        (["redrive", "nobody", "--all", "-y"], "dagster-bus: group 'nobody' is not declared"),
        (["purge", GROUP, "-y"], "Usage: dagster-bus dlq purge"),
        (["purge", GROUP, "--older-than", "long", "-y"], "Usage: dagster-bus dlq purge"),
        (["purge", GROUP, "--older-than", "9" * 25 + "d", "-y"], "Usage: dagster-bus dlq purge"),
        (["purge", "nobody", "--older-than", "1d", "-y"], "dagster-bus: group 'nobody' is not"),
    ],
)
def test_bad_arguments_are_told_in_one_message_and_change_nothing(
    tmp_path: Path, words: list[str], complaint: str
) -> None:
    write_topics(tmp_path)
    bury(tmp_path, {"n": 1}, hours_ago=48)
    said = call(tmp_path, "dlq", *words)
    assert said.returncode == 4
    assert said.stderr.startswith(complaint), said.stderr
    assert "Traceback" not in said.stderr
    assert len(listed(tmp_path)) == 1


@pytest.mark.parametrize(
    "words",
    [
        ["counts", GROUP],
        ["show", GROUP, "1"],
        ["redrive", GROUP, "--all", "--yes"],
        ["purge", GROUP, "--older-than", "1d", "--yes"],
    ],
)
def test_a_store_that_is_not_there_is_not_made(tmp_path: Path, words: list[str]) -> None:
    write_topics(tmp_path)
    assert call(tmp_path, "dlq", *words).returncode == 2
    assert not (tmp_path / "bus.db").exists()

"""The commands that treat a group as a queue, and those of replays, as a shell sees them."""

import json
from pathlib import Path
from typing import Any

import pytest

from dagster_bus import Bus, Message
from tests.support.command import call
from tests.support.project import write_topics

GROUP = "order-table"


@pytest.fixture
def folder(tmp_path: Path, store_url: str) -> Path:
    write_topics(tmp_path, **{"sqlite:///bus.db": store_url})
    with Bus.open(tmp_path / "topics.yaml") as bus:
        priorities = ["low", "critical", "normal", "high"]
        messages = [Message({"n": n}, priority=p, partition=0) for n, p in enumerate(priorities)]  # type: ignore[arg-type]
        bus.publish_many("orders.created", messages)
    return tmp_path


def told(folder: Path, *words: str) -> Any:
    said = call(folder, *words)
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)


def numbers(folder: Path) -> list[int]:
    return [event["payload"]["n"] for event in told(folder, "check", GROUP, "--json")]


def test_check_lists_what_is_to_do_most_urgent_first(folder: Path) -> None:
    assert numbers(folder) == [1, 3, 2, 0]
    said = call(folder, "check", GROUP, "--limit", "2").stdout
    assert said.index("critical") < said.index("high")
    assert "2 of 4 events; --limit shows more." in said


def test_read_prints_an_event_and_knows_which_are_not_there(folder: Path) -> None:
    assert told(folder, "read", "orders.created/0:2")["payload"] == {"n": 1}
    missing = call(folder, "read", "orders.created/0:99")
    assert (missing.returncode, missing.stderr) == (
        3,
        "dagster-bus: there is no event orders.created/0:99\n",
    )
    assert call(folder, "read", "orders.created").returncode == 4


def test_ack_settles_single_events_once(folder: Path) -> None:
    said = call(folder, "ack", GROUP, "orders.created/0:2", "orders.created/0:4")
    assert (said.returncode, said.stdout) == (0, "2 events acknowledged\n")
    assert numbers(folder) == [2, 0]
    again = call(folder, "ack", GROUP, "orders.created/0:2")
    assert again.returncode == 3
    assert "settled already" in again.stderr


def test_ack_all_asks_first(folder: Path) -> None:
    refused = call(folder, "ack-all", GROUP)
    assert refused.returncode == 4
    assert "--yes" in refused.stderr
    assert call(folder, "ack-all", GROUP, "--yes").stdout == "4 events acknowledged\n"
    assert call(folder, "check", GROUP).stdout == f"{GROUP} has nothing to do\n"


def test_a_replay_is_made_once_and_listed(folder: Path) -> None:
    assert call(folder, "replay", GROUP).stdout == f"{GROUP} has no replays\n"
    made = call(folder, "replay", GROUP, "again", "--from", "2", "--partition", "orders.created/0")
    assert (made.returncode, made.stdout) == (0, f"{GROUP}~again holds 3 events\n")
    again = call(folder, "replay", GROUP, "again")
    assert again.returncode == 4
    assert "choose another name" in again.stderr
    (row,) = told(folder, "replay", GROUP, "--json")
    assert (row["group"], row["published"], row["processed"]) == (f"{GROUP}~again", 3, 0)
    assert [event["payload"]["n"] for event in told(folder, "check", f"{GROUP}~again", "--json")]
    assert call(folder, "ack-all", f"{GROUP}~again", "--yes").returncode == 0
    assert numbers(folder) == [1, 3, 2, 0], "the live group is where it was"

"""The commands that look at groups and steer them, as a shell sees them, on every store."""

import json
import os
import pty
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from dagster_bus import Bus, Message
from dagster_bus.core.clock import system_clock
from dagster_bus.core.delivery import Delivery
from dagster_bus.core.event import PRIORITIES
from dagster_bus.core.groups import Group
from dagster_bus.core.letters import Chosen
from tests.support.builders import FakeClock
from tests.support.command import COMMAND, call
from tests.support.project import write_topics

GROUP = "order-table"
QUICK = "{max_attempts: 2, base_delay: 1ms, jitter: none"
MINUTE_MS = 60_000


@pytest.fixture
def folder(tmp_path: Path, store_url: str) -> Path:
    write_topics(tmp_path, **{"sqlite:///bus.db": store_url})
    return tmp_path


def declare(folder: Path, store_url: str, **replacements: str) -> None:
    write_topics(folder, **{"sqlite:///bus.db": store_url, **replacements})


def publish(folder: Path, *messages: Message, topic: str = "orders.created") -> None:
    with Bus.open(folder / "topics.yaml") as bus:
        bus.publish_many(topic, messages)


def in_partition(number: int, count: int) -> list[Message]:
    return [Message({"n": n}, partition=number) for n in range(count)]


def begin(group: Group) -> Delivery:
    """Reserve the next delivery, and lease it."""
    (reserved,) = group.reserve(most=1)
    return group.lease(reserved.id, reservation=reserved.reservation, worker="run-1")


def as_of(bus: Bus, ms_ago: int) -> FakeClock:
    """Let a bus believe that it is so much earlier. Events that it is to reserve then are to be
    published afterwards: they belong to an hour, which may not have begun before."""
    clock = FakeClock(system_clock() - ms_ago)
    bus._clock = clock
    return clock


def told(folder: Path, *words: str) -> Any:
    said = call(folder, *words, "--json")
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)


def shown(folder: Path, *words: str) -> str:
    said = call(folder, *words)
    assert said.returncode == 0, said.stderr
    return said.stdout


def cells(text: str) -> list[list[str]]:
    """The words of each line of a table, as far as they stand apart."""
    return [line.split() for line in text.splitlines() if line.strip(" ─")]


def answer(folder: Path, reply: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Call a command on a terminal, and answer its question."""
    terminal, inside = pty.openpty()
    try:
        os.write(terminal, reply.encode())
        return subprocess.run(
            [str(COMMAND), *words], cwd=folder, stdin=inside, capture_output=True, check=False
        )
    finally:
        os.close(terminal)
        os.close(inside)


# groups and resume


def test_groups_tell_what_expired_and_that_a_group_runs(folder: Path) -> None:
    publish(folder, *in_partition(0, 5))
    with Bus.open(folder / "topics.yaml") as bus:
        group = bus.group(GROUP)
        group.settle(begin(group), filtered=1, expired=2)
    publish(folder, *in_partition(0, 3))
    (row,) = told(folder, "groups")
    assert row == {
        "group": GROUP,
        "published": 8,
        "processed": 2,
        "filtered": 1,
        "expired": 2,
        "dead_lettered": 0,
        "in_runs": 0,
        "waiting_for_retry": 0,
        "blocked": 0,
        "not_yet_reserved": 3,
        "state": "runs",
        "paused_until_ms": None,
    }
    headings, values = cells(shown(folder, "groups"))
    assert dict(zip(headings, values, strict=False))["expired"] == "2"
    assert "blocked" not in headings, "what is 0 everywhere takes no room"
    assert values[-1] == "runs"


def test_a_group_that_is_blocked_is_shown_and_goes_on_when_it_is_resumed(
    folder: Path, store_url: str
) -> None:
    declare(
        folder,
        store_url,
        **{
            "on_exhausted: dead_letter": "on_exhausted: block",
            "max_attempts: 2": "max_attempts: 1",
        },
    )
    publish(folder, *in_partition(0, 3))
    with Bus.open(folder / "topics.yaml") as bus:
        group = bus.group(GROUP)
        group.fail(begin(group), ValueError("bad"))
    publish(folder, *in_partition(0, 2))
    (row,) = told(folder, "groups")
    assert (row["blocked"], row["not_yet_reserved"], row["state"]) == (3, 2, "blocked")
    table = shown(folder, "groups")
    assert f"dagster-bus resume {GROUP}" in table
    _, values, *_ = cells(table)
    assert values[-1] == "blocked"
    assert max(map(len, table.splitlines()[:5])) <= 100
    assert shown(folder, "resume", GROUP) == f"{GROUP} goes on: 1 delivery to start afresh\n"
    (row,) = told(folder, "groups")
    assert (row["blocked"], row["waiting_for_retry"], row["state"]) == (0, 3, "runs")
    again = shown(folder, "resume", GROUP)
    assert again == f"{GROUP} was not blocked, and nothing was changed\n"


def test_a_group_that_pauses_is_shown_with_the_end_of_its_pause(
    folder: Path, store_url: str
) -> None:
    breaker = f"{QUICK}, circuit_breaker: {{failures: 1, reset_after: 1h}}"
    declare(folder, store_url, **{QUICK: breaker})
    publish(folder, *in_partition(0, 3))
    with Bus.open(folder / "topics.yaml") as bus:
        clock = as_of(bus, 0)
        group = bus.group(GROUP)
        group.fail(begin(group), ValueError("bad"))
    (row,) = told(folder, "groups")
    until_ms = clock() + 60 * MINUTE_MS
    assert (row["state"], row["paused_until_ms"]) == ("paused", until_ms)
    until = time.strftime("%H:%M:%S", time.gmtime(until_ms // 1_000))
    table = shown(folder, "groups")
    assert f"paused until {until}" in table
    assert max(map(len, table.splitlines())) <= 100
    assert f"it is paused until {until}" in shown(folder, "resume", GROUP)
    (row,) = told(folder, "status")
    assert row["state"] == "paused"


def test_no_number_is_cut_however_narrow_the_screen_is(folder: Path) -> None:
    publish(folder, *in_partition(0, 12_345))
    with Bus.open(folder / "topics.yaml") as bus:
        group = bus.group(GROUP)
        group.settle(begin(group), filtered=1_111, expired=2_222)
    said = subprocess.run(
        [str(COMMAND), "groups"], cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "COLUMNS": "40"},
    )  # fmt: skip
    headings, values = cells(said.stdout)
    assert (headings[0], headings[-1]) == ("group", "state")
    assert values == [GROUP, "12,345", "9,012", "1,111", "2,222", *"0000", "runs"]


# lag


def test_lag_shows_each_partition_with_its_end_cursor_and_oldest_event(folder: Path) -> None:
    with Bus.open(folder / "topics.yaml") as bus:
        clock = as_of(bus, 9 * MINUTE_MS)
        bus.publish_many("orders.created", in_partition(0, 3))
        group = bus.group(GROUP)
        group.settle(begin(group))
        clock.advance(6 * MINUTE_MS)
        bus.publish_many("orders.created", in_partition(0, 4))
    first, second = told(folder, "lag")
    age = first.pop("oldest_ms")
    assert 3 * MINUTE_MS <= age < 4 * MINUTE_MS
    at = {"group": GROUP, "topic": "orders.created"}
    assert first == {**at, "partition": 0, "end": 8, "cursor": 3, "lag": 4}
    assert second == {**at, "partition": 1, "end": 1, "cursor": 0, "lag": 0, "oldest_ms": None}
    table = cells(shown(folder, "lag", GROUP))
    assert table[0] == ["group", "partition", "end", "cursor", "lag", "oldest"]
    assert table[1][:6] == [GROUP, "orders.created/0", "8", "3", "4", "3m"]
    assert table[2] == [GROUP, "orders.created/1", "1", "0", "0"]


def test_lag_counts_from_the_oldest_event_that_is_not_settled(folder: Path) -> None:
    publish(folder, *in_partition(0, 4))
    with Bus.open(folder / "topics.yaml") as bus:
        group = bus.group(GROUP)
        begin(group)  # and says no more
        bus.publish_many("orders.created", in_partition(0, 2))
        group.settle(begin(group))
    first, _ = told(folder, "lag")
    assert (first["cursor"], first["lag"]) == (0, 6)


def test_lag_can_be_watched_without_a_screen(folder: Path) -> None:
    publish(folder, *in_partition(0, 4))
    begun = time.monotonic()
    text = shown(folder, "lag", "--watch", "--times", "2")
    assert time.monotonic() - begun >= 1
    assert text.count("orders.created/0") == 2
    looks = shown(folder, "lag", "--watch", "--times", "2", "--json").splitlines()
    assert [json.loads(line)[0]["lag"] for line in looks] == [4, 4]


def test_a_watch_sees_what_is_published_and_ends_quietly_with_ctrl_c(folder: Path) -> None:
    publish(folder, *in_partition(0, 1))
    process = subprocess.Popen(
        [str(COMMAND), "lag", "--watch", "--json"], cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())[0]["lag"] == 1
    publish(folder, *in_partition(0, 2))
    lags = [json.loads(process.stdout.readline())[0]["lag"] for _ in range(3)]
    assert lags[-1] == 3
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=30)
    assert (process.returncode, complaint) == (0, "")


def test_on_a_screen_each_look_takes_the_place_of_the_one_before(folder: Path) -> None:
    publish(folder, *in_partition(0, 1))
    terminal, inside = pty.openpty()
    said = subprocess.run(
        [str(COMMAND), "lag", "--watch", "--times", "2"], cwd=folder, stdout=inside, check=False,
        env={**os.environ, "COLUMNS": "160", "LINES": "40", "TERM": "xterm"},
    )  # fmt: skip
    os.close(inside)
    drawn = os.read(terminal, 1 << 16).decode()
    os.close(terminal)
    assert said.returncode == 0
    assert drawn.count("orders.created/1") >= 2
    assert "\x1b[1A" in drawn, "the cursor goes up again"


# seek


def test_seek_shows_asks_and_does(folder: Path) -> None:
    publish(folder, *in_partition(0, 5), *in_partition(1, 2))
    with Bus.open(folder / "topics.yaml") as bus:
        group = bus.group(GROUP)
        group.settle(begin(group))
    refused = answer(folder, "n\n", "seek", GROUP, "--to", "3")
    assert refused.returncode == 1
    assert b"Send order-table there?" in refused.stderr
    assert told(folder, "groups")[0]["not_yet_reserved"] == 0
    done = answer(folder, "y\n", "seek", GROUP, "--to", "3")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(b"order-table was moved: 3 events will be read again, 0 left out\n")
    assert told(folder, "groups")[0]["not_yet_reserved"] == 3
    table = cells(shown(folder, "seek", GROUP, "--to", "latest", "--dry-run"))
    assert table[0][:4] == ["partition", "from", "to", "again"]
    assert table[1] == ["orders.created/0", "3", "6", "0", "3", "0"]
    assert table[2] == ["orders.created/1", "3", "3", "0", "0", "0"]
    assert told(folder, "groups")[0]["not_yet_reserved"] == 3, "a dry run changes nothing"


def test_seek_does_nothing_unasked_where_nobody_can_be_asked(folder: Path) -> None:
    publish(folder, *in_partition(0, 5))
    said = call(folder, "seek", GROUP, "--to", "latest")
    assert said.returncode == 4
    assert "add --yes" in said.stderr
    assert told(folder, "groups")[0]["not_yet_reserved"] == 5


def test_seek_moves_some_partitions_to_a_time(folder: Path) -> None:
    with Bus.open(folder / "topics.yaml") as bus:
        clock = as_of(bus, 60 * MINUTE_MS)
        early_ms = clock()
        bus.publish_many("orders.created", in_partition(0, 2) + in_partition(1, 2))
        clock.advance(30 * MINUTE_MS)
        bus.publish_many("orders.created", in_partition(0, 3) + in_partition(1, 3))
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(early_ms // 1_000 + 60))
    where = ["--partition", "orders.created/1"]
    (move,) = told(folder, "seek", GROUP, "--to", at, *where, *where, "--yes")
    assert move == {
        "topic": "orders.created", "partition": 1, "old": 1, "new": 3,
        "again": 0, "left_out": 2, "given_up": 0,
    }  # fmt: skip
    assert [row["cursor"] for row in told(folder, "lag")] == [0, 2]


def test_seek_beyond_the_end_counts_only_events_that_are_there(folder: Path) -> None:
    publish(folder, *in_partition(0, 5))
    assert "0 events will be read again, 5 left out" in shown(
        folder, "seek", GROUP, "--to", "1000", "-y"
    )
    assert [row["lag"] for row in told(folder, "lag")] == [0, 0]
    assert "5 events will be read again, 0 left out" in shown(
        folder, "seek", GROUP, "--to", "earliest", "-y"
    )


def test_seek_waits_for_work_under_way_unless_it_is_forced(folder: Path) -> None:
    publish(folder, *in_partition(0, 5))
    with Bus.open(folder / "topics.yaml") as bus:
        begin(bus.group(GROUP))
    said = call(folder, "seek", GROUP, "--to", "latest", "--yes")
    assert said.returncode == 1
    assert "(1 under way)" in said.stderr
    (move, _) = told(folder, "seek", GROUP, "--to", "earliest", "--yes", "--force")
    assert (move["old"], move["new"], move["again"], move["given_up"]) == (6, 1, 5, 5)
    (row,) = told(folder, "groups")
    assert (row["in_runs"], row["not_yet_reserved"]) == (0, 5)


# status


def test_status_counts_what_is_pending_by_priority(folder: Path) -> None:
    some = [Message({"n": n}, priority=PRIORITIES[n % 4], partition=0) for n in range(8)]
    publish(folder, *some)
    with Bus.open(folder / "topics.yaml") as bus:
        group = bus.group(GROUP)
        group.settle(begin(group), filtered=2, expired=1)
        bus.publish_many("orders.created", some[:6])
        begin(group)  # under way: pending as well
        bus.publish_many("orders.created", some[:1])
    (row,) = told(folder, "status", GROUP)
    assert row == {
        "group": GROUP,
        "pending": 7,
        "pending_by_priority": {"critical": 3, "high": 2, "normal": 1, "low": 1},
        "processed": 5,
        "filtered": 2,
        "expired": 1,
        "dead_lettered": 0,
        "state": "runs",
        "paused_until_ms": None,
        "warnings": [],
    }
    headings, values = cells(shown(folder, "status"))
    counts = dict(zip(headings, values, strict=True))
    assert (counts["pending"], counts["critical"], counts["low"]) == ("7", "3", "1")
    assert max(map(len, shown(folder, "status").splitlines())) <= 100


def test_status_counts_letters_that_were_sent_back_by_their_priority(folder: Path) -> None:
    publish(folder, Message({"n": 1}, priority="critical"), Message({"n": 2}, priority="low"))
    with Bus.open(folder / "topics.yaml") as bus:
        clock = as_of(bus, 0)
        group = bus.group(GROUP)
        for _ in range(2):
            clock.advance(MINUTE_MS)
            group.fail(begin(group), ValueError("bad"))
        letters = bus.dead_letters(GROUP)
        (dead,) = [each for each in letters.list() if each.event.priority == 0]
        assert list(letters.redrive(Chosen(ids=(dead.id,))))
    (row,) = told(folder, "status", GROUP)
    assert (row["pending"], row["dead_lettered"]) == (1, 1)
    assert row["pending_by_priority"] == {"critical": 1, "high": 0, "normal": 0, "low": 0}


def test_status_says_many_where_counting_would_be_dear(folder: Path) -> None:
    publish(folder, *in_partition(0, 10_000))
    (row,) = told(folder, "status")
    assert row["pending_by_priority"]["normal"] == 10_000
    publish(folder, Message({"n": 1}))
    (row,) = told(folder, "status")
    assert (row["pending"], row["pending_by_priority"]) == (10_001, None)
    _, values = cells(shown(folder, "status"))
    assert values[:6] == [GROUP, "10,001", "many", "many", "many", "many"]


def test_status_warns_of_events_that_are_not_acknowledged_in_time(folder: Path) -> None:
    with Bus.open(folder / "topics.yaml") as bus:
        as_of(bus, 5 * MINUTE_MS)
        bus.publish_many("orders.created", in_partition(0, 3))
        begin(bus.group(GROUP))
        bus.publish_many("orders.created", in_partition(0, 2))
        bus.group(GROUP).reserve(most=1)
    (row,) = told(folder, "status")
    running, reserved = row["warnings"]
    assert (running["deliveries"], running["events"]) == ("running", 3)
    assert 4 * MINUTE_MS <= running["late_ms"] < 5 * MINUTE_MS, "the lease is a minute"
    assert (reserved["deliveries"], reserved["events"]) == ("reserved", 2)
    said = shown(folder, "status")
    assert f"warning: {GROUP}: 3 events not acknowledged, and the lease ended 4m" in said
    assert f"warning: {GROUP}: 2 events handed to a worker that should have come 4m" in said


def test_status_warns_of_retries_that_nobody_takes_up(folder: Path) -> None:
    with Bus.open(folder / "topics.yaml") as bus:
        as_of(bus, 90_000)
        bus.publish_many("orders.created", in_partition(0, 3))
        group = bus.group(GROUP)
        group.fail(begin(group), ValueError("bad"))
    (warning,) = told(folder, "status")[0]["warnings"]
    assert (warning["deliveries"], warning["events"]) == ("waiting", 3)
    assert f"warning: {GROUP}: 3 events due for another attempt since 1m" in shown(folder, "status")


def test_a_retry_that_is_due_for_less_than_a_lease_is_no_reason_to_warn(folder: Path) -> None:
    with Bus.open(folder / "topics.yaml") as bus:
        as_of(bus, 10_000)
        bus.publish_many("orders.created", in_partition(0, 3))
        group = bus.group(GROUP)
        group.fail(begin(group), ValueError("bad"))
    assert told(folder, "status")[0]["warnings"] == []


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["resume", "nobody"], "dagster-bus: group 'nobody' is not declared (declared: order-"),
        (["lag", "nobody"], "dagster-bus: group 'nobody' is not declared"),
        (["lag", "--times", "2"], "Usage: dagster-bus lag"),
        (["status", "nobody"], "dagster-bus: group 'nobody' is not declared"),
        (["seek", "nobody", "--to", "latest"], "dagster-bus: group 'nobody' is not declared"),
        (["seek", GROUP], "Usage: dagster-bus seek"),
        (["seek", GROUP, "--to", "soon", "-y"], "Usage: dagster-bus seek"),
        (["seek", GROUP, "--to", "9" * 5_000, "-y"], "Usage: dagster-bus seek"),
        (["seek", GROUP, "--to", "0", "-y"], "dagster-bus: 0 is not an offset; they begin with 1"),
        (["seek", GROUP, "--to", "latest", "--partition", "x", "-y"], "Usage: dagster-bus seek"),
        (
            ["seek", GROUP, "--to", "latest", "--partition", "orders.created/7", "-y"],
            "dagster-bus: the group does not read orders.created/7",
        ),
        (
            ["seek", GROUP, "--to", "latest", "--partition", "stock/0", "-y"],
            "dagster-bus: the group does not read stock/0",
        ),
    ],
)
def test_bad_arguments_are_told_in_one_message_and_change_nothing(
    tmp_path: Path, words: list[str], complaint: str
) -> None:
    write_topics(tmp_path)
    publish(tmp_path, *in_partition(0, 2))
    before = told(tmp_path, "groups")
    said = call(tmp_path, *words)
    assert said.returncode == 4
    assert said.stderr.startswith(complaint), said.stderr
    assert "Traceback" not in said.stderr
    assert told(tmp_path, "groups") == before


@pytest.mark.parametrize(
    "words", [["lag"], ["status"], ["resume", GROUP], ["seek", GROUP, "--to", "latest", "--yes"]]
)
def test_a_store_that_is_not_there_is_not_made(tmp_path: Path, words: list[str]) -> None:
    write_topics(tmp_path)
    assert call(tmp_path, *words).returncode == 2
    assert not (tmp_path / "bus.db").exists()

"""Processes that share the work of a group, some of them killed; and the command that runs them."""

import os
import select
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from dagster_bus import Bus
from dagster_bus.core.store import Tally
from tests.support.command import COMMAND
from tests.support.project import write_topics

PROJECT = Path(__file__).parents[2]
TOPIC = "orders.created"

WORKER = """
    import os
    import time
    from dagster_bus.live import on

    def say(*words):
        os.write(1, (" ".join(map(str, words)) + "\\n").encode())

    @on("orders.created", group="mailers", queue_capacity=20)
    def mail(event):
        say(event.payload["n"])
        time.sleep(event.payload.get("takes", 0.002))
"""


@pytest.fixture
def folder(tmp_path: Path, store_url: str) -> Path:
    write_topics(tmp_path, **{"sqlite:///bus.db": store_url})
    (tmp_path / "mails.py").write_text(dedent(WORKER), encoding="utf-8")
    return tmp_path


class Process:
    """A worker, and the numbers of the events that it says it was given."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            [str(COMMAND), "work", *words],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(PROJECT), "PYTHONUNBUFFERED": "1"},
            text=True,
        )
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline().strip()

    def next(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def end(self, how: signal.Signals) -> list[int]:
        """End it, and return what else it was given."""
        self.process.send_signal(how)
        out, self.errors = self.process.communicate(timeout=60)
        return [int(line) for line in out.splitlines()]


@pytest.fixture
def workers(folder: Path) -> Iterator[list[Process]]:
    started = [Process(folder, "mails"), Process(folder, "mails")]
    yield started
    for each in started:
        with each.process:  # closes what was not read to the end
            each.process.kill()


def test_the_work_of_a_killed_process_is_handed_on_and_every_event_is_handled(
    folder: Path, workers: list[Process]
) -> None:
    killed, other = workers
    with Bus.open(folder / "topics.yaml") as bus:
        bus.publish_many(TOPIC, [{"n": n} for n in range(1_000)])
        given = [killed.next() for _ in range(30)]
        given += killed.end(signal.SIGKILL)
        counted = Counter(given)
        begun = time.monotonic()
        while len(counted) < 1_000:
            counted[other.next()] += 1
        seconds = time.monotonic() - begun
        counted += Counter(other.end(signal.SIGTERM))
        assert other.process.returncode == 0, other.errors
        assert set(counted) == set(range(1_000))
        repeated = [n for n, times in counted.items() if times > 1]
        assert set(repeated) <= set(given), (
            f"only what the killed one had may be handled again; the other one said: {other.errors}"
        )
        bus.subscribe(TOPIC, lambda _: None, group="mailers").unsubscribe()
        assert bus.group("mailers").progress().tally == Tally(processed=1_000)
    assert seconds < 60


def test_a_process_that_dies_over_an_event_hands_it_on_within_a_few_seconds(
    folder: Path, workers: list[Process]
) -> None:
    with Bus.open(folder / "topics.yaml") as bus:
        bus.publish(TOPIC, {"n": 1, "takes": 60})
        killed, other = first_to_speak(workers)
        assert killed.next() == 1
        killed.process.send_signal(signal.SIGKILL)
        begun = time.monotonic()
        assert other.next() == 1
        assert time.monotonic() - begun < 5


def test_a_process_that_is_stopped_loses_its_work_and_what_it_says_later_counts_for_nothing(
    folder: Path, workers: list[Process]
) -> None:
    with Bus.open(folder / "topics.yaml") as bus:
        bus.publish(TOPIC, {"n": 1, "takes": 0.5})
        stopped, other = first_to_speak(workers)
        assert stopped.next() == 1
        stopped.process.send_signal(signal.SIGSTOP)
        assert other.next() == 1
        assert other.end(signal.SIGTERM) == []
        stopped.process.send_signal(signal.SIGCONT)
        assert stopped.end(signal.SIGTERM) == []
        assert "handed on" in stopped.errors
        bus.subscribe(TOPIC, lambda _: None, group="mailers").unsubscribe()
        assert bus.group("mailers").progress().tally == Tally(processed=1)


def first_to_speak(workers: list[Process]) -> list[Process]:
    """The workers, and first the one that was given an event first."""
    outputs = [each.process.stdout for each in workers if each.process.stdout is not None]
    (ready, *_), _, _ = select.select(outputs, [], [], 60)
    return sorted(workers, key=lambda each: each.process.stdout is not ready)


def test_the_command_says_what_it_does_and_ends_when_handlers_are_done(folder: Path) -> None:
    worker = Process(folder, "mails")
    assert worker.said == "1 subscription of mails at work; Ctrl-C ends"
    with Bus.open(folder / "topics.yaml") as bus:
        bus.publish_many(TOPIC, [{"n": 1, "takes": 0.5}])
        assert worker.next() == 1
        assert worker.end(signal.SIGINT) == []
        assert (worker.process.returncode, worker.errors) == (0, "")
        bus.subscribe(TOPIC, lambda _: None, group="mailers").unsubscribe()
        assert bus.group("mailers").progress().tally == Tally(processed=1)


REGISTERING = """
    from mails import mail as send

    def register(bus):
        bus.subscribe("stock", send, group="stock-mailers")
        bus.subscribe("bus.**", print)
"""


def test_a_module_can_register_its_handlers_itself(folder: Path) -> None:
    (folder / "more.py").write_text(dedent(REGISTERING), encoding="utf-8")
    worker = Process(folder, "more")
    assert worker.said == "3 subscriptions of more at work; Ctrl-C ends"
    with Bus.open(folder / "topics.yaml") as bus:
        bus.publish("stock", {"n": 7})
        assert worker.next() == 7
    assert worker.end(signal.SIGTERM) == []
    assert worker.process.returncode == 0


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "there is no module handlers here"),
        ("x = 1", "handlers has no handlers: mark functions with @dagster_bus.live.on(...), "
         "or write a function register(bus)"),
        ("import nothing_like_it", "handlers cannot be imported: No module named "
         "'nothing_like_it'"),
        ("1 / 0", "handlers cannot be imported: ZeroDivisionError: division by zero"),
        ("def register(bus):\n    raise KeyError('x')", "handlers.register failed: KeyError: 'x'"),
        ("def register(bus):\n    bus.subscribe('nowhere', print)", "topic 'nowhere' is not "
         "declared (declared: orders.created, stock, strict)"),
    ],
)  # fmt: skip
def test_what_cannot_be_put_to_work_is_said_in_one_line(
    tmp_path: Path, text: str | None, complaint: str
) -> None:
    write_topics(tmp_path)
    if text is not None:
        (tmp_path / "handlers.py").write_text(text, encoding="utf-8")
    said = subprocess.run(
        [str(COMMAND), "work", "handlers"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (said.returncode, said.stdout) == (4, "")
    assert said.stderr == f"dagster-bus: {complaint}\n"

"""Publishers that share a transaction: each gets its own answer, also when things go wrong."""

import ctypes
import threading
from collections.abc import Sequence

import pytest

from dagster_bus.core.appending import MOST_EVENTS, Appender
from dagster_bus.core.event import Batch, Published
from dagster_bus.errors import BusError, StoreError, UnknownTopic
from tests.support.builders import new_batch
from tests.support.dagster_dev import wait_for


class SlowStore:
    """Remembers what was appended together, and waits where a test tells it to."""

    def __init__(self) -> None:
        self.together: list[list[str]] = []
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.gate.set()

    def append(self, batches: Sequence[Batch], now_ms: int) -> list[list[Published]]:
        self.entered.set()
        assert self.gate.wait(30)
        if any(batch.topic == "bad" for batch in batches):
            raise UnknownTopic("bad")
        if any(batch.topic == "lost" for batch in batches):
            raise StoreError("the answer was lost")
        if any(batch.topic == "stop" for batch in batches):
            raise KeyboardInterrupt
        self.together.append([batch.payloads[0] for batch in batches])
        return [[Published(b.topic, 0, 1, id, now_ms) for id in b.ids] for b in batches]


class Publishers:
    """Threads that append one batch each, while a first one keeps the store busy."""

    def __init__(self, store: SlowStore) -> None:
        self.store = store
        self.appender = Appender(store, lambda: 5)  # type: ignore[arg-type]
        self.threads: list[threading.Thread] = []
        self.answers: dict[str, object] = {}
        self._interrupted: int | None = None

    def interrupt(self, place: int) -> None:
        self._interrupted = place

    def start(self, batch: Batch, name: str) -> None:
        def run() -> None:
            try:
                self.answers[name] = self.appender.append(batch)
            except BaseException as error:  # noqa: BLE001
                self.answers[name] = error

        thread = threading.Thread(target=run)
        thread.start()
        self.threads.append(thread)

    def start_while_busy(self, *batches: Batch) -> None:
        """All of these wait while the first write goes on, and are then let go."""
        self.store.gate.clear()
        self.start(new_batch("orders", payloads=["0"]), "first")
        assert self.store.entered.wait(30)
        for number, batch in enumerate(batches, 1):
            self.start(batch, str(number))
            wait_for("queue", lambda n=number: len(self.appender._queue) == n, 30)  # type: ignore[misc]
        if self._interrupted is not None:
            thread_id = ctypes.c_ulong(self.threads[self._interrupted].ident or 0)
            stop = ctypes.py_object(Stop)
            assert ctypes.pythonapi.PyThreadState_SetAsyncExc(thread_id, stop) == 1
            if self._interrupted > 1:  # the first two notice it when the store lets them go on
                self.threads[self._interrupted].join(30)
        self.store.gate.set()
        for thread in self.threads:
            thread.join(30)
            assert not thread.is_alive()


def batch(text: str, topic: str = "orders", count: int = 1) -> Batch:
    return new_batch(topic, [0] * count, [text] * count)


@pytest.fixture
def publishers() -> Publishers:
    return Publishers(SlowStore())


def test_who_comes_while_the_store_is_busy_is_written_for_together(publishers: Publishers) -> None:
    batches = [batch("1"), batch("2"), batch("3")]
    publishers.start_while_busy(*batches)
    assert publishers.store.together == [["0"], ["1", "2", "3"]]
    for number, each in enumerate(batches, 1):
        assert publishers.answers[str(number)] == [Published("orders", 0, 1, each.ids[0], 5)]


def test_a_publisher_that_is_alone_never_waits(publishers: Publishers) -> None:
    for text in "123":
        publishers.appender.append(batch(text))
    assert publishers.store.together == [["1"], ["2"], ["3"]]


def test_one_publishers_mistake_is_not_the_others(publishers: Publishers) -> None:
    publishers.start_while_busy(batch("1"), batch("2", "bad"), batch("3"))
    assert isinstance(publishers.answers["2"], UnknownTopic)
    assert publishers.store.together == [["0"], ["1"], ["3"]]
    assert isinstance(publishers.answers["1"], list)
    assert isinstance(publishers.answers["3"], list)


def test_a_transaction_is_not_made_larger_without_end(publishers: Publishers) -> None:
    publishers.start_while_busy(
        batch("1", count=MOST_EVENTS), batch("2"), batch("3", count=2 * MOST_EVENTS), batch("4")
    )
    assert publishers.store.together == [["0"], ["1"], ["2"], ["3"], ["4"]]


def test_who_was_written_for_by_an_interrupted_writer_is_told(publishers: Publishers) -> None:
    publishers.start_while_busy(batch("1", "stop"), batch("2"))
    assert isinstance(publishers.answers["1"], KeyboardInterrupt)
    assert isinstance(publishers.answers["2"], BusError)
    publishers.appender.append(batch("5"))
    assert publishers.store.together[-1] == ["5"]


def test_all_are_told_if_the_store_fails_and_nothing_is_tried_again(
    publishers: Publishers,
) -> None:
    """It may have happened or not: whoever repeats it might append twice."""
    publishers.start_while_busy(batch("1"), batch("2", "lost"), batch("3"))
    assert all(isinstance(publishers.answers[name], StoreError) for name in "123")
    assert publishers.store.together == [["0"]]


class Stop(BaseException):
    """Comes between two steps of a thread, as Ctrl-C does."""


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_an_interrupted_publisher_leaves_nobody_waiting(publishers: Publishers, place: int) -> None:
    """The one that writes, the one that is to write next, or one of those that wait for it."""
    publishers.interrupt(place)
    publishers.start_while_busy(batch("1"), batch("2"), batch("3"))
    names = ["first", "1", "2", "3"]
    assert isinstance(publishers.answers[names[place]], Stop)
    others = [publishers.answers[name] for n, name in enumerate(names) if n != place]
    assert all(isinstance(answer, list) for answer in others)
    assert publishers.appender.append(batch("5"))

"""Publishers that share a transaction: each gets its own answer, also when things go wrong."""

import threading
from collections.abc import Sequence

import pytest

from dagster_bus.core.appending import MOST_EVENTS, Appender, _Request
from dagster_bus.core.event import Batch, Published
from dagster_bus.errors import BusError, UnknownTopic
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


def test_an_interrupted_writer_leaves_nobody_waiting(publishers: Publishers) -> None:
    publishers.start_while_busy(batch("1", "stop"), batch("2"))
    assert isinstance(publishers.answers["1"], KeyboardInterrupt)
    assert isinstance(publishers.answers["2"], BusError)
    publishers.appender.append(batch("5"))
    assert publishers.store.together[-1] == ["5"]


def test_a_publisher_that_gives_up_waiting_is_left_out(publishers: Publishers) -> None:
    """Ctrl-C reaches it while it queues, or while it is being written for."""
    appender = publishers.appender
    before, request, after = (_Request(batch(text)) for text in "123")
    request.woken = _NeverWoken()  # type: ignore[assignment]
    appender._queue = [before, request, after]
    with pytest.raises(KeyboardInterrupt):
        appender._wait(request)
    assert appender._queue == [before, after]
    before.next, request.next = request, after
    appender._wake(before.next)
    assert not after.woken.locked()


def test_a_publisher_that_gives_up_when_it_was_just_woken_wakes_the_next(
    publishers: Publishers,
) -> None:
    appender = publishers.appender
    request, following = _Request(batch("1")), _Request(batch("2"))
    request.next = following
    request.woken = _Woken()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        appender._wait(request)
    assert not following.woken.locked()


def test_a_publisher_that_gives_up_when_it_was_called_to_write_hands_that_on(
    publishers: Publishers,
) -> None:
    appender = publishers.appender
    request, following = _Request(batch("1")), _Request(batch("2"))
    appender._busy = True
    appender._queue = [request, following]
    request.woken = _Woken()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        appender._wait(request)
    assert appender._queue == [following]
    assert not following.woken.locked()


class _Woken:
    """A lock that was released for a thread to which Ctrl-C came first."""

    def acquire(self) -> None:
        raise KeyboardInterrupt

    def locked(self) -> bool:
        return False


class _NeverWoken(_Woken):
    """A lock that was not released yet."""

    def locked(self) -> bool:
        return True

    def release(self) -> None:
        raise AssertionError("nobody waits here any more")

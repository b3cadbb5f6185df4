"""Stints and the hands that do them: watched, overdue, taken back, given up."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from dagster_bus.core.event import Event
from dagster_bus.live.crew import QUICK_S, Crew, is_async
from dagster_bus.live.errands import Errands
from dagster_bus.live.errors import HandlerTimeout
from dagster_bus.live.hands import Hands
from dagster_bus.live.jobs import Ended, Job, in_words
from dagster_bus.live.loop import LoopThread
from dagster_bus.live.stint import Stint
from tests.unit.test_live_lanes import jobs, offsets

LONG_S = 60.0


def stint_of(count: int) -> Stint:
    return Stint(jobs(*["k"] * count), threading.Event())


def begun(stint: Stint) -> Job:
    job = stint.begin()
    assert job is not None
    return job


def test_a_stint_ends_with_its_last_job() -> None:
    stint = stint_of(2)
    for _ in range(2):
        assert stint.end(begun(stint), None)
    assert stint.begin() is None
    assert stint.is_over
    assert [ended.error for ended in stint.collect()] == [None, None]
    assert stint.collect() == []


def test_a_stint_ends_with_the_first_job_that_fails() -> None:
    stint = stint_of(3)
    stint.end(begun(stint), None)
    stint.end(begun(stint), ValueError("bad"))
    assert stint.begin() is None
    assert [type(ended.error) for ended in stint.collect()] == [type(None), ValueError]
    assert offsets(stint.take_back()) == [3]


def test_what_is_said_of_a_job_that_was_given_up_is_not_heard() -> None:
    stint = stint_of(2)
    job = begun(stint)
    assert stint.give_up(begun_before_s=time.monotonic() - LONG_S) is None
    assert stint.give_up(time.monotonic()) is job
    assert not stint.end(job, None)
    assert (stint.collect(), stint.begin()) == ([], None)


def test_a_halted_stint_begins_nothing_more() -> None:
    halted = threading.Event()
    stint = Stint(jobs("a", "b"), halted)
    job = begun(stint)
    halted.set()
    stint.end(job, None)
    assert stint.begin() is None
    assert offsets(stint.take_back()) == [2]


class Bell:
    """Rings, and can be waited for."""

    def __init__(self) -> None:
        self._rung = threading.Event()

    def ring(self) -> None:
        self._rung.set()

    def wait(self) -> None:
        self._rung.wait(0.05)
        self._rung.clear()


@pytest.fixture
def bell() -> Bell:
    return Bell()


MakeCrew = Callable[..., Crew]


@pytest.fixture
def make_crew(bell: Bell) -> Iterator[MakeCrew]:
    hands, loop = Hands(), LoopThread()

    def make(handler: Callable[[Event], object], timeout_s: float = LONG_S, most: int = 1) -> Crew:
        return Crew(
            "s", handler, timeout_s=timeout_s, most=most, ring=bell.ring, hands=hands, loop=loop
        )

    yield make
    hands.close()
    loop.close()


def collect(crew: Crew, bell: Bell, count: int) -> tuple[list[Ended], list[Job]]:
    """What has ended, as soon as so many have, and the crew is idle."""
    deadline = time.monotonic() + LONG_S
    ended, left = crew.collect()
    while len(ended) < count or not crew.is_idle:
        assert time.monotonic() < deadline
        bell.wait()
        more, again = crew.collect()
        ended, left = [*ended, *more], [*left, *again]
    return ended, left


def test_a_crew_does_jobs_and_says_what_came_of_them(make_crew: MakeCrew, bell: Bell) -> None:
    def handler(event: Event) -> None:
        if event.offset == 2:
            raise ValueError("bad")

    crew = make_crew(handler)
    crew.start(jobs("a", "b", "c"))
    assert not crew.is_free
    ended, left = collect(crew, bell, 2)
    assert [type(each.error).__name__ for each in ended] == ["NoneType", "ValueError"]
    assert offsets(left) == [3]
    assert crew.is_free


def test_a_thread_that_overruns_is_replaced_and_comes_back_for_nothing(
    make_crew: MakeCrew, bell: Bell
) -> None:
    may_go_on, done = threading.Event(), threading.Event()

    def handler(event: Event) -> None:
        if event.offset == 1:
            may_go_on.wait(LONG_S)
            done.set()

    crew = make_crew(handler, timeout_s=0.05)
    first, second = jobs("a", "b")
    crew.start([first])
    ended, _ = collect(crew, bell, 1)
    assert isinstance(ended[0].error, HandlerTimeout)
    assert isinstance(ended[0].error, TimeoutError)
    crew.start([second])
    ended, _ = collect(crew, bell, 1)
    assert ended == [Ended(second, None)]
    may_go_on.set()
    assert done.wait(LONG_S)
    bell.wait()
    assert crew.collect() == ([], [])


def test_an_asynchronous_handler_that_overruns_is_cancelled(
    make_crew: MakeCrew, bell: Bell
) -> None:
    import asyncio

    cancelled = threading.Event()

    async def handler(event: Event) -> None:
        try:
            await asyncio.sleep(LONG_S)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    crew = make_crew(handler, timeout_s=0.05)
    crew.start(jobs("a"))
    ended, _ = collect(crew, bell, 1)
    assert isinstance(ended[0].error, HandlerTimeout)
    assert cancelled.wait(LONG_S)


def test_a_function_that_returns_something_to_await_is_waited_for(
    make_crew: MakeCrew, bell: Bell
) -> None:
    async def work(offset: int) -> None:
        raise ValueError(f"bad {offset}")

    crew = make_crew(lambda event: work(event.offset))
    crew.start(jobs("a"))
    ended, _ = collect(crew, bell, 1)
    assert str(ended[0].error) == "bad 1"


def test_what_was_given_out_can_be_abandoned(make_crew: MakeCrew, bell: Bell) -> None:
    at_work, may_go_on = threading.Event(), threading.Event()

    def handler(event: Event) -> None:
        if event.offset == 2:
            at_work.set()
            may_go_on.wait(LONG_S)

    crew = make_crew(handler)
    crew.start(jobs("a", "b", "c"))
    assert at_work.wait(LONG_S)
    ended, left = crew.abandon()
    assert [each.job.event.offset for each in ended] == [1]
    assert sorted(offsets(left)) == [2, 3]
    assert crew.is_idle
    may_go_on.set()


def test_kinds_of_handlers_are_told_apart() -> None:
    class Called:
        async def __call__(self, event: Event) -> None: ...

    async def function(event: Event) -> None: ...

    assert is_async(Called())
    assert is_async(function)
    assert not is_async(print)


def test_an_error_that_cannot_be_read_has_words_too() -> None:
    class Unreadable(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert in_words(Unreadable()) == "(its message cannot be read: RuntimeError)"


def test_errands_are_run_in_order_and_to_the_end() -> None:
    errands = Errands()
    done: list[int] = []
    for n in range(5):
        errands.run(lambda n=n: done.append(n))  # type: ignore[misc]
    errands.close()
    assert done == [0, 1, 2, 3, 4]
    assert errands.is_idle


def test_quick_tasks_are_done_in_order_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagster_bus.live.hands.PATIENCE_S", LONG_S)
    hands, done = Hands(), threading.Event()
    seen: list[tuple[int, int]] = []

    def give_all() -> None:
        for n in range(50):
            hands.give_quick(lambda n=n: seen.append((n, threading.get_ident())))  # type: ignore[misc]
        hands.give_quick(done.set)

    hands.give_quick(give_all)
    assert done.wait(LONG_S)
    hands.close()
    assert [n for n, _ in seen] == list(range(50))
    assert len({thread for _, thread in seen}) == 1


def test_what_waits_behind_slow_tasks_is_done_by_others_and_goes_on_being_quick() -> None:
    hands, may_go_on = Hands(), threading.Event()

    def be_slow() -> None:
        may_go_on.wait(LONG_S)

    for _ in range(20):
        hands.give_quick(be_slow)
    for _ in range(3):  # the stuck ones are not counted on any more
        done = threading.Event()
        hands.give_quick(done.set)
        assert done.wait(LONG_S)
    may_go_on.set()
    hands.close()


def test_each_task_that_is_given_at_once_has_a_thread_for_itself() -> None:
    hands, all_there = Hands(), threading.Barrier(5, timeout=LONG_S)

    def meet() -> None:
        all_there.wait()

    for _ in range(4):
        hands.give(meet)
    meet()
    hands.close()


def test_a_handler_that_takes_its_time_has_a_thread_for_itself_afterwards(bell: Bell) -> None:
    given: list[str] = []

    class Watched(Hands):
        def give(self, task: Callable[[], None]) -> None:
            given.append("own")
            super().give(task)

        def give_quick(self, task: Callable[[], None]) -> None:
            given.append("common")
            super().give_quick(task)

    hands, loop, pause = Watched(), LoopThread(), threading.Event()

    def handler(event: Event) -> None:
        if event.key == "slow":
            pause.wait(2 * QUICK_S)

    crew = Crew("s", handler, timeout_s=LONG_S, most=1, ring=bell.ring, hands=hands, loop=loop)
    quick, slow = jobs("quick", "slow")
    for _ in range(100):  # a busy machine may make it look slow now and then
        crew.start([quick])
        collect(crew, bell, 1)
        if given[-1] == "common":
            break
    for job in (slow, quick):
        crew.start([job])
        collect(crew, bell, 1)
    hands.close()
    assert given[0] == "own"
    assert "common" in given
    assert given[-1] == "own"

"""Jobs that wait for a handler, in lanes: of each lane one at a time, in the order they came.

What a lane is, the group's order says. Nothing here knows of threads: one owner asks.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable

from dagster_bus.core.event import Event
from dagster_bus.core.group_config import Order
from dagster_bus.live.jobs import Job

LaneOf = Callable[[Event], Hashable | None]
"""The lane of an event; None if it waits for no other."""


def lanes_by(order: Order) -> LaneOf:
    """How a group's order sorts events into lanes."""
    if order is Order.PARTITION:
        return lambda event: (event.topic, event.partition)
    if order is Order.KEY:
        return lambda event: (
            None if event.key is None else (event.topic, event.partition, event.key)
        )
    return lambda _: None


def lanes_by_topic(event: Event) -> Hashable:
    return event.topic


class Lanes:
    """Jobs that were not begun. Two jobs of a lane are never out at once, unless whoever takes
    them does all of them one after the other."""

    def __init__(self, lane_of: LaneOf, *, in_a_row: bool = False) -> None:
        self._lane_of = lane_of
        self._in_a_row = in_a_row
        self._queues: dict[Hashable, deque[Job]] = {}
        self._ready: OrderedDict[Hashable, None] = OrderedDict()
        self._out: Counter[Hashable] = Counter()
        """How many jobs of each lane were taken and are not over."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, jobs: Iterable[Job]) -> None:
        """Add jobs behind those that are there."""
        for job in jobs:
            lane = self._lane(job)
            self._queues.setdefault(lane, deque()).append(job)
            self._count += 1
            self._make_ready(lane)

    def put_back(self, jobs: Iterable[Job]) -> None:
        """Return jobs that were taken and not begun: they are first again, in their order."""
        for job in reversed([*jobs]):
            lane = self._lane(job)
            self._queues.setdefault(lane, deque()).appendleft(job)
            self._count += 1
            self._come_back(lane)
            self._make_ready(lane)
            if lane in self._ready:
                self._ready.move_to_end(lane, last=False)

    def take(self, most: int) -> list[Job]:
        """The next jobs, so many at most; each is out until it is put back or released."""
        taken: list[Job] = []
        while self._ready and len(taken) < most:
            lane, _ = self._ready.popitem(last=False)
            queue = self._queues[lane]
            taken.append(queue.popleft())
            self._count -= 1
            self._out[lane] += 1
            if not queue:
                del self._queues[lane]
            self._make_ready(lane)
        return taken

    def release(self, job: Job) -> None:
        """A job that was taken is over: the next one of its lane may be taken."""
        lane = self._lane(job)
        self._come_back(lane)
        self._make_ready(lane)

    def take_behind(self, job: Job) -> list[Job]:
        """Take out what may not be done before a job: the rest of its lane, of its delivery."""
        return self._take_out(self._lane(job), lambda other: other.delivery == job.delivery)

    def drop(self, delivery: str) -> list[Job]:
        """Take out all jobs of a delivery."""
        return [
            job
            for lane in [*self._queues]
            for job in self._take_out(lane, lambda other: other.delivery == delivery)
        ]

    def drain(self) -> list[Job]:
        """Take out all jobs of the lanes of which none is out."""
        free = [lane for lane in self._queues if lane not in self._out]
        return [job for lane in free for job in self._take_out(lane, lambda _: True)]

    def _make_ready(self, lane: Hashable) -> None:
        if lane in self._queues and (self._in_a_row or lane not in self._out):
            self._ready[lane] = None

    def _come_back(self, lane: Hashable) -> None:
        self._out[lane] -= 1
        if self._out[lane] <= 0:
            del self._out[lane]

    def _lane(self, job: Job) -> Hashable:
        lane = self._lane_of(job.event)
        return job.place if lane is None else lane

    def _take_out(self, lane: Hashable, chosen: Callable[[Job], bool]) -> list[Job]:
        queue = self._queues.get(lane, deque())
        out = [job for job in queue if chosen(job)]
        left = deque(job for job in queue if not chosen(job))
        self._count -= len(out)
        if left:
            self._queues[lane] = left
        else:
            self._queues.pop(lane, None)
            self._ready.pop(lane, None)
        return out

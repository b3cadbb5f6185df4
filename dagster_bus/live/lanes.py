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
        self._ready: OrderedDict[Hashable, Job | None] = OrderedDict()
        """Lanes whose first job may be taken, and jobs that have no lane."""
        self._out: Counter[Hashable] = Counter()
        """How many jobs of each lane were taken and are not over."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, jobs: Iterable[Job]) -> None:
        """Add jobs behind those that are there."""
        for job in jobs:
            lane = self._lane_of(job.event)
            self._count += 1
            if lane is None:
                self._ready[job.place, job.delivery] = job
                continue
            self._queues.setdefault(lane, deque()).append(job)
            self._make_ready(lane)

    def put_back(self, jobs: Iterable[Job]) -> None:
        """Return jobs that were taken and not begun: they are first again, in their order."""
        for job in reversed([*jobs]):
            lane = self._lane_of(job.event)
            self._count += 1
            if lane is None:
                self._ready[job.place, job.delivery] = job
                self._ready.move_to_end((job.place, job.delivery), last=False)
                continue
            self._queues.setdefault(lane, deque()).appendleft(job)
            self._come_back(lane)
            self._make_ready(lane)
            if lane in self._ready:
                self._ready.move_to_end(lane, last=False)

    def take(self, most: int) -> list[Job]:
        """The next jobs, so many at most; each is out until it is put back or released."""
        taken: list[Job] = []
        while self._ready and len(taken) < most:
            lane, job = self._ready.popitem(last=False)
            taken.append(self._first_of(lane) if job is None else job)
        self._count -= len(taken)
        return taken

    def release(self, job: Job) -> None:
        """A job that was taken is over: the next one of its lane may be taken."""
        lane = self._lane_of(job.event)
        if lane is not None:
            self._come_back(lane)
            self._make_ready(lane)

    def take_behind(self, job: Job) -> list[Job]:
        """Take out what may not be done before a job: the rest of its lane, of its delivery."""
        lane = self._lane_of(job.event)
        if lane is None:
            return []
        return self._take_out(lane, lambda other: other.delivery == job.delivery)

    def drop(self, delivery: str) -> list[Job]:
        """Take out all jobs of a delivery."""
        return self._take_out_of([*self._queues], lambda other: other.delivery == delivery)

    def drain(self) -> list[Job]:
        """Take out all jobs of the lanes of which none is out."""
        idle = [lane for lane in self._queues if lane not in self._out]
        return self._take_out_of(idle, lambda _: True)

    def _first_of(self, lane: Hashable) -> Job:
        queue = self._queues[lane]
        job = queue.popleft()
        self._out[lane] += 1
        if not queue:
            del self._queues[lane]
        self._make_ready(lane)
        return job

    def _make_ready(self, lane: Hashable) -> None:
        if lane in self._queues and (self._in_a_row or lane not in self._out):
            self._ready[lane] = None

    def _come_back(self, lane: Hashable) -> None:
        self._out[lane] -= 1
        if self._out[lane] <= 0:
            del self._out[lane]

    def _take_out_of(self, lanes: Iterable[Hashable], chosen: Callable[[Job], bool]) -> list[Job]:
        """Take some jobs out of some lanes, and of those that have none."""
        free = [job for job in self._ready.values() if job is not None and chosen(job)]
        for job in free:
            del self._ready[job.place, job.delivery]
        self._count -= len(free)
        return [*free, *(job for lane in lanes for job in self._take_out(lane, chosen))]

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

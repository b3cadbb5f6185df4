"""What a worker knows of its group for a moment, without looking again. Pure.

After a step of its own a worker knows how the group stands, as long as nobody else works for it.
Whether somebody does, the commit of its next step finds out: taking events moves the group's
version, and a report the delivery's. What changes neither, such as a letter that is sent back, is
seen a little later.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count

from dagster_bus.core.delivery import Delivery
from dagster_bus.core.stepping import Step
from dagster_bus.core.store import GroupView, PartitionHead
from dagster_bus.core.topic import TopicPartition

TRUSTED_MS = 400
"""How long a worker goes on without looking, at most."""

_TURNS = count()
_APART = 0.618
"""Workers look at different moments, as several at once would hold up each other: so far apart, in
parts of that time, each two that began one after the other. Any number of them are well spread."""

Ends = Mapping[TopicPartition, int]

TimeOf = Callable[[TopicPartition, int, int], int | None]
"""The append time of the first of some events of a partition: from an offset, to below another."""


class Outlook:
    """The last view of a group, with all that this worker has done since."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._view: GroupView | None = None
        self._phase_ms = int(next(_TURNS) * _APART % 1 * TRUSTED_MS)
        self.seen_ms = 0

    def saw(self, view: GroupView, now_ms: int) -> None:
        """The group was looked at."""
        self._view = view if self._is_alone(view) else None
        self.seen_ms = now_ms

    def did(self, step: Step) -> None:
        """A step of this worker was written."""
        if self._view is not None and step.taken is not None:
            self._view = after(self._view, step.left, step.taken)

    def forget(self) -> None:
        """Something happened that this does not keep account of."""
        self._view = None

    def at(self, ask_ends: Callable[[], Ends], now_ms: int, time_of: TimeOf) -> GroupView | None:
        """How the group stands now that the log has such ends; None if that has to be looked up."""
        view = self._view
        if view is None or not self.seen_ms <= now_ms < self._next_look_ms:
            return None
        ends = ask_ends()
        heads = []
        for head in view.heads:
            end = ends.get(head.partition, head.end)
            ts = time_of(head.partition, head.frontier, end) if end > head.frontier else None
            if end > head.frontier and ts is None:
                return None
            if (end, ts) != (head.end, head.frontier_ts):
                at, frontier, owner = head.partition, head.frontier, head.owner
                head = PartitionHead(at, frontier, end, ts, head.is_new, head.is_held, owner)
            heads.append(head)
        return _alone(view, view.version, heads, view.in_flight)

    @property
    def _next_look_ms(self) -> int:
        return self.seen_ms + TRUSTED_MS - (self.seen_ms + self._phase_ms) % TRUSTED_MS

    def _is_alone(self, view: GroupView) -> bool:
        return (
            not view.blocked
            and not view.due
            and all(each.worker == self._worker for each in view.in_flight)
        )


def after(view: GroupView, left: Sequence[Delivery], taken: Delivery) -> GroupView:
    """A view of the group after a step."""
    told = {each.id for each in left}
    others = (each for each in view.in_flight if each.id not in told)
    ours = (each for each in left if each.in_flight)
    return _alone(view, view.version + 1, _moved(view.heads, taken), (*others, *ours, taken))


def _alone(
    view: GroupView, version: int, heads: Iterable[PartitionHead], in_flight: tuple[Delivery, ...]
) -> GroupView:
    """The view of a worker that is alone, later on: nothing is due then, or blocked. (To replace
    fields one by one would take several times as long, and this is done for every few events.)"""
    return GroupView(version, tuple(heads), in_flight, (), view.tally, view.breaker)


def _moved(heads: Iterable[PartitionHead], taken: Delivery) -> Iterable[PartitionHead]:
    ends = {TopicPartition(part.topic, part.partition): part.last + 1 for part in taken.ranges}
    for head in heads:
        end = ends.get(head.partition)
        if end is None:
            yield head
        else:
            yield PartitionHead(head.partition, end, head.end, None, False, True, taken.worker)

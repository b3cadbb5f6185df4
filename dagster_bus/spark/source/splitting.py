"""Which events each task reads. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from dagster_bus.core.ranges import count
from dagster_bus.core.store import Bounds
from dagster_bus.core.topic import OffsetRange, TopicPartition
from dagster_bus.stores.arrow import pieces

Task = tuple[OffsetRange, ...]

PIECE = 20_000
"""Events in one task: large enough to be worth starting, small enough to occupy all cores."""

LARGE_PIECE = 100_000
MANY_TASKS = 32
"""With so many tasks all cores are busy; larger tasks spare starting still more of them."""

TASK_BYTES = 64 << 20
"""About what the events of one task come to, at most."""


def split(
    ranges: Sequence[OffsetRange],
    *,
    least_tasks: int = 1,
    event_bytes: Mapping[TopicPartition, float] | None = None,
) -> list[Task]:
    """The events of ranges, in tasks. A long range is cut; short ones share a task."""
    total = count(ranges)
    most = min(max(PIECE, total // MANY_TASKS), LARGE_PIECE, max(total // least_tasks, 1))
    weighed = []
    for span in ranges:
        fitting = _events_in(TASK_BYTES, span, event_bytes or {}, most)
        weighed += [(piece, len(piece) / fitting) for piece in pieces([span], fitting)]
    return list(_packed(weighed))


def mean_bytes(bounds: Mapping[TopicPartition, Bounds]) -> dict[TopicPartition, float]:
    """How large events are, by all that were ever appended."""
    return {at: each.appended_bytes / (each.end - 1) for at, each in bounds.items() if each.end > 1}


def _events_in(
    budget: int, span: OffsetRange, event_bytes: Mapping[TopicPartition, float], most: int
) -> int:
    size = event_bytes.get(TopicPartition(span.topic, span.partition), 0)
    return most if size * most <= budget else max(int(budget / size), 1)


def _packed(weighed: Iterable[tuple[OffsetRange, float]]) -> Iterable[Task]:
    """Neighbours together, as long as their shares are no more than one task."""
    task: list[OffsetRange] = []
    filled = 0.0
    for piece, share in weighed:
        if task and filled + share > 1:
            yield tuple(task)
            task, filled = [], 0.0
        task.append(piece)
        filled += share
    if task:
        yield tuple(task)

"""How far a group is behind: its account, and partition by partition what it has not settled."""

from dataclasses import dataclass

from dagster_bus.core.bus import Bus
from dagster_bus.core.groups import Group
from dagster_bus.core.store import Bounds, GroupProgress
from dagster_bus.core.topic import TopicPartition


@dataclass(frozen=True, slots=True)
class Behind:
    """One partition. Up to its cursor the group has settled every event."""

    at: TopicPartition
    end: int
    cursor: int
    oldest_ts: int | None
    """When the first event after the cursor was published, if there is one."""

    @property
    def lag(self) -> int:
        return max(0, self.end - 1 - self.cursor)


@dataclass(frozen=True, slots=True)
class Standing:
    """A group at one moment."""

    progress: GroupProgress
    partitions: tuple[Behind, ...]

    @property
    def lag(self) -> int:
        """Events that are not settled, those under way included."""
        return self.progress.lag

    def age_ms(self, now_ms: int) -> int:
        """How long the oldest event that is not settled has been waiting; 0 if none is."""
        oldest = [each.oldest_ts for each in self.partitions if each.oldest_ts is not None]
        return max(0, now_ms - min(oldest)) if oldest else 0


def standing_of(bus: Bus, group: Group) -> Standing:
    """The ends are read after the cursors, so that none of these lies beyond its end. In a topic
    that the group does not read any more it is not behind."""
    progress = group.progress()
    topics = set(group.config.topics)
    read = {at: cursor for at, cursor in progress.cursors.items() if at.topic in topics}
    bounds = bus.bounds(*topics) if read else {}
    return Standing(
        progress,
        tuple(
            Behind(at, bounds[at].end, cursor, _oldest_ts(bus, at, cursor, bounds[at]))
            for at, cursor in read.items()
        ),
    )


def _oldest_ts(bus: Bus, at: TopicPartition, cursor: int, bounds: Bounds) -> int | None:
    first = max(cursor + 1, bounds.first)
    if first >= bounds.end:
        return None
    event = next(bus.read(*at, first=first, last=first), None)
    return event.ts if event else None

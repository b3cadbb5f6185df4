"""The seam between the rules and a database.

A store moves events and state atomically and decides nothing. It is never asked to look at a clock:
times are arguments. State is changed in one way only, `commit`, which writes a set of next states
if nothing in it has changed since it was read, and otherwise raises StaleState and writes nothing;
the caller then reads again and decides again. That needs no more than what both a SQLite
transaction and a MongoDB transaction give: conditional updates, all or none.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from dagster_bus.core.delivery import Delivery
from dagster_bus.core.event import Event, NewEvent, Published
from dagster_bus.core.failure import AttemptError
from dagster_bus.core.topic import EventFilter, OffsetRange, TopicConfig, TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionHead:
    """Where a group stands in one partition. Events from `frontier` on were never reserved."""

    partition: TopicPartition
    frontier: int
    end: int
    """The offset that the next event will get."""
    frontier_ts: int | None
    """Append time of the event at the frontier; None if there is none yet."""

    @property
    def waiting(self) -> int:
        return self.end - self.frontier


@dataclass(frozen=True, slots=True)
class Tally:
    """How a group's events ended."""

    processed: int = 0
    filtered: int = 0
    dead_lettered: int = 0

    @property
    def settled(self) -> int:
        return self.processed + self.filtered + self.dead_lettered


@dataclass(frozen=True, slots=True)
class GroupView:
    """All that is needed to decide a group's next step, read at one moment."""

    version: int
    heads: tuple[PartitionHead, ...]
    in_flight: tuple[Delivery, ...]
    due: tuple[Delivery, ...]
    """Waiting deliveries whose wait is over, longest waiting first; a bounded number of them."""
    tally: Tally


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """A group's account for people: nothing is missing when these add up."""

    published: int
    tally: Tally
    reserved: int
    running: int
    waiting: int
    """Events inside deliveries of each state."""
    cursors: Mapping[TopicPartition, int]
    """Before each partition's oldest event that is not settled."""

    @property
    def lag(self) -> int:
        return self.published - self.tally.settled


@dataclass(frozen=True, slots=True)
class Burial:
    """A delivery whose events become dead letters of its group, but for those that the group does
    not want: they are filtered, whatever became of the rest."""

    delivery: Delivery
    wanted: EventFilter
    fingerprint: str
    died_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Next states of one group, to be written together or not at all."""

    group: str
    frontiers: Mapping[TopicPartition, int] = field(default_factory=dict)
    expected_version: int | None = None
    """The group's version that the frontiers were decided on; required to move them."""
    deliveries: tuple[Delivery, ...] = ()
    """Each at a version one above the stored one; version 1 is new."""
    burials: tuple[Burial, ...] = ()
    done: Tally = field(default_factory=Tally)
    """Added to the group's account, beside what the burials come to."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that a group gave up on, with its whole story."""

    id: int
    group: str
    delivery: str
    event: Event
    errors: tuple[AttemptError, ...]
    fingerprint: str
    died_ms: int


class Store(Protocol):
    """What the bus needs of a database. Every verb is one atomic step."""

    def declare(self, topics: Sequence[TopicConfig]) -> None:
        """Make the partitions of the topics that are new; all or none.

        Raises PartitionCountChanged, and changes nothing, if a known topic has another number."""

    def topics(self) -> list[TopicConfig]:
        """The topics that have partitions here, by name."""

    def append(self, events: Sequence[NewEvent], now_ms: int) -> list[Published]:
        """Add events to the ends of their partitions: all of them, durably, or none.

        Offsets are dense, and no reader sees one before all lower ones. A partition's time never
        decreases: an event gets `now_ms`, or its predecessor's time if that is later. Raises
        UnknownTopic if a partition was never declared."""

    def read(self, span: OffsetRange, limit: int) -> list[Event]:
        """The first `limit` events of a range, in order."""

    def offsets_at(
        self, partitions: Sequence[TopicPartition], ts_ms: int
    ) -> dict[TopicPartition, int]:
        """For each partition the offset of its first event at or after a time, or its end."""

    def view(self, group: str, topics: Sequence[str], *, now_ms: int, due_limit: int) -> GroupView:
        """A consistent view of a group. A group never seen before stands before every event.

        Takes a constant number of queries, whatever the length of the log."""

    def progress(self, group: str, topics: Sequence[str]) -> GroupProgress:
        """A consistent account of a group."""

    def delivery(self, id: str) -> Delivery:
        """One delivery. Raises UnknownDelivery."""

    def commit(self, change: Change) -> None:
        """Write a change as a whole; raise StaleState, and write nothing, if any state in it is
        not the direct successor of the stored one. Dead letters are copies of the log's events."""

    def dead_letters(self, group: str, *, limit: int, before: int | None) -> list[DeadLetter]:
        """A group's dead letters, newest first, from below id `before`."""

    def dead_letter_counts(self, group: str) -> dict[str, int]:
        """How many dead letters a group has, by fingerprint."""

    def iterate(self, span: OffsetRange) -> Iterator[Event]:
        """All events of a range, in order, in bounded memory."""

    def close(self) -> None:
        """Give back what the store holds. Harmless when repeated."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

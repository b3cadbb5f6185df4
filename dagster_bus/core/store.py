"""The seam between the rules and a database.

A store moves events and state atomically and decides nothing. It is never asked to look at a clock:
times are arguments. State is changed in one way only, `commit`, which writes a set of next states
if nothing in it has changed since it was read, and otherwise raises StaleState and writes nothing;
the caller then reads again and decides again. That needs no more than what both a SQLite
transaction and a MongoDB transaction give: conditional updates, all or none.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Protocol, Self

from dagster_bus.core.breaker import Breaker
from dagster_bus.core.delivery import Delivery, Outcome, State
from dagster_bus.core.event import Batch, Event, Published
from dagster_bus.core.failure import AttemptError
from dagster_bus.core.ranges import Place
from dagster_bus.core.topic import EventFilter, OffsetRange, TopicConfig, TopicPartition
from dagster_bus.errors import BusError

PAGE_EVENTS = 5_000
PAGE_BYTES = 16 << 20
LEAST_EVENTS = 50
"""What is held at once of a long range: so many events, of about so many bytes, and at least one.
Readers that share this get fewer, but not so few that most of the time is spent on asking."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a partition holds: offsets from `first` to below `end`."""

    first: int
    """The first offset that was not trimmed away; equal to `end` if nothing is left."""
    end: int
    """The offset that the next event will get."""
    last_ts: int
    """Time of the newest event ever appended; 0 before the first."""
    appended_bytes: int
    """Sizes of all events ever appended, added up."""
    compacted_to: int
    """Compaction has looked at offsets up to here: among them, and only there, some may be gone."""


@dataclass(frozen=True, slots=True)
class CompactionStep:
    """What one step of compaction did."""

    compacted_to: int
    removed: int


@dataclass(frozen=True, slots=True)
class PartitionHead:
    """Where a group stands in one partition. Events from `frontier` on were never reserved; what
    was trimmed before the group first came lies before its frontier."""

    partition: TopicPartition
    frontier: int
    end: int
    """The offset that the next event will get."""
    frontier_ts: int | None
    """Append time of the event at the frontier; None if there is none yet."""
    is_new: bool = False
    """The group has never taken an event of this partition, nor been sent to a place in it."""
    is_held: bool = False
    """An open delivery of the group has events of this partition."""
    owner: str | None = None
    """The worker that took the last new events of this partition, if it was one that stays."""

    @property
    def waiting(self) -> int:
        return self.end - self.frontier


@dataclass(frozen=True, slots=True)
class Tally:
    """How a group's events ended."""

    processed: int = 0
    filtered: int = 0
    dead_lettered: int = 0
    expired: int = 0
    """Their time to live was over before the group came to them."""

    @property
    def settled(self) -> int:
        return self.processed + self.filtered + self.dead_lettered + self.expired

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.processed + other.processed,
            self.filtered + other.filtered,
            self.dead_lettered + other.dead_lettered,
            self.expired + other.expired,
        )


@dataclass(frozen=True, slots=True)
class GroupView:
    """All that is needed to decide a group's next step, read at one moment."""

    version: int
    heads: tuple[PartitionHead, ...]
    in_flight: tuple[Delivery, ...]
    due: tuple[Delivery, ...]
    """Waiting deliveries whose wait is over, longest waiting first; a bounded number of them."""
    tally: Tally
    breaker: Breaker = field(default_factory=Breaker)
    blocked: int = 0
    """Deliveries that keep the group from going on."""


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """A group's account for people: nothing is missing when these add up."""

    published: int
    """Events since the group's beginning: what had been trimmed by then does not count."""
    tally: Tally
    reserved: int
    running: int
    waiting: int
    blocked: int
    """Events inside deliveries of each state."""
    cursors: Mapping[TopicPartition, int]
    """Before each partition's oldest event that is not settled."""

    @property
    def lag(self) -> int:
        return self.published - self.tally.settled


@dataclass(frozen=True, slots=True)
class Burial:
    """A delivery whose events become dead letters of its group, but for those that the group does
    not want, or whose time to live is over: they are counted as such, whatever became of the rest.
    """

    delivery: Delivery
    """Done, and dead-lettered: its errors are the story of each of the letters."""
    wanted: EventFilter
    fingerprint: str
    died_ms: int
    mirrors: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The topics whose letters are also appended to mirrors, as `mirroring` says."""


@dataclass(frozen=True, slots=True)
class Redrive:
    """A dead letter that goes back to its group, as one of the events of a redriven delivery."""

    letter: int
    payload: str | None = None
    """JSON text that takes the place of the payload; None leaves it as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Next states of one group, to be written together or not at all."""

    group: str
    frontiers: Mapping[TopicPartition, int] = field(default_factory=dict)
    expected_version: int | None = None
    """The group's version that this was decided on, which goes one up; required to move frontiers.
    Version 0 is that of a group that is not there yet."""
    taker: str | None = None
    """Who takes the events that frontiers are moved over, if that is one who will come for more."""
    shifts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """By how much the place where the group began is moved with the frontier, in a partition that
    the group is sent to a place in: what it skips is not its own, what it reads again counts
    again. Only for partitions among the frontiers."""
    deliveries: tuple[Delivery, ...] = ()
    """Each at a version one above the stored one; version 1 is new. Their ranges may differ from
    the stored ones."""
    burials: tuple[Burial, ...] = ()
    redrives: tuple[Redrive, ...] = ()
    """Letters of the group that are dead now, and redriven afterwards."""
    done: Tally = field(default_factory=Tally)
    """Added to the group's account, beside what the burials come to."""
    breaker: tuple[Breaker, Breaker] | None = None
    """The circuit breaker's state that this was decided on, and its next one, if it changes."""
    told: tuple[Batch, ...] = ()
    """Events that are appended together with the change, at `told_ms`: what a group's work has
    given, and what the bus tells of itself."""
    told_ms: int = 0
    lasting: bool = True
    """It must survive a power cut. One that need not may be undone by it, together with all that
    came after it; a store may write it faster."""

    def forgets(self, delivery: Delivery) -> bool:
        """Whether a delivery is not kept, now that it is done. What need not survive a power cut is
        nothing that anybody asks for later, but for the story of its dead letters."""
        is_done = delivery.state is State.DONE
        return is_done and not self.lasting and delivery.outcome is not Outcome.DEAD_LETTERED


class LetterState(StrEnum):
    DEAD = "dead"
    REDRIVEN = "redriven"


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
    state: LetterState = LetterState.DEAD
    patched: str | None = None
    """The payload that it was sent back with, as JSON text, if that is another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterQuery:
    """Which dead letters of a group are meant. What is None is not asked for."""

    group: str
    state: LetterState | None = LetterState.DEAD
    fingerprint: str | None = None
    topic: str | None = None
    died_from_ms: int | None = None
    died_before_ms: int | None = None
    ids: tuple[int, ...] | None = None


class Listener(Protocol):
    """Wakes a reader that has read all there is."""

    def wait(self, timeout_s: float) -> bool:
        """Return as soon as something may have been appended since the listener was made or last
        returned, and say so; or False after the time-out. It may wake for nothing, never too late:
        within 20 ms, without keeping a core busy."""

    def close(self) -> None:
        """Stop listening. Harmless when repeated."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Store(Protocol):
    """What the bus needs of a database. Every verb is one atomic step."""

    def declare(self, topics: Sequence[TopicConfig]) -> None:
        """Make the partitions of the topics that are new, and keep all configurations, so that the
        store can be used without the file that declares them; all or none.

        Raises PartitionCountChanged, and changes nothing, if a known topic has another number."""

    def topics(self) -> list[TopicConfig]:
        """The topics that have partitions here, by name, as last declared."""

    def append(self, batches: Sequence[Batch], now_ms: int) -> list[list[Published]]:
        """Add events to the ends of their partitions: all batches, durably, or none.

        Offsets are dense, and no reader sees one before all lower ones. A partition's time never
        decreases: an event gets `now_ms`, or its own time if that is earlier, or its predecessor's
        if that is later. An event whose idempotency key was given to its topic within the last
        `dedup_ms`, in this batch or before, is not added: its place is the first one's, marked as
        a duplicate. Raises UnknownTopic if a partition was never declared."""

    def bounds(self, topics: Sequence[str]) -> dict[TopicPartition, Bounds]:
        """What each partition of the topics holds, read at one moment, ordered."""

    def read(self, span: OffsetRange, limit: int) -> list[Event]:
        """The first `limit` events of a range, in order; fewer if the log or the range ends.

        Raises OffsetTrimmed if the range begins before the first offset that is available. A
        partition that does not exist has no events."""

    def iterate(self, span: OffsetRange, shared_by: int = 1) -> Iterator[Event]:
        """All events of a range, in order, in bounded memory, of which each of `shared_by` readers
        takes its share. Raises OffsetTrimmed as `read` does, also midway, if the log is trimmed
        faster than it is read."""

    def offsets_at(
        self, partitions: Sequence[TopicPartition], ts_ms: int
    ) -> dict[TopicPartition, int]:
        """For each partition the offset of its first event at or after a time, or its end."""

    def offset_keeping(self, partition: TopicPartition, keep_bytes: int) -> int:
        """The lowest offset from which on the partition's events are of at most so many bytes."""

    def trim(self, partition: TopicPartition, first: int, limit: int) -> int:
        """Delete events below an offset, at most `limit` of them, oldest first; returns how many.

        An event that an open delivery of any group holds stays, and those after it. The first
        available offset becomes `first`, or that of the oldest event below it that is left.
        Offsets are never given again, and the partition's time never goes back, also when nothing
        is left."""

    def compact(
        self, partition: TopicPartition, before: int, tombstones_before_ms: int, limit: int
    ) -> CompactionStep:
        """Look at the next `limit` events after `compacted_to` and below `before`, and delete every
        event whose key one of them has again. A tombstone (null payload) among what was looked at
        so far is deleted itself once its time is before `tombstones_before_ms`. Events without a
        key stay; from the first that an open delivery holds, none is looked at. The cost depends
        on `limit`, not on the log."""

    def listen(self) -> "Listener":
        """Begin to listen for appends by anybody, from this moment on."""

    def view(self, group: str, topics: Sequence[str], *, now_ms: int, due_limit: int) -> GroupView:
        """A consistent view of a group. A group never seen before stands before every event that
        is available.

        Takes a constant number of queries, whatever the length of the log."""

    def progress(self, group: str, topics: Sequence[str]) -> GroupProgress:
        """A consistent account of a group."""

    def delivery(self, id: str) -> Delivery:
        """One delivery. Raises UnknownDelivery."""

    def commit(self, change: Change) -> None:
        """Write a change as a whole; raise StaleState, and write nothing, if any state in it is
        not the direct successor of the stored one. Dead letters are copies of the log's events."""

    def commit_all(self, changes: Sequence[Change]) -> list[BusError | None]:
        """Write some changes, each as a whole or not at all; tells of each why it was not written.
        Where writers take turns, all of it is one turn. If the store itself fails in the middle of
        that, nobody knows which of them were written, and it raises StoreError."""

    @property
    def takes_turns(self) -> bool:
        """Whether one writes at a time, so that nobody gains by asking from several threads."""

    def fitting(self, span: OffsetRange, most_bytes: int) -> tuple[int, int]:
        """The last offset of a range up to which its events are of at most so many bytes, and how
        many these are; the offset before the range if not even the first one fits."""

    def most_urgent(self, spans: Sequence[OffsetRange]) -> int | None:
        """The priority of the most urgent event of some ranges; None if nothing is left of them."""

    def holders(self, group: str, spans: Sequence[OffsetRange]) -> list[tuple[Place, str]]:
        """The events of some ranges with a key that an event of an open delivery of the group has
        too, in the same partition: each with that delivery's id, in the order of their offsets.
        The cost depends on how much the ranges and the open deliveries hold."""

    def deliveries(self, ids: Sequence[str]) -> list[Delivery]:
        """Those of some deliveries that are there."""

    def groups(self) -> list[str]:
        """The names of all groups that have ever reserved, or been sent somewhere, by name."""

    def breaker(self, group: str) -> Breaker:
        """The state of a group's circuit breaker."""

    def open_deliveries(self, group: str, state: State | None = None) -> list[Delivery]:
        """The deliveries of a group that are not done, oldest first; of one state, if one is
        asked for."""

    def dead_letters(
        self, query: LetterQuery, *, limit: int, before: int | None = None
    ) -> list[DeadLetter]:
        """Dead letters of a group, newest first, from below id `before`. Takes as long for a
        million of them as for a few, if a fingerprint or a topic is asked for or nothing."""

    def dead_letter_counts(self, group: str) -> dict[str, int]:
        """How many letters of a group are dead, by fingerprint, most first; without counting."""

    def redriven(self, group: str, spans: Sequence[OffsetRange]) -> list[Event]:
        """The events of a redriven delivery, as they are to be delivered, in order."""

    def purge(self, group: str, died_before_ms: int, limit: int) -> int:
        """Forget letters of a group that died before a time, dead ones and redriven ones that no
        open delivery needs, at most `limit` of them, oldest first; returns how many. The group's
        account still counts them."""

    def close(self) -> None:
        """Give back what the store holds. Harmless when repeated."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

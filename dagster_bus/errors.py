"""Every error the bus raises on purpose.

BusError                       something the bus can explain (exit code 1)
├── UsageError                 the caller asked for something that cannot be (4)
│   ├── SpecError              mistakes in topics.yaml, each with its place
│   ├── InvalidTopicName
│   ├── UnknownTopic
│   ├── UnknownGroup
│   ├── InvalidPayloadError
│   │   └── SchemaMismatch     it is JSON, and not what its topic declares
│   ├── InvalidEvent           an envelope field that cannot be accepted
│   ├── ReplayExists           the name of a replay was given before
│   ├── UnknownEvent           it is not there, or nobody waits for it (3)
│   ├── EventsGone             the log may not have all events of a window any more
│   └── OffsetTrimmed          the log begins later; it says where
├── StoreError                 the store could not do what it was asked
│   ├── StoreNotFound          (2)
│   ├── StoreUnusable          damaged, newer than this program, read-only, full, standalone
│   ├── StoreUnavailable       locked or unreachable now; it may work later
│   ├── PartitionCountChanged
│   └── StaleState             somebody else changed it first; read again and decide again
├── DeliveryError
│   ├── UnknownDelivery
│   ├── UnknownDeadLetter      (3)
│   ├── DeliveriesUnderWay     a group is at work where it is to be sent elsewhere
│   ├── ReservationLost        the work was reserved again for another worker
│   └── LeaseLost              the lease ran out or went to another worker
├── PipelineError              a user's pipeline function or its result is not usable
├── EventRefused               a pipeline or an expectation will not have an event
├── TableError                 a table cannot take what the pipeline produced
│   └── WindowChanged          a delivery came into a window that was to be replaced
├── SparkUnavailable           no session could be opened, so nothing was tried
├── SparkServerError           the warm Spark server can't be started
└── BusClosedError
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self


class BusError(Exception):
    """Something the bus can explain in one message."""

    exit_code = 1


class UsageError(BusError):
    """The request itself is wrong; nothing was changed."""

    exit_code = 4

    index: int | None = None
    """Which of several messages is meant, counted from 0."""
    reason: str | None = None
    """What is wrong with that message."""

    def of_message(self, index: int, count: int) -> Self:
        """The same error of one message among several."""
        told = type(self)(f"message {index + 1} of {count}: {self}")
        told.index, told.reason = index, str(self)
        return told


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a file, with its place (lines and columns count from 1)."""

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.message}"


class SpecError(UsageError):
    """The declarations cannot be used; every mistake found is listed."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda p: (p.file, p.line, p.column)))
        super().__init__("\n".join(str(problem) for problem in self.problems))


class InvalidTopicName(UsageError):
    """The name does not follow the rules for topics."""


class UnknownTopic(UsageError):
    """No such topic is declared."""


class UnknownGroup(UsageError):
    """No such group is declared."""


class InvalidPayloadError(UsageError):
    """The payload is not JSON."""


class SchemaMismatch(InvalidPayloadError):
    """The payload does not fit the schema of its topic, which is strict."""


class InvalidEvent(UsageError):
    """A field of the envelope cannot be accepted."""


class ReplayExists(UsageError):
    """A replay of that name was made before."""


class UnknownEvent(UsageError):
    """No such event, or it is not one that the group still has to do."""

    exit_code = 3


class EventsGone(UsageError):
    """The log may not have all events of a window any more; nothing was changed."""


class OffsetTrimmed(UsageError):
    """The offset was asked for and is no longer in the log."""

    def __init__(self, topic: str, partition: int, asked: int, first: int) -> None:
        self.first = first
        super().__init__(
            f"{topic}/{partition} begins with offset {first}: {asked} was deleted by retention. "
            f"Read from {first} on"
        )


class StoreError(BusError):
    """The store could not do what it was asked."""


class StoreNotFound(StoreError):
    """There is no store at that address."""

    exit_code = 2


class StoreUnusable(StoreError):
    """The store exists and cannot be used as it is."""


class StoreUnavailable(StoreError):
    """The store is locked or out of reach; the same call may go through later."""


class PartitionCountChanged(StoreError):
    """A topic is declared with another number of partitions than its log has."""


class StaleState(StoreError):
    """The state changed between reading it and writing it; nothing was written."""


class DeliveryError(BusError):
    """A delivery is not in the state that the caller believed."""


class UnknownDelivery(DeliveryError):
    """No such delivery."""


class UnknownDeadLetter(DeliveryError):
    """No such dead letter, or it is not dead any more."""

    exit_code = 3


class DeliveriesUnderWay(DeliveryError):
    """The group is at work in the partitions that it is to be sent elsewhere in."""


class ReservationLost(DeliveryError):
    """The work was reserved again, or is done; this worker must not start."""


class LeaseLost(DeliveryError):
    """The lease ran out or went to another worker; this worker must stop."""


class PipelineError(BusError):
    """A pipeline cannot be loaded or returned something that is not a DataFrame."""


class EventRefused(BusError):
    """A pipeline, or what is expected of its rows, refuses a single event."""


class TableError(BusError):
    """A table cannot take what the pipeline produced."""


class WindowChanged(TableError):
    """Something came into a window that was to be replaced; nothing was replaced."""


class SparkUnavailable(BusError):
    """No Spark session could be opened; what it was needed for was not tried."""


class SparkServerError(BusError):
    """The warm Spark server cannot be started or does not answer."""


class BusClosedError(BusError):
    """The bus was closed."""

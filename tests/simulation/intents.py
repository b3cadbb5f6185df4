"""What an actor means to do when it calls the bus: the referee judges each commit by it."""

from dataclasses import dataclass, field

from dagster_bus.core.delivery import Delivery
from dagster_bus.core.position import Start
from dagster_bus.core.recovering import Look
from dagster_bus.core.reporting import Report
from dagster_bus.core.topic import TopicPartition


@dataclass(frozen=True)
class Tick:
    """Reserve what may run; or lease it at once, for a worker that is there."""

    now_ms: int
    look: Look
    worker: str | None = None
    has_looked: bool = True
    """It decides on what is there now, and not on what it remembers."""


@dataclass(frozen=True)
class Stride:
    """Say that deliveries are done, and take the next events, in one step."""

    now_ms: int
    told: tuple[tuple[Delivery, Report], ...]
    worker: str


@dataclass(frozen=True)
class Begin:
    """Turn a reservation into a lease."""

    now_ms: int
    asked: Delivery
    worker: str


@dataclass(frozen=True)
class Speak:
    """Something that only the holder of a lease may say."""

    now_ms: int
    held: Delivery


@dataclass(frozen=True)
class Renew(Speak):
    """A heartbeat."""


@dataclass(frozen=True)
class HandBack(Speak):
    """Leave the work to another."""


@dataclass(frozen=True)
class GiveUp(Speak):
    """The work was not done, and may not be tried again."""


@dataclass(frozen=True)
class Tell(Speak):
    """How some events ended."""

    report: Report


@dataclass(frozen=True)
class Resume:
    """Let a group go on that has stopped."""

    now_ms: int


@dataclass(frozen=True)
class Redrive:
    """Send dead letters back."""

    now_ms: int


@dataclass(frozen=True)
class Seek:
    """Send the group elsewhere."""

    now_ms: int
    start: Start
    partitions: tuple[TopicPartition, ...] = field(default=())


Intent = Tick | Stride | Begin | Speak | Resume | Redrive | Seek

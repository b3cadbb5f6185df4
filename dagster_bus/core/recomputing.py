"""What a group has behind it in a window, so that the window's rows can be made anew.

These are all events of the window but for those that are still to come with a delivery of their
own: what the group has not taken yet, what its open deliveries hold, and its dead letters, which
come back when they are sent back. What was sent back and done is read as it was sent.

The group's cursors stay where they are. Only events that the pipeline refuses now become dead
letters, as they would have at first.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dagster_bus.core.delivery import Delivery, Outcome, State
from dagster_bus.core.event import Event
from dagster_bus.core.failure import describe
from dagster_bus.core.group_config import GroupConfig
from dagster_bus.core.ranges import (
    Place,
    Ranges,
    count,
    covering,
    joined,
    place_of,
    within,
    without,
)
from dagster_bus.core.reporting import Failed, Moment, burials_of
from dagster_bus.core.store import Bounds, Change, LetterQuery, LetterState, Store, Tally
from dagster_bus.core.topic import OffsetRange, TopicPartition
from dagster_bus.core.window import Window
from dagster_bus.errors import EventsGone

PAGE = 1_000

IsCommitted = Callable[[Delivery], bool]
"""Whether the table has an open delivery's rows: its worker only has to say so yet."""


@dataclass(frozen=True, slots=True)
class Past:
    """What a window's rows are made of."""

    ranges: Ranges
    """Events that are read from the log."""
    redriven: Ranges
    """Events that are read from the dead letters, as they were sent back."""
    events: Sequence[Event]
    """The latter."""
    committed: tuple[str, ...]
    """Open deliveries whose events are among these."""
    to_come: int
    """Events of the window that come with deliveries of their own."""
    dead: int
    """Events of the window that are dead letters."""

    @property
    def size(self) -> int:
        return count(self.ranges) + count(self.redriven)


def past_of(
    config: GroupConfig, store: Store, window: Window, now_ms: int, is_committed: IsCommitted
) -> Past:
    """Look what a group has behind it. Raises EventsGone if the log may not have all of it.

    The reads are not one moment. In this order nothing is taken that still comes: what is sent back
    or dies in between is seen as open before or afterwards."""
    view = store.view(config.name, config.topics, now_ms=now_ms, due_limit=0)
    before = store.open_deliveries(config.name)
    spans = _spans(store, [head.partition for head in view.heads], window)
    _require_all(store, config.topics, window, spans)
    letters = _letters(config, store, spans)
    after = store.open_deliveries(config.name)
    open_ = {each.id: each for each in (*before, *after)}
    there = {id for id, each in open_.items() if each.window == window.key and is_committed(each)}
    frontiers = {head.partition: head.frontier for head in view.heads}
    taken = [cut for span in spans if (cut := _below(span, frontiers[_at(span)]))]
    held = [each for each in (*before, *after) if each.id not in there]
    open_ranges = joined(part for each in held for part in each.ranges)
    dead = within(spans, covering(letters[LetterState.DEAD]))
    done = without(without(taken, open_ranges), dead)
    redriven = within(done, covering(letters[LetterState.REDRIVEN]))
    return Past(
        ranges=without(done, redriven),
        redriven=redriven,
        events=store.redriven(config.name, redriven),
        committed=tuple(sorted(there)),
        to_come=count(spans) - count(done) - count(without(dead, open_ranges)),
        dead=count(without(dead, open_ranges)),
    )


def refusal(
    config: GroupConfig,
    past: Past,
    refused: Iterable[Failed],
    window: Window,
    moment: Moment,
    worker: str,
) -> Change:
    """The change that makes dead letters of events that the group had behind it. Pure."""
    dead = tuple(
        Delivery(
            id=moment.new_id(),
            group=config.name,
            window=window.key,
            ranges=part,
            state=State.DONE,
            outcome=Outcome.DEAD_LETTERED,
            errors=(describe(each.error, attempt=1, worker=worker, at_ms=moment.now_ms),),
            due_ms=moment.now_ms,
            created_ms=moment.now_ms,
            redriven=source is past.redriven,
        )
        for each in refused
        for source in (past.ranges, past.redriven)
        if (part := within(each.ranges, source))
    )
    return Change(
        group=config.name,
        deliveries=dead,
        burials=burials_of(config, dead),
        done=Tally(processed=-count(part for each in dead for part in each.ranges)),
    )


def still_alive(config: GroupConfig, store: Store, refused: Sequence[Failed]) -> list[Failed]:
    """Those of some events that have not become dead letters meanwhile."""
    spans = joined(part for each in refused for part in each.ranges)
    dead = covering(_letters(config, store, spans)[LetterState.DEAD])
    left = (replace(each, ranges=without(each.ranges, dead)) for each in refused)
    return [each for each in left if each.ranges]


def _spans(store: Store, partitions: Sequence[TopicPartition], window: Window) -> Ranges:
    """All events of a window."""
    firsts = store.offsets_at(partitions, window.start_ms)
    ends = store.offsets_at(partitions, window.end_ms)
    return tuple(
        OffsetRange(*at, firsts[at], ends[at] - 1)
        for at in sorted(partitions)
        if firsts[at] < ends[at]
    )


def _require_all(store: Store, topics: Sequence[str], window: Window, spans: Ranges) -> None:
    """Refuse a window of which events may be gone: rows that were made of them would be lost."""
    inside = {_at(span): span for span in spans}
    for at, bounds in store.bounds(topics).items():
        name = f"{at.topic}/{at.partition}"
        if bounds.first > 1 and _first_ts(store, at, bounds) >= window.start_ms:
            raise EventsGone(
                f"retention has taken events out of {name} that may belong to window "
                f"{window.key}: the log begins at offset {bounds.first}. The window's rows stay as "
                "they are"
            )
        if at in inside and inside[at].first <= bounds.compacted_to:
            raise EventsGone(
                f"compaction has been through window {window.key} of {name}, and took out events "
                "whose rows would be lost. The window's rows stay as they are"
            )


def _first_ts(store: Store, at: TopicPartition, bounds: Bounds) -> int:
    """The time of the oldest event that is there; if there is none, of the newest ever."""
    first = store.read(OffsetRange(*at, bounds.first, bounds.first), 1)
    return first[0].ts if first else bounds.last_ts


def _letters(config: GroupConfig, store: Store, spans: Ranges) -> Mapping[LetterState, set[Place]]:
    """The dead letters of some events, by their states. One may have died more than once."""
    found: dict[LetterState, set[Place]] = {state: set() for state in LetterState}
    topics = {span.topic for span in spans}
    for topic in sorted(topics):
        own = [span for span in spans if span.topic == topic]
        for state, place in _of_topic(config.name, store, topic):
            if any(_holds(span, place) for span in own):
                found[state].add(place)
    return found


def _of_topic(group: str, store: Store, topic: str) -> Iterator[tuple[LetterState, Place]]:
    query = LetterQuery(group=group, state=None, topic=topic)
    before: int | None = None
    while page := store.dead_letters(query, limit=PAGE, before=before):
        yield from ((letter.state, place_of(letter.event)) for letter in page)
        before = page[-1].id


def _holds(span: OffsetRange, place: Place) -> bool:
    return span.partition == place.partition and span.first <= place.offset <= span.last


def _below(span: OffsetRange, end: int) -> OffsetRange | None:
    return replace(span, last=min(span.last, end - 1)) if span.first < end else None


def _at(span: OffsetRange) -> TopicPartition:
    return TopicPartition(span.topic, span.partition)

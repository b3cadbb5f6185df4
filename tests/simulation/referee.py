"""Judges every change that is written for a group by what the actor behind it may do.

It keeps the open deliveries as they were written, so that it can say of each next state whether it
was allowed: whether the holder still held its lease, whether an attempt was to be counted, whether
each event is in one place before and after. Between two steps the store must be as it says.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Set
from dataclasses import replace
from typing import Any

from dagster_bus.core.breaker import PROBE_EVENTS, Breaker, Circuit
from dagster_bus.core.delivery import Delivery, OnExhausted, Outcome, State
from dagster_bus.core.group_config import GroupConfig, Order
from dagster_bus.core.position import AtOffset, AtTime
from dagster_bus.core.ranges import Place
from dagster_bus.core.recovering import Worker, WorkerGone, nothing_known
from dagster_bus.core.reporting import Report
from dagster_bus.core.store import Change, LetterQuery, Store, Tally
from dagster_bus.core.topic import TopicPartition
from dagster_bus.core.window import HOURLY
from tests.simulation.account import Account
from tests.simulation.fates import Part, Rules, among, part_of
from tests.simulation.intents import (
    Begin,
    GiveUp,
    HandBack,
    Intent,
    Redrive,
    Renew,
    Resume,
    Seek,
    Speak,
    Stride,
    Tell,
    Tick,
)
from tests.simulation.log import Log, places_of, size_of


class Referee:
    """The referee of one group. `alone` says that nobody comes between what is read and what is
    written then: some numbers are only exact if so."""

    def __init__(
        self, config: GroupConfig, store: Store, log: Log, counts: Counter[str], *, alone: bool
    ) -> None:
        self.config = config
        self.log = log
        self.account = Account(config, log)
        self.open: dict[str, Delivery] = {}
        self.starts = {at: 1 for at in log.ends if at.topic in config.topics}
        self.frontiers = dict(self.starts)
        self.begun: set[TopicPartition] = set()
        self.breaker = Breaker()
        self.failures: Counter[Place] = Counter()
        """How often each event was part of what failed, or was held by a worker that vanished."""
        self.touched = False
        """Something was written since the store was last looked at."""
        self.moved = False
        """The group was sent elsewhere: events may come again, and in another order."""
        self._store = store
        self._alone = alone
        self._counts = counts
        self._rules = Rules(config)
        self._judges: dict[type, Callable[[Change, Any], None]] = {
            Tick: self._tick,
            Stride: self._stride,
            Begin: self._begin,
            Renew: self._renew,
            HandBack: self._hand_back,
            GiveUp: self._give_up,
            Tell: self._tell,
            Resume: self._resume,
            Redrive: self._redrive,
            Seek: self._seek,
        }

    # What actors may ask.

    def holds(self, intent: Speak) -> bool:
        """Whether the one who speaks holds the lease."""
        stored = self.open.get(intent.held.id)
        return (
            stored is not None
            and stored.state is State.RUNNING
            and stored.token == intent.held.token
            and intent.now_ms < stored.due_ms
        )

    def may_begin(self, intent: Begin) -> bool:
        stored = self.open.get(intent.asked.id)
        return (
            stored is not None
            and stored.state is State.RESERVED
            and stored.reservation == intent.asked.reservation
        )

    def require_turn(self, held: Delivery, place: Place, own: set[Place]) -> None:
        """It is this event's turn: each that must come before it has ended, or was done by the
        same worker just now."""
        if held.redriven or self.moved or self.config.order is Order.NONE:
            return
        first = self.starts[TopicPartition(place.topic, place.partition)]
        by_key = self.config.order is Order.KEY
        before = self.log.before_of_key if by_key else self.log.before_in_partition
        early = set(before(place, first)) - own - self.account.ever_ended
        assert not early, f"{place} was begun before {sorted(early)}"

    # What is written.

    def committed(self, change: Change, intent: Intent) -> None:
        """A change was written."""
        assert change.group == self.config.name
        for each in change.deliveries:
            old = self.open.get(each.id)
            assert each.version == (old.version + 1 if old else 1), "a state follows the stored one"
            if old:
                assert _identity(each) == _identity(old)
                if each.created_ms != old.created_ms:
                    assert (each.created_ms, each.exhausted) == (intent.now_ms, False)
                    assert old.behind or old.state is State.BLOCKED, "others do not start afresh"
        self._judges[type(intent)](change, intent)
        self._note(change.deliveries)
        self.frontiers.update(change.frontiers)
        self.begun |= change.frontiers.keys()
        self.touched = True
        self._require_each_event_once()

    def _note(self, deliveries: Iterable[Delivery]) -> None:
        for each in deliveries:
            if each.state is State.DONE:
                self.open.pop(each.id, None)
            else:
                self.open[each.id] = each

    def _stride(self, change: Change, intent: Stride) -> None:
        """As if each had been reported by itself, and the next events were taken then."""
        *left, taken = change.deliveries
        done = Tally()
        for now, (held, report) in zip(left, intent.told, strict=True):
            own = Tally(**{how: len(places) for how, places in _settled(report).items()})
            told = Change(group=change.group, deliveries=(now,), done=own)
            self._tell(told, Tell(intent.now_ms, held, report))
            done += own
        assert change.done == done
        self._note(left)
        rest = replace(change, deliveries=(taken,), done=Tally())
        self._tick(rest, Tick(intent.now_ms, nothing_known, intent.worker, has_looked=False))
        self._counts["strides"] += 1

    def _tick(self, change: Change, intent: Tick) -> None:
        assert change.done == Tally()
        assert not change.burials
        if change.shifts:
            self._place_of_start(change)
            return
        taken: list[Place] = []
        before = self._frontiers() if change.frontiers else {}
        for at, frontier in change.frontiers.items():
            assert frontier > before[at]
            taken += [Place(*at, offset) for offset in range(before[at], frontier)]
        added: list[Place] = []
        for each in change.deliveries:
            old = self.open.get(each.id)
            if old is None:
                self._opened(each, intent)
                added += places_of(each.ranges)
            elif each.ranges != old.ranges:
                added += self._joined(old, each)
            else:
                self._moved_by_tick(old, each, intent)
        assert Counter(taken) == Counter(added), "all that is taken is handed out"
        self._has_room(change, intent)

    def _has_room(self, change: Change, intent: Tick) -> None:
        """Also those that are reserved together are no more than may be under way."""
        reserved = [each for each in change.deliveries if each.in_flight]
        if not self._alone or not intent.has_looked or not reserved:
            return
        circuit = self.breaker.circuit(self.config.retry.breaker, intent.now_ms)
        most = 1 if circuit is Circuit.HALF_OPEN else self.config.max_inflight
        after = self.open | {each.id: each for each in change.deliveries}
        assert sum(each.in_flight for each in after.values()) <= most
        self._counts["reserved together"] += len(reserved) > 1

    def _place_of_start(self, change: Change) -> None:
        """A group that is new to partitions begins where it is told."""
        start = self.config.start
        assert start != "earliest"
        assert not change.deliveries
        for at, frontier in change.frontiers.items():
            assert at not in self.begun
            if start == "latest":
                expected = self.log.ends[at]
            elif isinstance(start, AtOffset):
                expected = start.offset
            else:
                assert isinstance(start, AtTime)
                later = [p.offset for p in self._in(at) if self.log.events[p].ts >= start.ts_ms]
                expected = min(later, default=self.log.ends[at])
            assert frontier == expected or not self._alone
            assert change.shifts[at] == frontier - 1
            self.starts[at] = frontier
        self._counts["began elsewhere"] += 1

    def _opened(self, new: Delivery, intent: Tick) -> None:
        self._may_reserve(intent, new)
        assert (new.errors, new.attempt, new.exhausted, new.redriven) == ((), 1, False, False)
        events = [self.log.events[place] for place in places_of(new.ranges)]
        assert {HOURLY.at(event.ts).key for event in events} == {new.window}
        assert HOURLY.at(events[0].ts).start_ms <= intent.now_ms, "the window has begun"
        assert 1 <= new.size <= self.config.max_events
        if self.config.max_bytes is not None and new.size > 1:
            assert sum(map(size_of, events)) <= self.config.max_bytes

    def _joined(self, old: Delivery, new: Delivery) -> list[Place]:
        """Events that wait behind one of their key."""
        self._counts["joined"] += 1
        assert self.config.order is Order.KEY
        assert old.state is State.WAITING
        assert not (self.config.lasting and old.doubtful), "the table may have it already"
        before, after = part_of(old), part_of(new)
        added = after.places - before.places
        assert added
        assert before == after._replace(places=after.places - added, behind=after.behind - added), (
            "who joins waits behind those that are there"
        )
        keys = {(p.partition, self.log.events[p].key) for p in before.places}
        for place in added:
            event = self.log.events[place]
            assert event.key is not None
            assert (place.partition, event.key) in keys
            assert HOURLY.at(event.ts).key == old.window or not self.config.lasting
        return list(added)

    def _moved_by_tick(self, old: Delivery, new: Delivery, intent: Tick) -> None:
        now_ms = intent.now_ms
        assert old.due_ms <= now_ms or (
            old.state is State.RUNNING and intent.look(old) is Worker.GONE
        ), "what is under way is left alone until its time is up"
        if old.state is State.WAITING:
            assert new.reservation == old.reservation + 1
            assert (new.errors, new.exhausted) == (old.errors, old.exhausted)
            assert new.attempt == len(new.errors) + 1
            self._counts["reserved again"] += 1
            self._may_reserve(intent, new)
        elif old.state is State.RESERVED:
            coming = intent.look(old) is Worker.COMING
            self._counts["reservation extended" if coming else "reservation lost"] += 1
            assert new.state is (State.RESERVED if coming else State.WAITING)
            assert part_of(new) == part_of(old)._replace(state=new.state), "that is no attempt"
        else:
            assert (old.state, new.state) == (State.RUNNING, State.WAITING)
            self._taken_back(old, new, now_ms)

    def _taken_back(self, old: Delivery, new: Delivery, now_ms: int) -> None:
        """A worker that vanished has made an attempt, unless it was only to look."""
        self._counts["looker vanished" if old.exhausted else "worker vanished"] += 1
        self.failures.update(places_of(old.ranges))
        assert new.doubtful
        assert (new.ranges, new.behind) == (old.ranges, old.behind)
        if old.exhausted:
            assert new.exhausted
            assert new.errors == old.errors
            return
        assert new.errors[:-1] == old.errors
        last = new.errors[-1]
        assert (last.type, last.worker) == ("WorkerGone", old.worker)
        assert last.attempt == len(new.errors)
        assert new.exhausted is self._rules.ends_attempts(
            part_of(old), now_ms - old.created_ms, WorkerGone()
        )

    def _may_reserve(self, intent: Tick, new: Delivery) -> None:
        if intent.worker is None:
            assert new.state is State.RESERVED
            assert new.due_ms == intent.now_ms + self.config.launch_timeout_ms
        else:
            before = self.open.get(new.id)
            assert (new.state, new.worker) == (State.RUNNING, intent.worker)
            assert new.token == (before.token if before else 0) + 1
            assert new.due_ms == intent.now_ms + self.config.lease_ms
            self._counts["taken"] += 1
        if not self._alone or not intent.has_looked:
            return
        circuit = self.breaker.circuit(self.config.retry.breaker, intent.now_ms)
        assert circuit is not Circuit.OPEN, "an open circuit lets nobody through"
        under_way = [each for each in self.open.values() if each.in_flight]
        most = 1 if circuit is Circuit.HALF_OPEN else self.config.max_inflight
        assert len(under_way) < most
        assert all(each.state is not State.BLOCKED for each in self.open.values())
        if circuit is Circuit.HALF_OPEN and new.id not in self.open:
            assert new.size <= PROBE_EVENTS
        self._counts["probe"] += circuit is Circuit.HALF_OPEN

    def _begin(self, change: Change, intent: Begin) -> None:
        assert self.may_begin(intent), "only the newest reservation counts, once"
        (new,) = change.deliveries
        old = self.open[new.id]
        assert (new.state, new.token, new.worker) == (State.RUNNING, old.token + 1, intent.worker)
        assert new.due_ms == intent.now_ms + self.config.lease_ms
        assert _unmoved(new) == _unmoved(old)

    def _renew(self, change: Change, intent: Renew) -> None:
        old, new = self._said(change, intent)
        assert part_of(new) == part_of(old)
        assert new.due_ms == intent.now_ms + self.config.lease_ms

    def _hand_back(self, change: Change, intent: HandBack) -> None:
        old, new = self._said(change, intent)
        waiting = part_of(old)._replace(state=State.WAITING, doubtful=True)
        assert part_of(new) == waiting, "it is no attempt"

    def _give_up(self, change: Change, intent: GiveUp) -> None:
        old, new = self._said(change, intent)
        if self.config.on_exhausted is OnExhausted.BLOCK:
            assert part_of(new) == part_of(old)._replace(state=State.BLOCKED)
            self._counts["given up, and blocked"] += 1
            return
        failing = among(part_of(old), part_of(old).places - part_of(old).behind)
        dead = failing._replace(state=State.DONE, outcome=Outcome.DEAD_LETTERED)
        assert part_of(new) == dead
        waiting = [part_of(each) for each in change.deliveries[1:]]
        assert waiting == [Part(part_of(old).behind, State.WAITING)] * bool(old.behind)
        assert change.done == Tally()
        self._buried(change)
        self._counts["given up"] += 1

    def _tell(self, change: Change, intent: Tell) -> None:
        old, _ = self._said(change, intent)
        report = intent.report
        settled = _settled(report)
        assert change.done == Tally(**{how: len(places) for how, places in settled.items()})
        expected = self._rules.parts_after(old, report, intent.now_ms)
        written = Counter(part_of(each) for each in change.deliveries if each.ranges)
        assert written == expected, f"{_lines(written)}\nwas written, and not\n{_lines(expected)}"
        for how, places in settled.items():
            for place in places:
                self.account.end(place, how)
        for failed in report.failed:
            self.failures.update(places_of(failed.ranges))
        self._buried(change, {p for each in report.refused for p in places_of(each.ranges)})
        self._breaks(change, intent)
        self._count(old, change, report)

    def _count(self, old: Delivery, change: Change, report: Report) -> None:
        """What a report has led to, for those who ask whether the dice reach every corner."""
        first, *apart = change.deliveries
        for each in apart if first.ranges == () or first.state is State.RUNNING else [first]:
            self._counts[f"part {each.state}"] += 1
            self._counts["isolated"] += each.exhausted and not old.exhausted
        self._counts["behind"] += sum(bool(f.behind) for f in (*report.failed, *report.refused))
        self._counts["reported in parts"] += first.state is State.RUNNING
        self._counts["returned"] += bool(report.returned)
        self._counts["circuit opened"] += bool(change.breaker and change.breaker[1].paused_until_ms)

    def _breaks(self, change: Change, intent: Tell) -> None:
        """Failures in a row open the circuit, for a while, and a success closes it."""
        report, now_ms = intent.report, intent.now_ms
        policy = self.config.retry.breaker
        if policy is None:
            assert change.breaker is None
            return
        expected = self.breaker
        pauses = expected.failures >= policy.failures and now_ms < expected.paused_until_ms
        if report.failed and not pauses:
            failures = min(expected.failures + 1, policy.failures)
            full = failures == policy.failures
            expected = Breaker(failures, now_ms + policy.reset_after_ms if full else 0)
        elif report.processed and not report.failed and not pauses:
            expected = Breaker()
        if change.breaker is None:
            assert expected == self.breaker or not self._alone
            return
        assert change.breaker == (self.breaker, expected), "each failure is counted"
        self.breaker = expected

    def _resume(self, change: Change, intent: Resume) -> None:
        for new in change.deliveries:
            old = self.open[new.id]
            assert (old.state, new.state) == (State.BLOCKED, State.WAITING)
            assert part_of(new) == Part(part_of(old).places, State.WAITING)
            self._forget_failures(new)
            self._counts["resumed"] += 1

    def _redrive(self, change: Change, intent: Redrive) -> None:
        ids = tuple(each.letter for each in change.redrives)
        query = LetterQuery(group=self.config.name, state=None, ids=ids)
        letters = self._store.dead_letters(query, limit=len(ids))
        sent = [Place(x.event.topic, x.event.partition, x.event.offset) for x in letters]
        back = [place for each in change.deliveries for place in places_of(each.ranges)]
        assert Counter(sent) == Counter(back), "each letter that is sent back is delivered"
        assert change.done == Tally(dead_lettered=-len(ids))
        for letter, place in zip(letters, sent, strict=True):
            self.account.send_back(place, letter.died_ms)
            self._counts["sent back"] += 1
        for each in change.deliveries:
            assert (each.state, each.redriven, each.errors) == (State.WAITING, True, ())
            self._forget_failures(each)

    def _seek(self, change: Change, intent: Seek) -> None:
        self.moved = True
        chosen = set(intent.partitions or self.frontiers)
        assert set(change.frontiers) == chosen
        kept: Counter[Part] = Counter()
        for old in self.open.values():
            part = part_of(old)
            rest = frozenset(p for p in part.places if (p.topic, p.partition) not in chosen)
            if rest != part.places and not old.redriven and rest:
                doubtful = old.state is State.RUNNING or among(part, rest).doubtful
                kept[among(part, rest)._replace(state=State.WAITING, doubtful=doubtful)] += 1
        going = Counter(part_of(x) for x in change.deliveries if x.state is not State.DONE)
        assert going == kept, "what lies elsewhere goes on"
        gone = [each for each in change.deliveries if each.state is State.DONE]
        assert all(each.outcome is Outcome.ABANDONED for each in gone)
        self._counts["sought"] += 1
        self._counts["abandoned"] += len(gone)
        self._counts["abandoned in part"] += kept.total()

    def _said(self, change: Change, intent: Speak) -> tuple[Delivery, Delivery]:
        assert self.holds(intent), "nobody is believed whose lease is lost"
        return self.open[intent.held.id], change.deliveries[0]

    def _forget_failures(self, delivery: Delivery) -> None:
        for place in places_of(delivery.ranges):
            del self.failures[place]

    def _buried(self, change: Change, refused: Set[Place] = frozenset()) -> None:
        dead = [each for each in change.deliveries if each.outcome is Outcome.DEAD_LETTERED]
        assert [burial.delivery for burial in change.burials] == dead
        for each in dead:
            most = self.config.retry.max_attempts
            assert len(each.errors) <= most + each.exhausted
            if self._rules.are_plain and not self.moved:
                early = [p for p in places_of(each.ranges) if self.failures[p] < most]
                assert set(early) <= refused, "each event has all attempts for itself"
            self.account.bury(each)
            self._counts["buried again" if each.redriven else "buried"] += 1

    def _require_each_event_once(self) -> None:
        held = [
            p for each in self.open.values() if not each.redriven for p in places_of(each.ranges)
        ]
        assert len(held) == len(set(held)), "an event is in one delivery"
        if self.moved:
            return
        assert not set(held) & self.account.ever_ended, "what has ended does not come again"
        assert all(len(self.account.ended[place]) <= 1 for place in self.account.ever_ended), (
            "an event ends once"
        )

    # What the store says between two steps.

    def compare(self) -> None:
        """The store is as its changes say, and its account is right."""
        self.touched = False
        stored = self._store.open_deliveries(self.config.name)
        assert {each.id: each for each in stored} == self.open
        progress = self._store.progress(self.config.name, self.config.topics)
        assert progress.tally == self.account.tally
        sizes = Counter[State]()
        for each in self.open.values():
            sizes[each.state] += each.size
        counted = (progress.reserved, progress.running, progress.waiting, progress.blocked)
        assert counted == (
            sizes[State.RESERVED],
            sizes[State.RUNNING],
            sizes[State.WAITING],
            sizes[State.BLOCKED],
        )
        frontiers = self._frontiers()
        unread = sum(max(0, self.log.ends[at] - first) for at, first in frontiers.items())
        if self.begun or self.config.start == "earliest":
            assert progress.lag == sizes.total() + unread
        for at, cursor in progress.cursors.items():
            self._compare_cursor(at, cursor, frontiers[at])
        assert self._store.breaker(self.config.name) == self.breaker

    def _frontiers(self) -> dict[TopicPartition, int]:
        """The first event of each partition that was never taken. Who is sent to a place while it
        is trimmed away begins after that."""
        if not self.moved:
            return self.frontiers
        bounds = self._store.bounds(self.config.topics)
        return {at: max(first, bounds[at].first) for at, first in self.frontiers.items()}

    def _compare_cursor(self, at: TopicPartition, cursor: int, frontier: int) -> None:
        held = [
            part.first
            for each in self.open.values()
            if not each.redriven
            for part in each.ranges
            if (part.topic, part.partition) == at
        ]
        assert cursor == min([frontier, *held]) - 1
        if not self.moved:
            passed = {Place(*at, offset) for offset in range(self.starts[at], cursor + 1)}
            assert passed <= self.account.ever_ended, "the cursor passes what has ended"

    def compare_letters(self) -> None:
        """The dead letters are those that should be there, each with its story."""
        query = LetterQuery(group=self.config.name)
        found = Counter(
            (
                Place(x.event.topic, x.event.partition, x.event.offset),
                len(x.errors),
                x.died_ms,
            )
            for x in self._store.dead_letters(query, limit=1_000_000)
        )
        assert found == self.account.dead()
        counts = self._store.dead_letter_counts(self.config.name)
        assert sum(counts.values()) == found.total()

    def require_end(self) -> None:
        """All has ended, once."""
        self.compare()
        self.compare_letters()
        assert not self.open
        progress = self._store.progress(self.config.name, self.config.topics)
        assert progress.lag == 0
        if self.moved:
            return
        own = {
            place
            for place in self.log.events
            if place.offset >= self.starts.get(TopicPartition(*place[:2]), place.offset + 1)
        }
        assert progress.published == len(own)
        assert {place for place, ends in self.account.ended.items() if ends} == own
        assert all(len(self.account.ended[place]) == 1 for place in own)

    def _in(self, at: TopicPartition) -> list[Place]:
        return [place for place in self.log.events if place[:2] == at]


def _settled(report: Report) -> dict[str, list[Place]]:
    return {
        "processed": places_of(report.processed),
        "filtered": places_of(report.filtered),
        "expired": places_of(report.expired),
    }


def _identity(delivery: Delivery) -> tuple[object, ...]:
    return delivery.group, delivery.window, delivery.redriven


def _unmoved(delivery: Delivery) -> tuple[object, ...]:
    return part_of(delivery).places, delivery.errors, delivery.exhausted, delivery.attempt


def _lines(parts: Counter[Part]) -> str:
    return "\n".join(map(str, parts.elements())) or "nothing"

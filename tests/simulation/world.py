"""The simulated world: clocks, publishers, ticks, workers and operators, driven by one die.

Each step is drawn anew. Every host has a clock of its own, that may jump; an actor tells the store
the time of its host. In some histories others come in while an actor decides, before it writes.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

from dagster_bus.core.bus import Bus
from dagster_bus.core.delivery import Delivery, OnExhausted, State
from dagster_bus.core.event import Event
from dagster_bus.core.groups import Group
from dagster_bus.core.letters import Chosen, DeadLetters
from dagster_bus.core.position import AtOffset, AtTime, Start
from dagster_bus.core.recovering import Look, nothing_known
from dagster_bus.core.recovering import Worker as Known
from dagster_bus.core.reporting import Report, all_of
from dagster_bus.core.store import LetterQuery, Store
from dagster_bus.core.topic import TopicPartition
from dagster_bus.core.window import HOUR_MS
from dagster_bus.errors import LeaseLost, ReservationLost, UnknownDeadLetter
from tests.simulation.drawing import LEASE_MS, POISON, TOPICS, draw_error, draw_group, draw_messages
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
    Tell,
    Tick,
)
from tests.simulation.living import Living, Staying, Wish
from tests.simulation.log import Log, place_of, places_of
from tests.simulation.racing import Raced
from tests.simulation.referee import Referee
from tests.simulation.worker import Worker
from tests.support.builders import START_MS

PARTITIONS = [TopicPartition(topic.name, n) for topic in TOPICS for n in range(topic.partitions)]
MOST_EVENTS = 45
HOSTS = 3
STAYING = 3
"""Workers that come for more."""
PATIENT = HOSTS
"""The host of those who work off what is left: its clock is ahead of all others."""
DRAINING = 400
"""Rounds after which all must have ended."""


class World:
    """One history, from its seed."""

    def __init__(self, seed: int, store: Store, tell: Callable[[str], object]) -> None:
        self._tell = tell
        self.dice = random.Random(seed)
        random.seed(seed)  # ids are made with the common dice
        self.story: list[str] = []
        self.seeking = self.dice.random() < 0.2
        self.racing = self.dice.random() < 0.5
        self.jumping = self.dice.random() < 0.5
        self._failing = self.dice.choice([0.05, 0.15, 0.4])
        self._hurry = self.dice.choice([4, 12])
        self._now_ms = START_MS + self.dice.choice([0, HOUR_MS - 3_000])
        self._skews = [0] * (HOSTS + 1)
        self._depth = 0
        self._speaking: list[Worker] = []
        self._striding: list[Staying] = []
        self._workers: list[Worker] = []
        self._reserved: list[tuple[str, Delivery]] = []
        self._names = 0
        self.counts: Counter[str] = Counter()
        self._mended = False
        self.store = store
        self.store.declare(TOPICS)
        self.log = Log(self.store, PARTITIONS)
        configs = [draw_group(self.dice, f"g{n}") for n in range(self.dice.choice([1, 2, 2, 3]))]
        self.configs = {config.name: config for config in configs}
        self.referees = {
            config.name: Referee(config, self.store, self.log, self.counts, alone=not self.racing)
            for config in configs
        }
        self._living = Living(self.store, self.referees)
        self._buses = [
            Bus(self.store, TOPICS, configs, self._clock(host)) for host in range(HOSTS + 1)
        ]
        for config in configs:
            self.tell(f"{config}")

    def live(self, steps: int) -> None:
        """So many steps, and the store is as it should be after each."""
        for number in range(steps):
            self._step()
            for referee in self.referees.values():
                if referee.touched or number % 10 == 0:
                    referee.compare()
                if number % 10 == 0:
                    referee.compare_letters()

    def end(self) -> None:
        """Patient workers work off what is left, and all must be accounted for."""
        self.racing = False
        for name in self.configs:
            self._drain(name)
            self.referees[name].require_end()

    def tell(self, text: str) -> None:
        self.story.append("    " * self._depth + text)
        self._tell(self.story[-1])

    # Steps.

    def _step(self) -> None:
        steps: list[tuple[Callable[[], None], int]] = [
            (self._publish, 12),
            (self._tick, 18),
            (self._start, 18 if self._reserved else 0),
            (self._take, 6),
            (self._stride, 12),
            (self._work, 45 if self._idle() else 0),
            (self._redrive, 4),
            (self._purge, 1),
            (self._maintain, 1),
            (self._resume, 2),
            (self._seek, 3 if self.seeking else 0),
        ]
        if not self._depth:
            steps += [(self._wait, self._hurry), (self._jump, 2 if self.jumping else 0)]
        (step,) = self.dice.choices([s for s, _ in steps], [weight for _, weight in steps])
        step()

    def _let_others_in(self) -> None:
        if self.racing and not self._depth and self.dice.random() < 0.25:
            self._depth += 1
            self._step()
            self._depth -= 1

    def _wait(self) -> None:
        ms = self.dice.choice([1, 50, 50, 500, 500, 1_000, LEASE_MS, 5_000, 20_000, HOUR_MS])
        self._now_ms += ms
        self.tell(f"{ms} ms pass")

    def _jump(self) -> None:
        host = self.dice.randrange(HOSTS)
        ms = self.dice.choice([-HOUR_MS, -5_000, -20, 0, 3, 900, 5_000, 2 * HOUR_MS])
        self._skews[host] = ms
        self.tell(f"the clock of host {host} is {ms} ms ahead")

    def _publish(self) -> None:
        if len(self.log.events) >= MOST_EVENTS:
            return
        host = self._host()
        topic = self.dice.choice(["orders", "orders", "stock"])
        messages = draw_messages(self.dice, len(self.log.events))
        published = self._buses[host].publish_many(topic, messages)
        self.log.note(published)
        self.tell(f"published on host {host}: {_named(published)}")

    def _tick(self) -> None:
        name = self._any_group()
        host = self._host()
        look = self._draw_look()
        most = self.dice.choice([None, None, 1, 0])
        kind = self.dice.choice(["tick", "tick", "tick", "preview"])
        self.tell(f"{kind} of {name} on host {host}, most {most} …")
        reserved = self._reserve(name, host, look, most)
        self.tell(f"{kind} of {name}: {', '.join(map(_short, reserved)) or 'nothing'}")
        if kind == "tick":
            self._reserved += [(name, each) for each in reserved]

    def _reserve(self, name: str, host: int, look: Look, most: int | None) -> list[Delivery]:
        now_ms = self._time(host)
        with self._call(name, host, Tick(now_ms, look)) as group:
            return group.reserve(look, most)

    def _draw_look(self) -> Look:
        """Nothing is known; or the truth; or something wrong, which must cost time only."""
        kind = self.dice.choice(["nothing"] * 5 + ["truth"] * 3 + ["wrong"])
        if kind == "nothing":
            return nothing_known
        if kind == "wrong":
            answer = self.dice.choice(list(Known))
            return lambda _: answer
        here = {worker.held.id for worker in self._workers}
        coming = {each.id for _, each in self._reserved}

        def truth(delivery: Delivery) -> Known:
            if delivery.worker is None:
                return Known.COMING if delivery.id in coming else Known.GONE
            return Known.UNKNOWN if delivery.id in here else Known.GONE

        return truth

    def _start(self) -> None:
        """A run starts, late or not, or once more."""
        place = self.dice.randrange(len(self._reserved))
        name, asked = self._reserved[place]
        if self.dice.random() < 0.8:
            del self._reserved[place]
        worker = self._begin(name, asked, self._host())
        if worker:
            self._workers.append(worker)

    def _begin(self, name: str, asked: Delivery, host: int) -> Worker | None:
        self._names += 1
        intent = Begin(self._time(host), asked, f"w{self._names}")
        referee = self.referees[name]
        try:
            with self._call(name, host, intent) as group:
                held = group.lease(asked.id, reservation=asked.reservation, worker=intent.worker)
        except ReservationLost:
            assert not referee.may_begin(intent), "the newest reservation is good"
            self.counts["too late to start"] += 1
            self.tell(f"{intent.worker} is too late for {_short(asked)}")
            return None
        return self._started(name, intent.worker, host, held)

    def _take(self) -> None:
        """A worker that is there takes what it can get."""
        name = self._any_group()
        host = self._host()
        self._names += 1
        worker = f"w{self._names}"
        look = self._draw_look()
        most = self.dice.choice([1, 1, 2])
        self.tell(f"{worker} takes of {name} on host {host}, most {most} …")
        with self._call(name, host, Tick(self._time(host), look, worker)) as group:
            taken = group.take(worker, look, most)
        self._workers += [self._started(name, worker, host, held) for held in taken]

    def _stride(self) -> None:
        """Workers that stay take their next events, together; who cannot goes the long way."""
        if len(self._living.all) < STAYING and self.dice.random() < 0.3:
            self._names += 1
            host = self._host()
            config = self.configs[self._any_group()]
            self._living.come(f"w{self._names}", config, host, self._clock(host))
        free = [each for each in self._living.all if each not in self._striding]
        some = self.dice.sample(free, self.dice.randint(min(1, len(free)), len(free)))
        self._striding += some
        wishes = []
        for staying in some:
            most = min(self.dice.choice([1, 5]), self.configs[staying.group].max_events)
            wish = self._living.wish(staying, self._time(staying.host), most)
            self.tell(f"{staying.name} would take {_short(_taken(wish)) if wish else 'nothing'}")
            if wish:
                wishes.append(wish)
            elif len(staying.holds) < 2 and self.dice.random() < 0.5:
                self._take_long(staying)
        for wish in self._living.write(wishes, self._let_others_in) if wishes else []:
            self.tell(f"{wish.staying.name} has taken {_short(_taken(wish))}")
            for worker, left in zip(wish.told, wish.step.left, strict=True):
                worker.told(left)
                if not left.ranges:
                    self._forget(worker)
            self._hold(wish.staying, _taken(wish), wish.step.events)
        self._striding = [each for each in self._striding if each not in some]

    def _take_long(self, staying: Staying) -> None:
        intent = Tick(self._time(staying.host), nothing_known, staying.name)
        staying.taking.outlook.forget()
        with self._call(staying.group, staying.host, intent) as group:
            for held in group.take(staying.name):
                self._hold(staying, held, None)

    def _hold(self, staying: Staying, held: Delivery, events: list[Event] | None) -> None:
        worker = self._started(staying.group, staying.name, staying.host, held)
        assert events in (None, worker.queue)
        staying.holds.append(worker)
        self._workers.append(worker)

    def _started(self, name: str, worker: str, host: int, held: Delivery) -> Worker:
        """A worker reads the events of its delivery."""
        events = list(Group(self.configs[name], self.store, self._clock(host)).events(held))
        assert [place_of(event) for event in events] == places_of(held.ranges)
        self.tell(f"{worker} on host {host} leases {_short(held)} of {name}")
        return Worker(worker, name, host, self.configs[name], held, events)

    def _work(self) -> None:
        worker = self.dice.choice(self._idle())
        steps: list[tuple[Callable[[Worker], None], int]] = [
            (self._do_next, 40 if worker.queue else 0),
            (self._report, 15 if worker.queue else 60),
            (self._renew, 8),
            (self._crash, 4),
            (self._hand_back, 2),
            (self._return_rest, 3),
            (self._fail_whole, 4),
            (self._give_up, 30 if worker.held.exhausted else 0),
            (self._settle, 0 if worker.queue else 20),
        ]
        (step,) = self.dice.choices([s for s, _ in steps], [weight for _, weight in steps])
        step(worker)

    def _do_next(self, worker: Worker) -> None:
        """Go on with the next event, or with the next few together."""
        count = self.dice.choice([1, 1, 1, 2, 3])
        some, worker.queue = worker.queue[:count], worker.queue[count:]
        wrong = self.dice.random() < self._failing
        own = set(worker.own)
        todo = []
        for event in some:
            self.referees[worker.group].require_turn(worker.held, place_of(event), own)
            own.add(place_of(event))
            if not worker.wants(event):
                worker.settle(event, "filtered")
            elif not worker.held.redriven and event.is_expired(self._time(worker.host)):
                worker.settle(event, "expired")
            else:
                todo.append(event)
                wrong |= POISON in event.attributes and not self._mended
        if todo and wrong:
            worker.fail(todo, draw_error(self.dice), refuse=self.dice.random() < 0.1)
        else:
            for event in todo:
                worker.settle(event, "processed")
        self.tell(f"{worker.name} does {_named(map(place_of, some))}{' badly' * wrong}")

    def _report(self, worker: Worker) -> None:
        self._tell_bus(worker, worker.report())

    def _return_rest(self, worker: Worker) -> None:
        self._tell_bus(worker, worker.report(returns=True))
        self._forget(worker)

    def _settle(self, worker: Worker) -> None:
        """All at once, if nothing has failed."""
        report = worker.report()
        if report.failed or report.refused:
            self._report(worker)
            return
        filtered, expired = len(places_of(report.filtered)), len(places_of(report.expired))
        self._speak(
            worker,
            Tell(self._time(worker.host), worker.held, report),
            lambda group: group.settle(worker.held, filtered=filtered, expired=expired),
        )
        self._forget(worker)

    def _fail_whole(self, worker: Worker) -> None:
        """As somebody who works on the batch as one."""
        error = draw_error(self.dice)
        report = all_of(worker.held, error)
        intent = Tell(self._time(worker.host), worker.held, report)
        self._speak(worker, intent, lambda group: group.fail(worker.held, error))
        self._forget(worker)

    def _tell_bus(self, worker: Worker, report: Report) -> None:
        intent = Tell(self._time(worker.host), worker.held, report)
        held = self._speak(worker, intent, lambda group: group.report(worker.held, report))
        if held is not None:
            worker.told(held)
            if not held.ranges:
                self._forget(worker)

    def _renew(self, worker: Worker) -> None:
        intent = Renew(self._time(worker.host), worker.held)
        held = self._speak(worker, intent, lambda group: group.renew(worker.held))
        worker.held = held or worker.held

    def _hand_back(self, worker: Worker) -> None:
        intent = HandBack(self._time(worker.host), worker.held)
        self._speak(worker, intent, lambda group: group.hand_back(worker.held))
        self._forget(worker)

    def _give_up(self, worker: Worker) -> None:
        intent = GiveUp(self._time(worker.host), worker.held)
        self._speak(worker, intent, lambda group: group.give_up(worker.held))
        self._forget(worker)

    def _crash(self, worker: Worker) -> None:
        self._forget(worker)
        self.tell(f"{worker.name} is killed")

    def _speak(
        self, worker: Worker, intent: Speak, say: Callable[[Group], Delivery]
    ) -> Delivery | None:
        """The bus believes a worker if, and only if, it holds its lease. Mostly it stops if not;
        now and then it does not notice, and goes on."""
        referee = self.referees[worker.group]
        self.tell(f"{worker.name} says {_said(intent)} …")
        self._speaking.append(worker)
        self._living.forget(worker)
        try:
            with self._call(worker.group, worker.host, intent) as group:
                held = say(group)
        except LeaseLost:
            assert not referee.holds(intent), "who holds the lease is believed"
            self.counts["lease lost"] += 1
            self.tell(f"{worker.name} has lost its lease")
            if self.dice.random() < 0.7:
                self._forget(worker)
            return None
        finally:
            self._speaking.remove(worker)
        self.tell(f"{worker.name} now has {_short(held)}")
        return held

    def _redrive(self) -> None:
        name = self._any_group()
        host = self._host()
        found = self.store.dead_letters(LetterQuery(group=name), limit=100)
        if not found:
            return
        some = self.dice.sample(found, self.dice.randint(1, len(found)))
        ids = tuple(letter.id for letter in some) if self.dice.random() < 0.6 else None
        rate = self.dice.choice([None, None, 2])
        intent = Redrive(self._time(host))
        # by their places: a store may give the ids of letters that were purged again
        chosen = ", ".join(f"{each.event.partition}:{each.event.offset}" for each in some)
        self.tell(f"redrive of {name}: {chosen if ids else 'all'} …")
        referee = self.referees[name]
        store = Raced(self.store, referee, intent, self.counts, self._let_others_in)
        letters = DeadLetters(name, cast(Store, store), self._clock(host), max_events=7)
        try:
            sent = [x for p in letters.redrive(Chosen(ids=ids), per_second=rate) for x in p]
        except UnknownDeadLetter:
            assert self.racing
        else:
            self.tell(f"redrive of {name}: {len(sent)} letters")

    def _purge(self) -> None:
        name = self._any_group()
        host = self._host()
        age_ms = self.dice.choice([0, 5_000, HOUR_MS])
        referee = self.referees[name]
        redriven = [each for each in referee.open.values() if each.redriven]
        needed = {place for each in redriven for place in places_of(each.ranges)}
        purged = self._buses[host].dead_letters(name).purge(age_ms)
        assert purged == referee.account.purge(self._time(host) - age_ms + 1, needed)
        self.counts["purged"] += purged
        self.tell(f"purge of {name}: {purged} letters")

    def _maintain(self) -> None:
        """Nothing that a group has not settled is trimmed away."""
        host = self._host()
        self._buses[host].maintain()
        self.tell(f"maintenance on host {host}")

    def _resume(self) -> None:
        name = self._any_group()
        host = self._host()
        with self._call(name, host, Resume(self._time(host))) as group:
            resumed = group.resume()
        if resumed:
            self.tell(f"{name} is resumed: {resumed} deliveries")

    def _seek(self) -> None:
        name = self._any_group()
        host = self._host()
        starts: list[Start] = ["earliest", "earliest", "latest", AtTime(self._time(host) - 5_000)]
        highest = max(bounds.first for bounds in self.store.bounds(["orders", "stock"]).values())
        starts.append(AtOffset(highest + self.dice.randrange(10)))
        start = self.dice.choice(starts)
        own = list(self.referees[name].frontiers)
        some = self.dice.sample(own, self.dice.randint(1, len(own)))
        chosen = some if self.dice.random() < 0.5 else None
        self.tell(f"{name} is sent to {start} in {chosen or 'all partitions'} …")
        intent = Seek(self._time(host), start, tuple(chosen or ()))
        with self._call(name, host, intent) as group:
            moves = group.seek(start, chosen, force=True)
        self.tell(f"{name} was sent: {moves}")

    # Working off.

    def _drain(self, name: str) -> None:
        referee = self.referees[name]
        self.tell(f"{name} is worked off")
        for _ in range(DRAINING):
            self._now_ms += HOUR_MS
            self._skews[PATIENT] = max(0, *self._skews[:HOSTS])
            self._mended = self.configs[name].on_exhausted is OnExhausted.BLOCK
            if any(each.state is State.BLOCKED for each in referee.open.values()):
                with self._call(name, PATIENT, Resume(self._time(PATIENT))) as group:
                    group.resume()
            for delivery in self._reserve(name, PATIENT, nothing_known, None):
                worker = self._begin(name, delivery, PATIENT)
                assert worker is not None
                self._work_off(worker)
            if not self._lag(name):
                break

    def _work_off(self, worker: Worker) -> None:
        events, worker.queue = worker.queue, list(worker.queue)
        for event in events:
            if event in worker.queue:
                worker.queue.remove(event)
                self.referees[worker.group].require_turn(worker.held, place_of(event), worker.own)
                if not worker.wants(event):
                    worker.settle(event, "filtered")
                elif event.is_expired(self._time(PATIENT)) and not worker.held.redriven:
                    worker.settle(event, "expired")
                elif POISON in event.attributes and not self._mended:
                    worker.fail([event], ValueError("poison"), refuse=False)
                else:
                    worker.settle(event, "processed")
        self._tell_bus(worker, worker.report())

    def _lag(self, name: str) -> int:
        return self.store.progress(name, self.configs[name].topics).lag

    # Small help.

    @contextmanager
    def _call(self, name: str, host: int, intent: Intent) -> Iterator[Group]:
        """The group as one actor sees it."""
        store = Raced(self.store, self.referees[name], intent, self.counts, self._let_others_in)
        yield Group(
            self.configs[name], cast(Store, store), self._clock(host), dice=self.dice.random
        )

    def _clock(self, host: int) -> Callable[[], int]:
        return lambda: self._time(host)

    def _time(self, host: int) -> int:
        return self._now_ms + self._skews[host]

    def _host(self) -> int:
        return self.dice.randrange(HOSTS)

    def _any_group(self) -> str:
        return self.dice.choice(list(self.configs))

    def _idle(self) -> list[Worker]:
        striding = {staying.name for staying in self._striding}
        return [
            worker
            for worker in self._workers
            if worker not in self._speaking and worker.name not in striding
        ]

    def _forget(self, worker: Worker) -> None:
        self._living.leave(worker)
        if worker in self._workers:
            self._workers.remove(worker)


def _taken(wish: Wish) -> Delivery:
    assert wish.step.taken
    return wish.step.taken


def _short(delivery: Delivery) -> str:
    ranges = " ".join(map(str, delivery.ranges)) or "nothing"
    return f"{delivery.id[-4:]} ({delivery.state} {ranges}, {len(delivery.errors)} errors)"


def _named(places: object) -> str:
    return " ".join(f"{p.topic}/{p.partition}:{p.offset}" for p in places)  # type: ignore[attr-defined]


def _said(intent: Speak) -> str:
    if not isinstance(intent, Tell):
        return type(intent).__name__
    report = intent.report
    named = {
        "processed": report.processed,
        "filtered": report.filtered,
        "expired": report.expired,
        "returned": report.returned,
        "failed": [(f.ranges, type(f.error).__name__, f.behind) for f in report.failed],
        "refused": [(f.ranges, f.behind) for f in report.refused],
    }
    return str({how: what for how, what in named.items() if what})

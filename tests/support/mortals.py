"""Publishers and workers that are processes of their own, to be killed at any moment.

They are forked from a server that has imported all they need, so that hundreds live and die in
seconds, and each spends its life on work.
"""

import random
import threading
from collections.abc import Callable, Iterable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import monotonic
from typing import NamedTuple

from dagster_bus.core.bus import Bus
from dagster_bus.core.delivery import Delivery
from dagster_bus.core.event import Event, Message
from dagster_bus.core.group_config import Order
from dagster_bus.core.groups import Group
from dagster_bus.core.ranges import Place, Ranges, covering
from dagster_bus.core.reporting import Failed, Report
from dagster_bus.core.store import Store
from dagster_bus.core.topic import TopicConfig
from dagster_bus.errors import LeaseLost, ReservationLost
from dagster_bus.stores import open_store
from tests.support.builders import group_config

TOPIC = TopicConfig("orders", 2)
GROUP = group_config(
    order=Order.KEY, max_events=20, max_inflight=4, lease_ms=300, launch_timeout_ms=300
)

READY = "ready"
BIRTH_S = 60.0
"""How long a process may take to open the store."""

_CONTEXT = get_context("forkserver")
_CONTEXT.set_forkserver_preload([__name__, "pymongo"])


class Said(NamedTuple):
    """What a process has done: to which event, by its place and its id."""

    did: str
    partition: int
    offset: int
    id: str


Say = Callable[[Said], None]
Life = Callable[[Store, random.Random, Say], None]


def publish(store: Store, dice: random.Random, say: Say) -> None:
    bus = open_bus(store)
    for batch in range(50):
        messages = [Message({"batch": batch}, key=dice.choice("abcdef")) for _ in range(5)]
        for at in bus.publish_many("orders", messages):
            say(Said("published", at.partition, at.offset, at.id))
    threading.Event().wait()


def work(store: Store, dice: random.Random, say: Say) -> None:
    group = open_bus(store).group(GROUP.name)
    with store.listen() as listener:
        while True:
            for delivery in group.reserve(most=1):
                try:
                    _work_on(group, delivery, dice, say)
                except (LeaseLost, ReservationLost):
                    continue
            listener.wait(0.02)


def _work_on(group: Group, delivery: Delivery, dice: random.Random, say: Say) -> None:
    held = group.lease(delivery.id, reservation=delivery.reservation, worker="mortal")
    if group.is_exhausted(held):
        group.give_up(held)
        return
    left = list(group.events(held))
    while left:
        count = dice.randint(1, 5)
        some, left = left[:count], left[count:]
        if dice.random() < 0.1:
            keys = {(event.partition, event.key) for event in some}
            behind = [event for event in left if (event.partition, event.key) in keys]
            left = [event for event in left if event not in behind]
            failed = Failed(_at(some), ValueError("bad luck"), behind=_at(behind))
            held = group.report(held, Report(failed=(failed,)))
        else:
            for event in some:
                say(Said("did", event.partition, event.offset, event.id))
            held = group.report(held, Report(processed=_at(some)))


def _at(events: Iterable[Event]) -> Ranges:
    return covering(Place("orders", event.partition, event.offset) for event in events)


def open_bus(store: Store) -> Bus:
    return Bus(store, [TOPIC], [GROUP])


def lived(
    life: Life, url: str, seed: int, longest_s: float, *, from_first_deed: bool
) -> list[Said]:
    """Start a process, let it be for a while, which begins when it is ready or with its first deed,
    kill it, and return what it said till then. One that does nothing is not waited for."""
    hearing, saying = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_live, args=(life, url, seed, saying), daemon=True)
    process.start()
    saying.close()
    with hearing:
        try:
            assert hearing.poll(BIRTH_S), "it never was ready"
            assert hearing.recv() == READY
            if from_first_deed:
                hearing.poll(BIRTH_S if life is publish else longest_s)
            said = _heard(hearing, random.Random(seed).uniform(0, longest_s))
            assert process.is_alive(), "it goes on for as long as it may"
        finally:
            process.kill()
            process.join()
        return said + _heard(hearing, BIRTH_S)


def _heard(hearing: Connection, for_s: float) -> list[Said]:
    """All that is said for a while, or until nobody is left who could say more."""
    said = []
    until = monotonic() + for_s
    while hearing.poll(max(until - monotonic(), 0)):
        try:
            said.append(hearing.recv())
        except EOFError:
            break
    return said


def _live(life: Life, url: str, seed: int, saying: Connection) -> None:
    with open_store(url) as store:
        saying.send(READY)
        life(store, random.Random(seed), saying.send)

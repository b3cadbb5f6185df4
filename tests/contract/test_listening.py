"""Waking readers on every store."""

import subprocess
import sys
import threading
import time
from pathlib import Path

from dagster_bus.core.bus import Bus
from dagster_bus.core.store import Store
from dagster_bus.core.topic import TopicConfig
from tests.support.builders import FakeClock, append, new_batch

PROJECT = Path(__file__).parents[2]
ORDERS = TopicConfig("orders", 2)

PUBLISHER = """
import sys
from dagster_bus.core.topic import TopicConfig
from dagster_bus.stores import open_store
from tests.support.builders import append, new_batch
with open_store(sys.argv[1]) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    append(store, new_batch("orders"))
    sys.stdin.readline()
"""


def test_a_listener_sleeps_until_something_is_appended(store: Store) -> None:
    store.declare([ORDERS])
    with store.listen() as listener:
        while listener.wait(0.3):
            pass  # what was written before may still be heard of
        append(store, new_batch("orders"))
        assert listener.wait(10)
        assert not listener.wait(0.2)


def test_a_listener_hears_of_what_came_before_it_waited(store: Store) -> None:
    store.declare([ORDERS])
    with store.listen() as listener:
        append(store, new_batch("orders"))
        assert listener.wait(10)


def test_a_listener_hears_other_processes(store: Store, store_url: str) -> None:
    store.declare([ORDERS])
    process = subprocess.Popen(
        [sys.executable, "-c", PUBLISHER, store_url],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    with store.listen() as listener:
        while listener.wait(0.3):
            pass
        process.stdin.write("\n")
        process.stdin.flush()
        assert listener.wait(10)
    process.communicate("\n")
    assert process.returncode == 0


def test_waiting_costs_next_to_nothing(store: Store) -> None:
    store.declare([ORDERS])
    with store.listen() as listener:
        while listener.wait(0.3):
            pass
        before = time.process_time()
        assert not listener.wait(1.0)
        assert time.process_time() - before < 0.2


def test_a_reader_that_follows_gets_events_as_they_come(store: Store) -> None:
    store.declare([ORDERS])
    bus = Bus(store, [ORDERS], clock=FakeClock())
    bus.publish_many("orders", range(3))
    seen: list[int] = []
    done = threading.Event()

    def follow() -> None:
        for event in bus.tail("orders", follow=True, go_on=lambda: not done.is_set()):
            seen.append(event.payload)
            if len(seen) == 9:
                return

    reader = threading.Thread(target=follow)
    reader.start()
    for n in range(3, 9):
        bus.publish("orders", n)
    reader.join(30)
    done.set()
    assert sorted(seen) == list(range(9))


def test_a_reader_that_is_told_to_stop_stops(store: Store) -> None:
    store.declare([ORDERS])
    bus = Bus(store, [ORDERS], clock=FakeClock())
    assert list(bus.tail("orders", follow=True, go_on=lambda: False)) == []

"""Publishers and workers as processes of their own, killed at random moments, again and again."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic

import pytest

from dagster_bus.core.groups import Group
from dagster_bus.core.store import Store, Tally
from dagster_bus.stores import open_store
from tests.conftest import STORES, new_store_url
from tests.support.mortals import GROUP, TOPIC, Said, lived, open_bus, publish, work

KILLS = 200
AT_ONCE = 4
LONGEST_LIFE_S = {"sqlite": 0.3, "mongo": 0.6}
"""A life on MongoDB has to be longer for as many deeds."""
PATIENCE_S = 60


def said_by_many(url: str, kills: int, longest_s: float) -> list[Said]:
    """What some processes at a time say, until so many were killed."""
    lives = [publish, work, work]

    def one(seed: int) -> list[Said]:
        life = lives[seed % len(lives)]
        return lived(life, url, seed, longest_s, from_first_deed=seed % 2 == 0)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [said for each in pool.map(one, range(kills)) for said in each]


def work_off(group: Group, store: Store) -> None:
    """A patient worker does all that is left, as soon as the leases of the dead run out."""
    deadline = monotonic() + PATIENCE_S
    with store.listen() as listener:
        while group.progress().lag and monotonic() < deadline:
            for delivery in group.reserve():
                held = group.lease(delivery.id, reservation=delivery.reservation, worker="patient")
                if group.is_exhausted(held):
                    group.give_up(held)
                else:
                    group.settle(held)
            listener.wait(0.01)


@pytest.mark.parametrize("kind", STORES)
def test_whatever_is_killed_what_was_acknowledged_is_accounted_for(
    kind: str, tmp_path: Path
) -> None:
    url = new_store_url(kind, tmp_path)
    with open_store(url) as store:
        store.declare([TOPIC])
        said = said_by_many(url, KILLS, LONGEST_LIFE_S[kind])
        acknowledged = {each[1:] for each in said if each.did == "published"}
        did = {each[1:] for each in said if each.did == "did"}
        bus = open_bus(store)
        group = bus.group(GROUP.name)
        settled_by_the_killed = group.progress().tally.processed
        work_off(group, store)

        logs = [list(bus.read("orders", number)) for number in range(TOPIC.partitions)]
        for log in logs:
            assert [event.offset for event in log] == list(range(1, len(log) + 1)), "no gap"
        stored = {(event.partition, event.offset, event.id) for log in logs for event in log}
        assert acknowledged
        assert acknowledged <= stored
        assert 0 < settled_by_the_killed <= len(did), "what was settled was done"
        progress = group.progress()
        letters = bus.dead_letters(GROUP.name).list(limit=len(stored))
        dead = {(each.event.partition, each.event.offset) for each in letters}
        assert len(dead) == len(letters), "an event dies once"
        assert (progress.published, progress.lag) == (len(stored), 0)
        assert progress.tally == Tally(
            processed=len(stored) - len(dead), dead_lettered=len(dead)
        ), "each event has ended once"

"""Some hundred histories on every run; `make simulate` goes through thousands."""

from collections import Counter

import pytest

from dagster_bus.stores import open_store
from tests.simulation.racing import Raced
from tests.simulation.running import WentWrong, run
from tests.support.mongo import fresh_database_url

SEEDS = 200
SEEDS_ON_MONGO = 6
CORNERS = [
    "abandoned",
    "abandoned in part",
    "began elsewhere",
    "behind",
    "buried",
    "buried again",
    "circuit opened",
    "given up",
    "given up, and blocked",
    "isolated",
    "joined",
    "lease lost",
    "looker vanished",
    "part blocked",
    "part waiting",
    "probe",
    "purged",
    "reported in parts",
    "reservation extended",
    "reservation lost",
    "reserved again",
    "reserved together",
    "resumed",
    "returned",
    "sent back",
    "stale",
    "strides",
    "taken",
    "too late to start",
    "worker vanished",
]


def test_every_event_is_accounted_for_in_hundreds_of_histories() -> None:
    """And the dice have reached every corner."""
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        counts += run(seed)
    assert [corner for corner in CORNERS if not counts[corner]] == []


def test_a_store_on_a_server_tells_the_same_histories() -> None:
    for seed in range(SEEDS_ON_MONGO):
        on_file: list[str] = []
        on_server: list[str] = []
        run(seed, tell=on_file.append)
        with open_store(fresh_database_url()) as store:
            run(seed, store, tell=on_server.append)
        assert on_file == on_server


def test_a_seed_tells_the_same_history_every_time() -> None:
    first: list[str] = []
    again: list[str] = []
    run(7, tell=first.append)
    run(7, tell=again.append)
    assert first == again
    assert len(first) > 100


def test_a_history_that_goes_wrong_says_how_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Raced, "commit", lambda self, change: None)  # a store that forgets
    with pytest.raises(WentWrong, match=r"seed 3 went wrong[^$]*…[^$]*make simulate SEED=3"):
        run(3)

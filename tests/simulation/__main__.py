"""Run thousands of histories, or see one again: python -m tests.simulation --seeds 1000."""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable

from dagster_bus.core.store import Store
from dagster_bus.stores import open_memory_store, open_store
from tests.simulation.running import WentWrong, run
from tests.support import mongo


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000, help="how many histories")
    parser.add_argument("--first", type=int, default=0, help="the seed to begin with")
    parser.add_argument("--seed", type=int, help="one history, told from its beginning")
    parser.add_argument("--store", choices=["sqlite", "mongo"], default="sqlite")
    asked = parser.parse_args()
    try:
        if asked.seed is not None:
            return _see(asked.seed, STORES[asked.store])
        seeds = range(asked.first, asked.first + asked.seeds)
        return _run_all(seeds, STORES[asked.store])
    finally:
        mongo.pytest_sessionfinish()


def _open_mongo_store() -> Store:
    mongo.drop_databases()  # those of the histories before
    return open_store(mongo.fresh_database_url())


STORES = {"sqlite": open_memory_store, "mongo": _open_mongo_store}


def _see(seed: int, new_store: Callable[[], Store]) -> int:
    try:
        counts = run(seed, new_store(), tell=print)
    except WentWrong as error:
        raise error.__cause__ or error from None
    _print_counts(counts)
    print(f"seed {seed}: every event is accounted for")
    return 0


def _run_all(seeds: range, new_store: Callable[[], Store]) -> int:
    began = time.monotonic()
    counts: Counter[str] = Counter()
    wrong = []
    for done, seed in enumerate(seeds, 1):
        try:
            counts += run(seed, new_store())
        except WentWrong as error:
            wrong.append(seed)
            print(f"\n{error}\n", file=sys.stderr)
        if not sys.stdout.isatty() and done < len(seeds):
            continue
        spent = time.monotonic() - began
        print(f"\r{done} of {len(seeds)} histories, {len(wrong)} went wrong, {spent:.0f} s", end="")
    print()
    _print_counts(counts)
    if wrong:
        print(f"went wrong: {', '.join(map(str, wrong))}", file=sys.stderr)
    return 1 if wrong else 0


def _print_counts(counts: Counter[str]) -> None:
    print(", ".join(f"{number:,} × {what}" for what, number in counts.most_common() if number))


if __name__ == "__main__":
    sys.exit(main())

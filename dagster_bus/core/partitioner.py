"""Which partition an event goes to.

Keyed events use the hash that JavaScript producers compute with `charCodeAt`, so that both sides
send a key to the same partition. Events without a key take turns.
"""

import itertools
import random
from functools import lru_cache


@lru_cache(maxsize=65_536)
def partition_of_key(key: str, partitions: int) -> int:
    """`abs(h) mod partitions`, where h = 31·h + code unit in signed 32 bits over UTF-16 units."""
    hashed = 0
    encoded = key.encode("utf-16-le", "surrogatepass")
    for unit in memoryview(encoded).cast("H"):
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    if hashed >= 0x80000000:
        hashed -= 0x100000000
    return abs(hashed) % partitions


class Partitioner:
    """Spreads events over partitions. Safe to share between threads."""

    def __init__(self) -> None:
        self._turn = itertools.count(random.randrange(1 << 16))

    def choose(self, key: str | None, partitions: int) -> int:
        if partitions == 1:
            return 0
        if key is None:
            return next(self._turn) % partitions
        return partition_of_key(key, partitions)

"""Which partition an event goes to.

Keyed events use the hash that JavaScript producers compute with `charCodeAt`, so that both sides
send a key to the same partition. Events without a key take turns.
"""

import random
import threading
from collections.abc import Sequence
from functools import lru_cache

LONGEST_REMEMBERED = 64
"""A key of more characters is computed anew: remembering many of those would take much memory."""


def partition_of_key(key: str, partitions: int) -> int:
    """`abs(h) mod partitions`, where h = 31·h + code unit in signed 32 bits over UTF-16 units."""
    hashed = 0
    encoded = key.encode("utf-16-le", "surrogatepass")
    for unit in memoryview(encoded).cast("H"):
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    if hashed >= 0x80000000:
        hashed -= 0x100000000
    return abs(hashed) % partitions


_partition_of_short_key = lru_cache(maxsize=65_536)(partition_of_key)


class Partitioner:
    """Spreads events over partitions. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turn = random.randrange(1 << 16)

    def choose(self, keys: Sequence[str | None], partitions: int) -> list[int]:
        """A partition for each event, by its key."""
        if partitions == 1:
            return [0] * len(keys)
        turn = self._take_turns(keys.count(None))
        chosen = []
        for key in keys:
            if key is None:
                chosen.append(turn % partitions)
                turn += 1
            elif len(key) <= LONGEST_REMEMBERED:
                chosen.append(_partition_of_short_key(key, partitions))
            else:
                chosen.append(partition_of_key(key, partitions))
        return chosen

    def _take_turns(self, count: int) -> int:
        with self._lock:
            turn = self._turn
            self._turn += count
            return turn

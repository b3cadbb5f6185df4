"""What tells rows apart, so that writing them again publishes nothing twice.

A row is known by what it says: topic, key, payload, attributes and priority. Equal rows of one task
are numbered. Neither depends on the order in which Spark hands rows to a task, which may change
when the task is tried again.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dagster_bus.errors import UsageError

Hashes = NDArray[np.uint64]

DIGEST_BYTES = 16


def digest(*parts: str | None) -> bytes:
    """Of what a row says."""
    hashed = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        encoded = b"" if part is None else part.encode()
        hashed.update(b"-" if part is None else str(len(encoded)).encode() + b":")
        hashed.update(encoded)
    return hashed.digest()


def hashes_of(digests: Sequence[bytes]) -> Hashes:
    """The first eight bytes of each."""
    pairs: NDArray[Any] = np.frombuffer(b"".join(digests), dtype=np.uint64).reshape(-1, 2)
    return pairs[:, 0].copy()


class Numbering:
    """Numbers equal rows of a task from 0 on. Remembers eight bytes of each row: sorted runs, each
    less than half as long as the one before it."""

    def __init__(self) -> None:
        self._runs: list[Hashes] = []

    def numbers(self, hashes: Hashes) -> NDArray[np.int64]:
        """How many rows like it came before each row."""
        before = np.zeros(len(hashes), dtype=np.int64)
        for run in self._runs:
            before += np.searchsorted(run, hashes, "right") - np.searchsorted(run, hashes, "left")
        order = np.argsort(hashes, kind="stable")
        run = hashes[order]
        among_them = np.arange(len(run)) - np.searchsorted(run, run, "left")
        before[order] += among_them
        self._remember(run)
        return before

    def _remember(self, run: Hashes) -> None:
        self._runs.append(run)
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            last = self._runs.pop()
            self._runs[-1] = np.sort(np.concatenate((self._runs[-1], last)))

    def distinct(self) -> Hashes:
        """The hash of each row that is there, once."""
        if not self._runs:
            return np.zeros(0, dtype=np.uint64)
        return np.unique(np.concatenate(self._runs))


def require_apart(tasks: Iterable[Hashes]) -> None:
    """Equal rows of different tasks got the same number, and became one event: refuse that."""
    together = np.sort(np.concatenate([np.zeros(0, dtype=np.uint64), *tasks]))
    doubled = int(np.count_nonzero(together[1:] == together[:-1]))
    if doubled:
        raise UsageError(
            f"{doubled:,} rows equal rows of other tasks, and nothing tells them apart: each was "
            'published once. Bring equal rows into one task, as with .repartition("key", "payload")'
            ", or name their column of idempotency keys, and write again with the same writeId: "
            "then just the missing ones are added"
        )

"""Which events of a batch repeat an idempotency key. Pure: what is known already is handed in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dagster_bus.core.event import Batch, Published


@dataclass(frozen=True, slots=True)
class Sifted:
    """A batch without its duplicates, and how to tell the publisher of all its events."""

    fresh: Batch
    _answers: Sequence[Published | tuple[int, bool]]
    """For each event a place known before, or its place among the fresh ones and whether it only
    repeats that one."""

    def published(self, fresh: Sequence[Published]) -> list[Published]:
        """Where every event of the batch stands, now that the fresh ones have their places."""
        return [
            answer
            if isinstance(answer, Published)
            else fresh[answer[0]]._replace(duplicate=answer[1])
            for answer in self._answers
        ]


class Known(NamedTuple):
    """An event that had a key, and the time it was given: its own, if it comes from another log,
    and not the one that its place in the log allows."""

    at: Published
    given_ms: int


def sift(batch: Batch, known: Mapping[str, Known], now_ms: int) -> Sifted:
    """Take out the events whose idempotency key is known, or comes earlier in the batch, from not
    longer ago than the batch's window. An event of another log is judged by its own time."""
    answers: list[Published | tuple[int, bool]] = []
    places: list[int] = []
    earlier: dict[str, tuple[int, int]] = {}
    pairs = zip(batch.idempotency_keys, given_times(batch, now_ms), strict=True)
    for place, (key, time) in enumerate(pairs):
        since_ms = time - batch.dedup_ms
        if key is None:
            answers.append((len(places), False))
            places.append(place)
        elif key in earlier and earlier[key][1] > since_ms:
            answers.append((earlier[key][0], True))
        elif key not in earlier and key in known and known[key].given_ms > since_ms:
            answers.append(known[key].at._replace(duplicate=True))
        else:
            earlier[key] = (len(places), time)
            answers.append((len(places), False))
            places.append(place)
    fresh = batch if len(places) == batch.length else batch.take(places)
    return Sifted(fresh, answers)


def given_times(batch: Batch, now_ms: int) -> Sequence[int]:
    """When each event was given, by its publisher and the clock."""
    if batch.times is None:
        return [now_ms] * batch.length
    return [now_ms if time is None else min(time, now_ms) for time in batch.times]


def keys_to_sift(batch: Batch) -> list[str]:
    """The idempotency keys that must be looked up before the batch is appended."""
    keys = batch.idempotency_keys
    if not batch.dedup_ms or keys.count(None) == len(keys):
        return []
    return list({key: None for key in keys if key is not None})

"""What became of the events of one delivery, until it is reported.

Each commit costs a store far more than the events in it. So outcomes are written down here first,
and reported many at a time.
"""

from collections.abc import Iterable

from dagster_bus.core.delivery import Delivery
from dagster_bus.core.ranges import Place, covering
from dagster_bus.core.reporting import Failed, Report
from dagster_bus.live.jobs import Job, in_words
from dagster_bus.live.pace import flush_at


class _Fate:
    """Events that failed in the same way."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.places: list[Place] = []
        self.behind: list[Place] = []


class Ledger:
    """One delivery in the hands of a worker."""

    def __init__(self, held: Delivery) -> None:
        self.held = held
        self._processed: list[Place] = []
        self._filtered: list[Place] = []
        self._expired: list[Place] = []
        self._returned: list[Place] = []
        self._failed: dict[tuple[type, str, bool], _Fate] = {}
        self._told = 0
        self._first_s = 0.0
        self._last_s = 0.0

    @property
    def is_complete(self) -> bool:
        """Whether nothing of the delivery is without an outcome."""
        return self._told >= self.held.size

    @property
    def has_news(self) -> bool:
        """Whether there is something to report."""
        return self._told > 0

    def is_due(self, now_s: float) -> bool:
        """Whether it is time to report. What was simply done can wait for a moment: the worker may
        take its next events, and say so together."""
        return self.has_news and (
            now_s >= self.flush_at or (self.is_complete and not self.is_plain)
        )

    @property
    def is_plain(self) -> bool:
        """Whether all events that were told of were dealt with."""
        return not (self._failed or self._returned)

    @property
    def flush_at(self) -> float:
        """When to report what is here; never if that is nothing."""
        return flush_at(self._first_s, self._last_s) if self._told else float("inf")

    def processed(self, job: Job, now_s: float) -> None:
        self._processed.append(job.place)
        self._note(1, now_s)

    def left_out(self, filtered: Iterable[Place], expired: Iterable[Place], now_s: float) -> None:
        """Events that are not handed to the handler."""
        before = len(self._filtered) + len(self._expired)
        self._filtered += filtered
        self._expired += expired
        self._note(len(self._filtered) + len(self._expired) - before, now_s)

    def returned(self, jobs: Iterable[Job], now_s: float) -> None:
        """Events that somebody else is to do."""
        places = [job.place for job in jobs]
        self._returned += places
        self._note(len(places), now_s)

    def failed(self, job: Job, error: BaseException, behind: Iterable[Job], now_s: float) -> None:
        """An event that failed, and those that have to wait with it. What fails with the same
        words, and as often, is tried again together, so that a breakdown does not end in thousands
        of waits."""
        kind = (type(error), in_words(error), self.held.is_behind(job.place))
        fate = self._failed.setdefault(kind, _Fate(error))
        waiting = [other.place for other in behind]
        fate.places.append(job.place)
        fate.behind += waiting
        self._note(1 + len(waiting), now_s)

    def report(self) -> Report:
        """All that is not reported yet."""
        return Report(
            processed=covering(self._processed),
            filtered=covering(self._filtered),
            expired=covering(self._expired),
            failed=tuple(
                Failed(covering(fate.places), fate.error, covering(fate.behind))
                for fate in self._failed.values()
            ),
            returned=covering(self._returned),
        )

    def reported(self, held: Delivery) -> None:
        """The report was taken, and this is left of the delivery."""
        self.held = held
        self._told = 0
        for places in (self._processed, self._filtered, self._expired, self._returned):
            places.clear()
        self._failed.clear()

    def _note(self, count: int, now_s: float) -> None:
        if count:
            self._first_s = self._first_s if self._told else now_s
            self._last_s = now_s
            self._told += count

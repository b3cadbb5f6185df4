"""Which events of a batch fail alone: found by trying parts of it, inside one Spark session.

Nothing of a trial is kept. Once the bad events are known they are reported, and what is left is
done as one batch, so that results over many rows are right and files are few.
"""

import logging

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from dagster_bus.core.delivery import Delivery
from dagster_bus.core.isolating import Findings, Poison, isolate
from dagster_bus.core.lease import Keeper
from dagster_bus.core.ranges import Ranges
from dagster_bus.core.reporting import Failed, Report
from dagster_bus.errors import DeliveryError, PipelineError, StoreError
from dagster_bus.spark.expecting import PLACE, judge, unjudged, without_corrupt
from dagster_bus.spark.frames import EVENT
from dagster_bus.spark.handover import OpenSession
from dagster_bus.spark.pipeline import Produced
from dagster_bus.spark.processing import Work, events_of, produce, rows_to_publish
from dagster_bus.spark.publishing import prepare_rows

LOGGER = logging.getLogger("dagster_bus")

MOST_LOOKS = 3
"""How many workers may look for the bad events in vain before all events are given up."""

TRIES_OF_EXECUTORS = 3
"""How often in a row executors must die over the same events before that is held against them."""

LOST = ("ExecutorLostFailure", "exited unexpectedly", "Lost executor", "ExecutorDeadException")
"""What Spark says when a process of its own died, and no code failed."""


def is_worth_isolating(held: Delivery) -> bool:
    """Whether looking for bad events is likely to come to an end: if workers vanish or fail over
    that again and again, it is not."""
    return held.looks < MOST_LOOKS


def set_poison_apart(open_session: OpenSession, work: Work, keeper: Keeper) -> Findings:
    """Report the events that fail alone, each with its own error; the rest stays with the keeper.
    An error that comes without any event is the pipeline's own, and no event is tried then."""
    held = keeper.held
    with events_of(open_session, work, keeper) as handed:
        events = handed.frame.persist()
        seen = without_corrupt(events) if work.corrupt == "dead_letter" else events
        try:
            found = _findings(held, _Trials(seen, work, keeper))
        finally:
            events.unpersist()
    LOGGER.info("%s: %d bad parts in %d trials", held.id, len(found.poison), found.trials)
    if found.poison:
        keeper.report(
            Report(failed=tuple(Failed(each.ranges, each.error) for each in found.poison))
        )
    return found


def _findings(held: Delivery, trials: "_Trials") -> Findings:
    broken = trials(())
    if broken is not None:
        return Findings([Poison(held.ranges, broken)], 1)
    last = held.errors[-1]
    found = isolate(held.ranges, PipelineError(f"{last.type}: {last.message}"), trials)
    found.trials += 1
    return found


class _Trials:
    """Runs the pipeline on parts of a delivery, whose events were read once."""

    def __init__(self, events: DataFrame, work: Work, keeper: Keeper) -> None:
        self._events = events
        self._work = work
        self._keeper = keeper
        self._strict = [each for each in work.expectations if each.on_violation == "fail"]

    def __call__(self, ranges: Ranges) -> BaseException | None:
        self._keeper.check()
        error = self._run(ranges)
        for _ in range(TRIES_OF_EXECUTORS - 1):
            if error is None or not is_lost_executor(error):
                break
            LOGGER.warning("executors died over %s: once more", ", ".join(map(str, ranges)))
            error = self._run(ranges)
        return error

    def _run(self, ranges: Ranges) -> BaseException | None:
        try:
            produced = produce(self._work, self._events.filter(_inside(ranges)))
            for frame in unjudged(produced, self._work.expectations):
                frame.write.format("noop").mode("overwrite").save()
            if self._work.publish is not None:
                rows = rows_to_publish(self._work, produced, keep=lambda frame: frame)
                prepare_rows(rows, self._work.publish, self._keeper)
            elif self._strict:
                judge(Produced(produced.results), self._strict, keep=lambda frame: frame)
        except (DeliveryError, StoreError):
            raise
        except Exception as error:  # noqa: BLE001  (whatever it is, it is the finding)
            return error
        return None


def _inside(ranges: Ranges) -> Column:
    """Whether an event lies in one of some ranges."""
    inside = F.lit(False)
    for part in ranges:
        topic, partition, offset = (F.col(f"{EVENT}.{name}") for name in PLACE)
        here = (topic == part.topic) & (partition == part.partition)
        inside = inside | (here & offset.between(part.first, part.last))
    return inside


def is_lost_executor(error: BaseException) -> bool:
    """Whether a process of Spark's died, by a signal or for want of memory."""
    said = str(error)
    return any(word in said for word in LOST)

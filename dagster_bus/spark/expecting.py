"""What every row must fulfil, and which events are refused because theirs do not.

A condition that is neither true nor false, because something in it is null, is not fulfilled. An
event is refused as a whole: if one of its rows is, none of them reaches a table.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from dagster_bus.core.failure import message_of
from dagster_bus.core.ranges import Place
from dagster_bus.errors import PipelineError
from dagster_bus.spark.frames import CORRUPT, EVENT
from dagster_bus.spark.pipeline import ONLY, REASON, Produced

VIOLATED = "_violated"

PLACE = ("topic", "partition", "offset")


@dataclass(frozen=True, slots=True)
class Expectation:
    """A condition in SQL over the columns of the result."""

    name: str
    condition: str
    on_violation: Literal["dead_letter", "drop", "fail"] = "dead_letter"

    def __str__(self) -> str:
        return f"{self.name}: {self.condition}"

    def violated(self) -> Column:
        """The condition's name where it is not fulfilled."""
        fulfilled = F.coalesce(F.expr(f"({self.condition})").cast("boolean"), F.lit(False))
        return F.when(~fulfilled, F.lit(self.name))


@dataclass(slots=True)
class Judged:
    """Results of which only rows are left that may reach a table."""

    results: dict[str, DataFrame]
    refused: dict[Place, str] = field(default_factory=dict)
    """Events that are given up on, and why."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Rows that were left out, by condition."""


Keep = Callable[[DataFrame], DataFrame]
"""Has Spark keep what will be looked at more than once, until all is done."""


def judge(produced: Produced, expectations: Iterable[Expectation], keep: Keep) -> Judged:
    """Run the pipeline, and sort out what may not reach a table. Raises PipelineError if a
    condition is not fulfilled whose violation fails the batch."""
    conditions = {each.name: each for each in expectations}
    judged = Judged(dict(produced.results))
    if produced.rejected is not None:
        _note(judged, produced.rejected.select(EVENT, F.col(REASON).cast("string")), str)
    if not conditions:
        return judged
    for name, frame in produced.results.items():
        _sort_out(judged, name, keep(_marked(name, frame, conditions)), conditions)
    return judged


def without_refused(frame: DataFrame, refused: Iterable[Place]) -> DataFrame:
    """The rows of a result that do not come from refused events, without the envelope."""
    if EVENT not in frame.columns:
        return frame
    places = [*refused]
    if places:
        gone = frame.sparkSession.createDataFrame(
            places, "topic string, partition int, offset bigint"
        )
        same = [F.col(f"{EVENT}.{part}") == gone[part] for part in PLACE]
        frame = frame.join(F.broadcast(gone), same, "left_anti")
    return frame.drop(EVENT)


def split_off_corrupt(events: DataFrame, keep: Keep) -> tuple[DataFrame, dict[Place, str]]:
    """The events whose payload fits the columns, and the places of the others."""
    judged = Judged({})
    events = keep(events)
    _note(
        judged,
        events.filter(F.col(CORRUPT).isNotNull()).select(EVENT, F.lit("").alias(REASON)),
        lambda _: "the payload does not fit the columns of its topic",
    )
    return without_corrupt(events), judged.refused


def without_corrupt(events: DataFrame) -> DataFrame:
    """The events whose payload fits the columns."""
    return events.filter(F.col(CORRUPT).isNull()).drop(CORRUPT)


def unjudged(produced: Produced, expectations: Iterable[Expectation]) -> Iterator[DataFrame]:
    """All that judging would look at: whatever would fail then fails as these are computed."""
    conditions = {each.name: each for each in expectations}
    for name, frame in produced.results.items():
        yield _marked(name, frame, conditions) if conditions else frame
    if produced.rejected is not None:
        yield produced.rejected.select(EVENT, F.col(REASON).cast("string"))


def _marked(name: str, frame: DataFrame, conditions: Mapping[str, Expectation]) -> DataFrame:
    """The rows, each with the names of the conditions that it violates."""
    of_result = f" of result {name!r}" if name != ONLY else ""
    refusing = [each.name for each in conditions.values() if each.on_violation == "dead_letter"]
    if refusing and EVENT not in frame.columns:
        raise PipelineError(
            f"expect.{refusing[0]} sends events to the dead letters, so the rows{of_result} must "
            f"say which event they come from: select {EVENT} too; no table gets it"
        )
    for each in conditions.values():
        try:
            frame.select(each.violated()).schema  # noqa: B018  (Spark looks at it)
        except Exception as error:  # noqa: BLE001  (what it says is passed on)
            raise PipelineError(
                f"expect.{each} cannot be asked{of_result}: {message_of(error)}"
            ) from None
    found = F.array_compact(F.array(*(each.violated() for each in conditions.values())))
    return frame.withColumn(VIOLATED, found)


def _sort_out(
    judged: Judged, name: str, marked: DataFrame, conditions: Mapping[str, Expectation]
) -> None:
    bad = marked.filter(F.size(VIOLATED) > 0)
    names = bad.select(F.explode(VIOLATED).alias("name")).groupBy("name").count().collect()
    for condition, count in names:
        each = conditions[condition]
        if each.on_violation == "fail":
            raise PipelineError(f"expect.{each} is not fulfilled by {count} rows")
        if each.on_violation == "drop":
            judged.dropped[condition] = judged.dropped.get(condition, 0) + count
    refusing = _named(conditions, "dead_letter")
    dropping = _named(conditions, "drop")
    if names and refusing:
        first = F.array_intersect(VIOLATED, _texts(refusing))[0].alias(REASON)
        refused = bad.select(EVENT, first).filter(F.col(REASON).isNotNull())
        _note(judged, refused, lambda condition: f"expect.{conditions[condition]}")
    kept = marked.filter(~F.arrays_overlap(VIOLATED, _texts(dropping))) if dropping else marked
    judged.results[name] = kept.drop(VIOLATED)


def _note(judged: Judged, refused: DataFrame, say: Callable[[str], str]) -> None:
    """Note which events are refused. Whoever refuses one first has given the reason."""
    columns = [F.col(f"{EVENT}.{part}").alias(part) for part in PLACE]
    for topic, partition, offset, reason in refused.select(*columns, REASON).distinct().collect():
        if topic is None:
            raise PipelineError(f"a refused row has no {EVENT}: it cannot be said whose it is")
        judged.refused.setdefault(Place(topic, partition, offset), say(reason))


def _named(conditions: Mapping[str, Expectation], kind: str) -> list[str]:
    return [each.name for each in conditions.values() if each.on_violation == kind]


def _texts(names: list[str]) -> Column:
    return F.array(*(F.lit(name) for name in names))

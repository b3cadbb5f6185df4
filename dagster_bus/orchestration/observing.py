"""Looks at all topics and groups, for the plots of their assets; and what that means for checks.

A sensor does it, as that needs no run. One tick looks at a bounded number of them and the next one
goes on from there, so that a tick's time does not grow with the project. The sensor's cursor holds
the place, and the topics' ends as they were last seen; if it is lost, one rate is not known.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagster import (
    AssetCheckEvaluation,
    AssetObservation,
    DefaultSensorStatus,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    sensor,
)

from dagster_bus.core.clock import system_clock
from dagster_bus.core.standing import Standing, standing_of
from dagster_bus.core.store import Bounds
from dagster_bus.core.topic import TopicPartition
from dagster_bus.opening import Bus
from dagster_bus.orchestration.checks import verdicts
from dagster_bus.orchestration.names import OBSERVE, asset_of, topic_key
from dagster_bus.orchestration.resources import BusResource
from dagster_bus.spec.load import LoadedSpec

EVERY_S = 30
AT_ONCE = 200
"""Topics and groups that one tick looks at."""


@dataclass(slots=True)
class Seen:
    """What the sensor remembers."""

    place: int = 0
    ends: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By topic, the time of the last look and how many events there had ever been."""

    @classmethod
    def from_cursor(cls, cursor: str | None) -> "Seen":
        if not cursor:
            return cls()
        place, ends = json.loads(cursor)
        return cls(place, {topic: (ms, count) for topic, (ms, count) in ends.items()})

    def as_cursor(self) -> str:
        return json.dumps([self.place, self.ends])


def build_observing(loaded: LoadedSpec, groups: Sequence[str]) -> SensorDefinition:
    """The sensor that looks at the durable topics, and at groups that have assets."""
    topics = [name for name, topic in loaded.topics.items() if topic.durable]

    @sensor(
        name=OBSERVE,
        minimum_interval_seconds=EVERY_S,
        default_status=DefaultSensorStatus.RUNNING,
        description="Observes topics and groups: ends, rates, lag, age, dead letters. Starts no "
        "runs.",
    )
    def observe_bus(context: SensorEvaluationContext, bus: BusResource) -> SensorResult:
        seen = Seen.from_cursor(context.cursor)
        all_ = [*(("topic", name) for name in topics), *(("group", name) for name in groups)]
        chosen = [all_[place % len(all_)] for place in range(seen.place, seen.place + AT_ONCE)]
        chosen = list(dict.fromkeys(chosen))
        with bus.open() as opened:
            events = [*_observed(loaded, opened, chosen, seen)]
        seen.place = (seen.place + len(chosen)) % len(all_)
        return SensorResult(asset_events=events, cursor=seen.as_cursor())

    return observe_bus


def _observed(
    loaded: LoadedSpec, bus: Bus, chosen: Sequence[tuple[str, str]], seen: Seen
) -> Iterator[AssetObservation | AssetCheckEvaluation]:
    groups = [name for kind, name in chosen if kind == "group"]
    topics = [name for kind, name in chosen if kind == "topic"]
    standings = {name: standing_of(bus, bus.group(name)) for name in groups}
    yield from _of_topics(bus, topics, standings, seen)
    for name, standing in standings.items():
        dead = sum(bus.dead_letters(name).counts().values())
        yield AssetObservation(
            asset_of(name, loaded.spec.groups[name]), metadata=group_metadata(standing, dead)
        )
        for verdict in verdicts(name, loaded.spec.groups[name], standing, dead):
            yield verdict.evaluation()


def group_metadata(standing: Standing, dead: int) -> dict[str, Any]:
    progress = standing.progress
    return {
        "lag": standing.lag,
        "oldest event (s)": standing.age_ms(system_clock()) / 1000,
        "dead letters": dead,
        "processed": progress.tally.processed,
        "filtered": progress.tally.filtered,
        "in runs": progress.reserved + progress.running,
        "waiting for retry": progress.waiting,
    }


def _of_topics(
    bus: Bus, topics: Sequence[str], standings: Mapping[str, Standing], seen: Seen
) -> Iterator[AssetObservation]:
    if not topics:
        return
    now_ms, bounds = system_clock(), bus.bounds(*topics)
    own: dict[str, dict[TopicPartition, Bounds]] = {name: {} for name in topics}
    for at, each in bounds.items():
        own[at.topic][at] = each
    for name in topics:
        published = sum(each.end - 1 for each in own[name].values())
        metadata: dict[str, Any] = {
            "end offset": max((each.end for each in own[name].values()), default=1),
            "published": published,
            "retained": sum(each.end - each.first for each in own[name].values()),
        }
        before = seen.ends.get(name)
        if before is not None and now_ms > before[0]:
            minutes = (now_ms - before[0]) / 60_000
            metadata["events per minute"] = (published - before[1]) / minutes
        seen.ends[name] = (now_ms, published)
        for group, standing in standings.items():
            lags = [each.lag for each in standing.partitions if each.at.topic == name]
            if lags:
                metadata[f"lag of {group}"] = sum(lags)
        yield AssetObservation(topic_key(name), metadata=metadata)

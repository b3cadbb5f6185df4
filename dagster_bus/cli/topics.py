"""`dagster-bus topics` and `dagster-bus prune`"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from dagster_bus.cli.mapping import called_in_dagster
from dagster_bus.cli.output import as_time, print_json, print_rows
from dagster_bus.core.store import Bounds
from dagster_bus.core.topic import TopicConfig, TopicPartition
from dagster_bus.opening import Bus
from dagster_bus.spec.load import load_spec


@click.command()
@click.argument("patterns", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with each partition.")
@click.option("--dagster", is_flag=True, help="Show what topics and groups are called in Dagster.")
@click.pass_obj
def topics(file: str, patterns: tuple[str, ...], as_json: bool, dagster: bool) -> None:
    """Show what each topic holds, of all topics or those that PATTERNS select.

    With --dagster the store is not asked: it shows the assets, jobs and sensors that the topics,
    and the groups that read them, become."""
    if dagster:
        called = called_in_dagster(load_spec(file), patterns)
        rows = [{key: value or "" for key, value in each.items()} for each in called]
        print_json(called) if as_json else print_rows(rows, empty="no topics are declared")
        return
    with Bus.open(file, create=False) as bus:
        names = bus.select(*patterns)
        configs = [config for config in bus.topics if config.name in names]
        bounds = bus.bounds(*names)
    summaries = [_summary(config, bounds) for config in configs]
    if as_json:
        print_json(summaries)
    else:
        print_rows([_row(each) for each in summaries], empty="no topics are declared")


@click.command()
@click.argument("patterns", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def prune(file: str, patterns: tuple[str, ...], as_json: bool) -> None:
    """Apply retention and compaction now, to all topics or those that PATTERNS select.

    Events that a group has not settled yet stay until it has."""
    with Bus.open(file, create=False) as bus:
        done = bus.maintain(*bus.select(*patterns))
    if as_json:
        print_json([asdict(each) for each in done])
        return
    rows = [
        {
            "topic": each.topic,
            "trimmed": each.trimmed,
            "compacted": each.compacted,
            "held back": each.held,
            "by": ", ".join(each.by),
        }
        for each in done
    ]
    print_rows(rows, empty="no topics are declared")


def _summary(config: TopicConfig, bounds: Mapping[TopicPartition, Bounds]) -> dict[str, Any]:
    own = {at.partition: each for at, each in bounds.items() if at.topic == config.name}
    last_ts = max((each.last_ts for each in own.values()), default=0)
    return {
        "topic": config.name,
        "partitions": config.partitions,
        "durable": config.durable,
        "published": sum(each.end - 1 for each in own.values()),
        "trimmed": sum(each.first - 1 for each in own.values()),
        "last_ts": last_ts or None,
        "schema_version": config.schema.current if config.schema else None,
        "strict": config.schema.strict if config.schema else False,
        "offsets": [
            {"partition": number, "first": each.first, "end": each.end}
            for number, each in own.items()
        ],
    }


def _row(summary: Mapping[str, Any]) -> dict[str, Any]:
    version = summary["schema_version"]
    kind = f"v{version}{', strict' if summary['strict'] else ''}" if version else "none"
    return {
        "topic": summary["topic"],
        "parts": summary["partitions"],
        "published": summary["published"],
        "trimmed": summary["trimmed"],
        "schema": kind if summary["durable"] else f"{kind}, in memory",
        "newest": as_time(summary["last_ts"])[:19] if summary["last_ts"] else "",
    }

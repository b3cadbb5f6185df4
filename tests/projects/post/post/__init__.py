"""What Dagster loads: definitions as a user has them, with sensors that mishaps can befall."""

from pathlib import Path

from dagster import Definitions

from dagster_bus import load_definitions
from post.jobs import deliver
from post.mishaps import fragile


def definitions() -> Definitions:
    loaded = load_definitions(Path(__file__).parent.parent / "topics.yaml")
    return Definitions(
        assets=loaded.assets,
        asset_checks=loaded.asset_checks,
        schedules=loaded.schedules,
        sensors=[fragile(each) for each in loaded.sensors or ()],
        jobs=[*(loaded.jobs or ()), deliver],
        resources=loaded.resources,
        executor=loaded.executor,
    )


defs = definitions()

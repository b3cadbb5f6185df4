"""The web shop, as Dagster loads it (see workspace.yaml)."""

from pathlib import Path

from dagster_bus import load_definitions

defs = load_definitions(Path(__file__).parent.parent / "topics.yaml")

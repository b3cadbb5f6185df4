"""What Dagster loads."""

from pathlib import Path

from dagster import Definitions

from dagster_bus import load_definitions
from shop.jobs import mail_letters

defs = Definitions.merge(
    load_definitions(Path(__file__).parent.parent / "topics.yaml"),
    Definitions(jobs=[mail_letters]),
)

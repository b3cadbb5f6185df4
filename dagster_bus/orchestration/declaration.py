"""What an asset tells of its declaration: its place in topics.yaml, and where to read more."""

from dagster import MetadataValue

from dagster_bus.spec.hints import Path
from dagster_bus.spec.load import LoadedSpec


def declaration(loaded: LoadedSpec, path: Path, docs: str | None) -> dict[str, object]:
    """No place for what is not written there, as the bus's own topics."""
    found: dict[str, object] = {"docs": MetadataValue.url(docs)} if docs else {}
    if loaded.is_written(*path):
        place = loaded.problem(path, "")
        found["declared in"] = f"{place.file}:{place.line}"
    return found

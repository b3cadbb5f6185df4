"""Where in topics.yaml an asset comes from."""

from dagster_bus.spec.hints import Path
from dagster_bus.spec.load import LoadedSpec


def place_in_file(loaded: LoadedSpec, path: Path) -> dict[str, object]:
    """Nothing for what is not written there, as the bus's own topics."""
    if not loaded.is_written(*path):
        return {}
    place = loaded.problem(path, "")
    return {"declared in": f"{place.file}:{place.line}"}

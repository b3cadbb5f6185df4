"""dagster-bus: a durable event bus that starts PySpark runs in Dagster.

The names below are the public ones. They are loaded when first used, so that importing this package
costs little and pulls in neither Dagster nor Spark.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dagster_bus.core.event import Event, Message, Published
    from dagster_bus.errors import BusError
    from dagster_bus.opening import Bus
    from dagster_bus.orchestration.component import BusComponent
    from dagster_bus.orchestration.definitions import load_definitions
    from dagster_bus.orchestration.io_manager import SparkTableIOManager
    from dagster_bus.orchestration.resources import BusResource

__all__ = [
    "Bus",
    "BusComponent",
    "BusError",
    "BusResource",
    "Event",
    "Message",
    "Published",
    "SparkTableIOManager",
    "load_definitions",
]

_HOMES = {
    "Bus": "dagster_bus.opening",
    "BusComponent": "dagster_bus.orchestration.component",
    "BusError": "dagster_bus.errors",
    "BusResource": "dagster_bus.orchestration.resources",
    "Event": "dagster_bus.core.event",
    "Message": "dagster_bus.core.event",
    "Published": "dagster_bus.core.event",
    "SparkTableIOManager": "dagster_bus.orchestration.io_manager",
    "load_definitions": "dagster_bus.orchestration.definitions",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.startswith("dagster_bus"):
            raise
        raise ImportError(
            f"{name} needs {missing.name}, which is not installed: pip install 'dagster-bus[all]'"
        ) from missing


def __dir__() -> list[str]:
    """The names that can be had here. Dagster's `dg` gets each of them in looking for components,
    also where the bus is used without Dagster or Spark."""
    is_whole = all(map(find_spec, ("dagster", "dagster_pyspark", "pyspark")))
    names = (name for name, home in _HOMES.items() if is_whole or "orchestration" not in home)
    return sorted({*globals(), *names})

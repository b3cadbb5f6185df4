"""The events that all benchmarks use, and stores to put them into."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dagster_bus.core.bus import Bus
from dagster_bus.core.encoding import encode_payload
from dagster_bus.core.topic import TopicConfig
from dagster_bus.stores import open_store

TOPIC = "orders"
CONFIG = TopicConfig(TOPIC)
NOTE = "x" * 150


def payloads(count: int) -> list[dict[str, str]]:
    """Payloads of some 180 bytes."""
    return list(stream(count))


def stream(count: int) -> Iterator[dict[str, str]]:
    return ({"order_id": f"A-{n:08}", "note": NOTE} for n in range(count))


def texts(count: int) -> list[str]:
    return [encode_payload(payload).decode() for payload in stream(count)]


def new_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="bench-"))


def remove(folder: Path) -> None:
    shutil.rmtree(folder)


def open_bus(url: str) -> Bus:
    store = open_store(url)
    store.declare([CONFIG])
    return Bus(store, [CONFIG])

"""The options of the data source: their names, and what may stand in them. No store is asked."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from dagster_bus.errors import UsageError
from dagster_bus.spec.hints import hint, nearest, shown
from dagster_bus.stores import SQLITE_PREFIX, is_mongo, sqlite_path

EARLIEST, LATEST = -2, -1
"""Offsets that stand for the ends of a partition, as they do in Spark's Kafka source."""

Offsets = Mapping[str, Mapping[int, int]]
"""By topic and partition."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Place:
    """Where reading begins or ends: at an end of each partition, at an offset of each, or at a
    time."""

    word: Literal["earliest", "latest"] | None = None
    offsets: Offsets | None = None
    time_ms: int | None = None
    option: str = "startingOffsets"
    """Where the user said so."""


class Options:
    """Options as Spark hands them over, whose case does not matter. Reading one checks it."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}

    def require_known(self, known: Iterable[str], elsewhere: Mapping[str, str]) -> None:
        """Refuse options that mean nothing here; `elsewhere` has those that do for others."""
        names = {name.lower(): name for name in known}
        for name in sorted(self._given):
            if name in names:
                continue
            for other, where in elsewhere.items():
                if name == other.lower():
                    raise UsageError(f"option {other} is {where}: leave it out here")
            meant = nearest(name, names.values())
            others = hint(name, [meant] if meant else names.values())
            raise UsageError(f"option {name!r} is unknown{others}")

    def has(self, name: str) -> bool:
        return name.lower() in self._given

    def text(self, name: str, default: str) -> str:
        return self._given.get(name.lower(), default)

    def required(self, name: str, meaning: str) -> str:
        value = self.text(name, "").strip()
        if not value:
            raise UsageError(f'option {name} is missing: {meaning}, as in .option("{name}", …)')
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name, str(default)).strip().lower()
        if value not in ("true", "false"):
            raise UsageError(f"option {name} is true or false, and not {shown(value)}")
        return value == "true"

    def number(self, name: str, least: int) -> int | None:
        return self._read(name, lambda text: _whole_number(text, least), f"a number from {least}")

    def json(self, name: str) -> Any:
        return self._read(name, json.loads, "JSON")

    def _read(self, name: str, read: Callable[[str], T], allowed: str) -> T | None:
        if not self.has(name):
            return None
        text = self.text(name, "").strip()
        try:
            return read(text)
        except (ValueError, TypeError, AttributeError):
            raise UsageError(f"option {name} is {allowed}, and not {shown(text)}") from None

    def place(self, end: Literal["starting", "ending"], default: Place) -> Place:
        """Where to begin, or to end."""
        by_offset, by_time = f"{end}Offsets", f"{end}Timestamp"
        if self.has(by_offset) and self.has(by_time):
            raise UsageError(f"give one of the options {by_offset} and {by_time}, and not both")
        time_ms = self.number(by_time, 0)
        if time_ms is not None:
            return Place(time_ms=time_ms, option=by_time)
        allowed = (
            "earliest, latest, or JSON with an offset for each partition of each topic "
            '({"orders": {"0": 12, "1": -2}}; -1 is latest and -2 earliest)'
        )
        return self._read(by_offset, lambda text: _place(text, by_offset), allowed) or default

    def store(self) -> str:
        """The store's address; a path in it is made absolute, as executors have other folders."""
        if self.has("store") == self.has("config"):
            raise UsageError(
                "say where the bus is with one of two options: store, its address, or config, the "
                "path of its topics.yaml"
            )
        if self.has("config"):
            url = _store_of(self.required("config", "the path of a topics.yaml"))
        else:
            url = self.required("store", "the address of the bus")
        return url if is_mongo(url) else f"{SQLITE_PREFIX}{Path(sqlite_path(url)).absolute()}"


def _store_of(file: str) -> str:
    """Imported when it is needed: each task pays for what is imported here."""
    from dagster_bus.opening import store_url
    from dagster_bus.spec.load import load_spec

    return store_url(load_spec(file))


def _place(text: str, option: str) -> Place:
    if text in ("earliest", "latest"):
        return Place("earliest" if text == "earliest" else "latest", option=option)
    offsets = {
        topic: {_whole_number(number, 0): _offset(offset) for number, offset in each.items()}
        for topic, each in json.loads(text).items()
    }
    return Place(offsets=offsets, option=option)


def _offset(value: Any) -> int:
    if type(value) is not int or value < EARLIEST:
        raise ValueError("not an offset")
    return value


def _whole_number(text: str, least: int) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise ValueError("not a number")
    return int(text)

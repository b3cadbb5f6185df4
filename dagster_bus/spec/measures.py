"""Marks for whole numbers in the models: the unit they are written in, and their bounds.

A mark serves three readers: the check of the file, the reference, and the schema for editors.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from dagster_bus.spec import units
from dagster_bus.spec.hints import shown

LONGEST_MS = units.duration_ms("36500d")
LARGEST = (1 << 53) - 1
"""Whatever reads the number, even as a float, gets it whole."""


@dataclass(frozen=True, slots=True)
class Measure(ABC):
    """A whole number in some unit, with bounds."""

    at_least: int = 0
    at_most: int = LARGEST

    @abstractmethod
    def parsed(self, value: Any) -> int:
        """The number meant. Raises ValueError saying what can be written."""

    @abstractmethod
    def spelled(self, number: int) -> str:
        """A number as people write it."""

    @abstractmethod
    def noun(self) -> str:
        """What the reference calls the value."""

    @abstractmethod
    def json_schema(self) -> dict[str, Any]:
        """What editors let pass."""

    def read(self, value: Any) -> int:
        number = self.parsed(value)
        if number < self.at_least:
            low = self.spelled(self.at_least)
            raise ValueError(f"{shown(value)} is too small (at least {low})")
        if number > self.at_most:
            high = self.spelled(self.at_most)
            raise ValueError(f"{shown(value)} is too large (at most {high})")
        return number

    def __get_pydantic_core_schema__(
        self,
        source: Any,
        handler: GetCoreSchemaHandler,
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(
        self,
        schema: CoreSchema,
        handler: GetJsonSchemaHandler,
    ) -> dict[str, Any]:
        return self.json_schema()


@dataclass(frozen=True, slots=True)
class Duration(Measure):
    """Milliseconds, written as 500ms, 30s, 5m, 1h or 30d."""

    at_most: int = LONGEST_MS

    def parsed(self, value: Any) -> int:
        return units.duration_ms(value)

    def spelled(self, number: int) -> str:
        return units.in_words(number)

    def noun(self) -> str:
        return "a duration"

    def json_schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^{units.DURATION}$"}


@dataclass(frozen=True, slots=True)
class Size(Measure):
    """Bytes, written as 512KB, 10MB or 1MiB, or as a plain number."""

    at_most: int = 1 << 50

    def parsed(self, value: Any) -> int:
        return units.size_bytes(value)

    def spelled(self, number: int) -> str:
        return units.size_in_words(number)

    def noun(self) -> str:
        return "a size"

    def json_schema(self) -> dict[str, Any]:
        text = {"type": "string", "pattern": f"^{units.SIZE}$"}
        return {"anyOf": [{"type": "integer", "minimum": self.at_least}, text]}


@dataclass(frozen=True, slots=True)
class Count(Measure):
    """How many, written as 4 or 50_000."""

    def parsed(self, value: Any) -> int:
        return units.count(value)

    def spelled(self, number: int) -> str:
        return units.count_in_words(number)

    def noun(self) -> str:
        return "a whole number"

    def json_schema(self) -> dict[str, Any]:
        number = {"type": "integer", "minimum": self.at_least, "maximum": self.at_most}
        # To editors, which read YAML 1.2, a number with underscores is text.
        return {"anyOf": [number, {"type": "string", "pattern": f"^{units.NUMBER}$"}]}

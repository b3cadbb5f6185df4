"""A topic's schema, ready to check payloads, and the columns that Spark reads from them."""

from collections.abc import Mapping, Sequence
from typing import Any

from dagster_bus.core.topic import SchemaConfig, SchemaVersion
from dagster_bus.schemas.document import document_columns
from dagster_bus.schemas.json_schema import json_schema_rules
from dagster_bus.schemas.model import model_columns, model_rules
from dagster_bus.schemas.rules import Rules, column_rules
from dagster_bus.schemas.tree import Struct, spelled
from dagster_bus.schemas.types import parse
from dagster_bus.schemas.words import summary


class PayloadSchema:
    """The compiled versions of a topic's schema. Holds no state: threads may share it."""

    def __init__(self, rules: Mapping[int, Rules], current: int, *, strict: bool) -> None:
        self.strict = strict
        self.current = current
        self._rules = dict(rules)

    def problem(self, payload: Any, version: int) -> str | None:
        """Why a payload does not fit a version, in one line; None if it does."""
        return self.problems_in([payload], [version]).get(0)

    def problems_in(self, payloads: Sequence[Any], versions: Sequence[int]) -> dict[int, str]:
        """What is wrong with those payloads that do not fit, by their place."""
        if versions and versions.count(versions[0]) == len(versions):
            rules = self._rules.get(versions[0])
            fits = rules.fits if rules else _never
            misfits = [place for place, payload in enumerate(payloads) if not fits(payload)]
        else:
            misfits = [
                place
                for place, (payload, version) in enumerate(zip(payloads, versions, strict=True))
                if version not in self._rules or not self._rules[version].fits(payload)
            ]
        return {place: self._explained(payloads[place], versions[place]) for place in misfits}

    def _explained(self, payload: Any, version: int) -> str:
        if version not in self._rules:
            declared = ", ".join(map(str, sorted(self._rules)))
            return f"schema version {version} is not declared (declared: {declared})"
        return summary(self._rules[version].problems(payload)) or "it does not fit the schema"


def compile_schema(config: SchemaConfig) -> PayloadSchema:
    """Raises ValueError for a definition that is wrong, UsageError for what cannot be imported."""
    if config.current not in config.versions:
        raise ValueError(f"schema version {config.current} is the current one and not declared")
    rules = {}
    for number, version in config.versions.items():
        try:
            rules[number] = _rules(version)
        except ValueError as error:
            raise ValueError(f"schema version {number}: {error}") from None
    return PayloadSchema(rules, config.current, strict=config.strict)


def columns(version: SchemaVersion) -> dict[str, str]:
    """A payload's columns and their types in Spark's DDL.

    No type says `not null`: whatever a schema asks for, Spark may read null from JSON, and makes
    every column nullable."""
    return {
        name: spelled(column.type, not_nulls=False) for name, column in _columns(version).columns
    }


def _rules(version: SchemaVersion) -> Rules:
    match version.kind:
        case "fields":
            return column_rules(_field_columns(version.definition))
        case "json_schema":
            return json_schema_rules(version.definition)
        case "model":
            return model_rules(version.definition)


def _columns(version: SchemaVersion) -> Struct:
    match version.kind:
        case "fields":
            return _field_columns(version.definition)
        case "json_schema":
            return document_columns(version.definition)
        case "model":
            return model_columns(version.definition)


def _field_columns(fields: Mapping[str, str]) -> Struct:
    parsed = []
    for name, text in fields.items():
        try:
            parsed.append((name, parse(text)))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return Struct(tuple(parsed))


def _never(_: Any) -> bool:
    return False

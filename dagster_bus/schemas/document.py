"""From a JSON Schema document to the columns that Spark reads from payloads which fit it.

What has no column type of its own (unions, tuples, recursion, free objects) becomes a string
column with the JSON text. `x-column-type` names a column's type outright, for what JSON Schema
cannot say, such as decimals.
"""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from dagster_bus.schemas.tree import Array, Column, ColumnType, Map, Raw, Simple, Struct
from dagster_bus.schemas.types import MAX_DEPTH, parse

COLUMN_TYPE = "x-column-type"
MAX_PARTS = 10_000
"""Schemas within the schema. References may unfold to a tree that no memory holds."""

_BY_TYPE = {"integer": "bigint", "number": "double", "boolean": "boolean"}
_BY_FORMAT = {"date": "date", "date-time": "timestamp"}
_BY_PYTHON = {bool: "boolean", int: "bigint", float: "double", str: "string"}
_NUMBERS = {Simple("bigint"), Simple("double")}


def document_columns(document: Any) -> Struct:
    """The columns of the object that a document describes; none if it describes something else.

    Raises ValueError for names that cannot be columns, and for more parts than are sensible."""
    root = _Reader(document).type_of(document, ())
    return root if isinstance(root, Struct) else Struct((), open=True)


def find(document: Any, steps: Iterable[str | int]) -> Any:
    """What stands at a place of a document; None if there is no such place."""
    for step in steps:
        if isinstance(document, Mapping):
            document = document.get(step)
        elif isinstance(document, list) and str(step).isdecimal() and int(step) < len(document):
            document = document[int(step)]
        else:
            return None
    return document


class _Reader:
    def __init__(self, document: Any) -> None:
        self._document = document
        self._parts = 0

    def type_of(self, schema: Any, refs: tuple[str, ...], depth: int = 0) -> ColumnType:
        """The type of what a schema describes; `refs` are the references that led to it."""
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise ValueError(f"the schema unfolds to more than {MAX_PARTS:,} parts")
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
            return Raw()
        if COLUMN_TYPE in schema:
            return parse(schema[COLUMN_TYPE]).type
        if "$ref" in schema:
            return self._referred(schema["$ref"], refs, depth)
        if kinds := _kinds(schema):
            return _one_of(self._plain(kind, schema, refs, depth) for kind in kinds)
        if values := _values(schema):
            return _one_of(_type_of_value(value) for value in values)
        for union in ("anyOf", "oneOf", "allOf"):
            if union in schema:
                return self._union(schema[union], refs, depth, every=union == "allOf")
        return Raw()

    def _referred(self, ref: Any, refs: tuple[str, ...], depth: int) -> ColumnType:
        if not isinstance(ref, str) or not ref.startswith("#/") or ref in refs:
            return Raw()  # elsewhere, or around in a circle
        steps = [step.replace("~1", "/").replace("~0", "~") for step in unquote(ref[2:]).split("/")]
        return self.type_of(find(self._document, steps), (*refs, ref), depth + 1)

    def _union(
        self, branches: Any, refs: tuple[str, ...], depth: int, *, every: bool
    ) -> ColumnType:
        """The type that all branches but null have in common."""
        if not isinstance(branches, list) or (every and len(branches) > 1):
            return Raw()
        return _one_of(
            self.type_of(branch, refs, depth + 1)
            for branch in branches
            if not (isinstance(branch, Mapping) and branch.get("type") == "null")
        )

    def _plain(
        self, kind: str, schema: Mapping[str, Any], refs: tuple[str, ...], depth: int
    ) -> ColumnType:
        if kind == "object":
            return self._object(schema, refs, depth)
        if kind == "array":
            if "prefixItems" in schema or isinstance(schema.get("items"), list):
                return Raw()
            return Array(self.type_of(schema.get("items"), refs, depth + 1))
        if kind == "string":
            return Simple(_BY_FORMAT.get(str(schema.get("format")), "string"))
        return Simple(_BY_TYPE[kind]) if kind in _BY_TYPE else Raw()

    def _object(self, schema: Mapping[str, Any], refs: tuple[str, ...], depth: int) -> ColumnType:
        properties = schema.get("properties")
        others = schema.get("additionalProperties")
        if isinstance(properties, Mapping) and properties:
            return Struct(
                tuple(
                    (name, Column(self.type_of(each, refs, depth + 1)))
                    for name, each in properties.items()
                ),
                open=True,
            )
        if isinstance(others, Mapping) and not schema.get("patternProperties"):
            return Map(self.type_of(others, refs, depth + 1))
        return Raw()


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    """The JSON types that a schema names, or that its keywords are about; null goes without."""
    declared = schema.get("type")
    if declared is None and ("properties" in schema or "additionalProperties" in schema):
        return ["object"]
    if declared is None and "items" in schema:
        return ["array"]
    kinds = declared if isinstance(declared, list) else [declared]
    return [kind for kind in kinds if isinstance(kind, str) and kind != "null"]


def _values(schema: Mapping[str, Any]) -> list[Any]:
    """The values that a schema allows one by one; null goes without."""
    listed = schema.get("enum", [schema.get("const")])
    return [value for value in listed if value is not None] if isinstance(listed, list) else []


def _type_of_value(value: Any) -> ColumnType:
    name = _BY_PYTHON.get(type(value))
    return Simple(name) if name else Raw()


def _one_of(types: Iterable[ColumnType]) -> ColumnType:
    """The type that covers several: their common one, or text."""
    found = set(types)
    if len(found) == 1:
        return found.pop()
    return Simple("double") if found == _NUMBERS else Raw()

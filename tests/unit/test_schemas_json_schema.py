"""Payloads against JSON Schema documents, and the columns that the documents amount to."""

import builtins
import socket
from typing import Any

import pytest

from dagster_bus.core.topic import SchemaConfig, SchemaVersion
from dagster_bus.errors import UsageError
from dagster_bus.schemas import PayloadSchema, columns, compile_schema

ORDER = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["order_id"],
    "additionalProperties": False,
    "properties": {
        "order_id": {"type": "string", "minLength": 2},
        "count": {"type": "integer", "maximum": 10_000_000_000_000_000_000_000},
        "placed_at": {"type": "string", "format": "date-time"},
        "amount": {"type": ["number", "string"], "x-column-type": "decimal(12,2)"},
        "items": {"type": "array", "items": {"$ref": "#/$defs/item"}},
    },
    "$defs": {
        "item": {
            "type": "object",
            "properties": {"sku": {"type": "string"}},
            "required": ["sku"],
            "additionalProperties": False,
        }
    },
}


def version(document: Any) -> SchemaVersion:
    return SchemaVersion("json_schema", document)


def schema(document: Any) -> PayloadSchema:
    return compile_schema(SchemaConfig({1: version(document)}, 1))


def column_of(document: Any, **more: Any) -> str:
    """The type of a single column."""
    whole = {"type": "object", "properties": {"v": document}, **more}
    assert schema(whole)  # it is a schema for the library, too
    return columns(version(whole))["v"]


@pytest.mark.parametrize(
    ("document", "type_"),
    [
        ({"type": "string"}, "string"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "uuid"}, "string"),
        ({"type": "integer"}, "bigint"),
        ({"type": "number"}, "double"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "null"}, "string"),
        ({"type": ["string", "null"], "format": "date"}, "date"),
        ({"type": ["integer", "number"]}, "double"),
        ({"type": ["integer", "string"]}, "string"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "bigint"),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, "string"),
        ({"allOf": [{"type": "integer"}]}, "bigint"),
        ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, "string"),
        ({"enum": ["a", "b", None]}, "string"),
        ({"enum": [1, 2]}, "bigint"),
        ({"enum": [1, 2.5]}, "double"),
        ({"enum": [1, "a"]}, "string"),
        ({"enum": [True, 1]}, "string"),
        ({"const": 1.5}, "double"),
        ({"const": {"a": 1}}, "string"),
        ({"type": "array", "items": {"type": "integer"}}, "array<bigint>"),
        ({"type": "array"}, "array<string>"),
        ({"items": {"type": "boolean"}}, "array<boolean>"),
        ({"type": "array", "prefixItems": [{"type": "integer"}]}, "string"),
        ({"type": "object", "properties": {"a b": {"type": "integer"}}}, "struct<`a b`:bigint>"),
        ({"properties": {"a": {"items": {"type": "number"}}}}, "struct<a:array<double>>"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "map<string,double>"),
        ({"type": "object", "additionalProperties": True}, "string"),
        ({"type": "object"}, "string"),
        ({"x-column-type": "Decimal(12, 2) not null"}, "decimal(12,2)"),
        ({}, "string"),
        (True, "string"),
        ({"not": {"type": "integer"}}, "string"),
    ],
)
def test_a_schema_amounts_to_a_column(document: Any, type_: str) -> None:
    assert column_of(document) == type_


def test_references_are_followed_and_circles_end_in_text() -> None:
    definitions = {
        "day": {"type": "string", "format": "date"},
        "a/b": {"$ref": "#/$defs/day"},
        "node": {
            "type": "object",
            "properties": {
                "day": {"$ref": "#/$defs/day"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
        },
    }
    assert column_of({"$ref": "#/$defs/day"}, **{"$defs": definitions}) == "date"
    assert column_of({"$ref": "#/$defs/a~1b"}, **{"$defs": definitions}) == "date"
    assert (
        column_of({"$ref": "#/$defs/node"}, **{"$defs": definitions})
        == "struct<day:date,children:array<string>>"
    )
    assert column_of({"$ref": "#"}) == "string"
    root = {"$ref": "#/$defs/node", "$defs": definitions}
    assert columns(version(root)) == {"day": "date", "children": "array<string>"}
    circle = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    assert columns(version({**circle, "properties": {"v": {"$ref": "#/$defs/a"}}})) == {
        "v": "string"
    }


def test_what_is_not_an_object_has_no_columns_and_is_checked_all_the_same() -> None:
    numbers = {"type": "array", "items": {"type": "integer"}}
    assert columns(version(numbers)) == {}
    assert schema(numbers).problem([1], 1) is None
    assert schema(numbers).problem(["a"], 1) == '[0]: "a" is not of type "integer"'
    assert schema(True).problem("anything", 1) is None


@pytest.mark.parametrize("form", ["properties", "anyOf"])
def test_a_schema_that_unfolds_without_end_is_refused(form: str) -> None:
    def twice(ref: str) -> Any:
        each = {"$ref": ref}
        return {"a": each, "b": each} if form == "properties" else [each, each]

    definitions: dict[str, Any] = {f"d{n}": {form: twice(f"#/$defs/d{n + 1}")} for n in range(15)}
    definitions["d15"] = {"type": "string"}
    with pytest.raises(ValueError, match="the schema unfolds to more than 10,000 parts"):
        columns(version({"$ref": "#/$defs/d0", "$defs": definitions}))


def test_deep_nesting_ends_in_text() -> None:
    document: dict[str, Any] = {"type": "integer"}
    for _ in range(200):
        document = {"type": "array", "items": document}
    assert "array<string>" in column_of(document)


def test_names_that_spark_takes_for_one_are_refused() -> None:
    document = {"properties": {"id": {"type": "string"}, "ID": {"type": "string"}}}
    with pytest.raises(ValueError, match="'id' and 'ID' differ in case only; Spark"):
        columns(version(document))


def test_a_schema_with_columns_is_one_of_objects() -> None:
    """A JSON Schema without a type lets everything else pass."""
    loose = {"properties": {"a": {"type": "integer"}}}
    assert schema(loose).problem(7, 1) == "payload: 7 is not an object (struct<a:bigint>)"
    assert schema(loose).problem({"a": None, "b": 1}, 1) == 'a: null is not of type "integer"'
    assert schema(loose).problem({"b": 1}, 1) is None
    assert schema(loose).problem(None, 1) is None


@pytest.mark.parametrize(
    "document",
    [
        {"format": []}, {"type": "string", "format": {}}, {"enum": 5}, {"type": [[], 5]},
        {"items": []}, {"anyOf": {}}, {"$ref": 5}, {"properties": []}, 5, None,
    ],
)  # fmt: skip
def test_columns_of_what_is_not_a_json_schema_are_no_traceback(document: Any) -> None:
    assert columns(version(document)) == {}
    assert columns(version({"properties": {"v": document}}))["v"] in ("string", "array<string>")


def test_a_payload_that_fits_has_no_problem() -> None:
    payload = {
        "order_id": "o-1",
        "count": 3,
        "placed_at": "2026-11-18T01:02:03Z",
        "amount": "12.50",
        "items": ({"sku": "a"},),
    }
    assert schema(ORDER).problem(payload, 1) is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"order_id": "o"}, 'order_id: "o" is shorter than 2 characters'),
        ({"order_id": 7}, 'order_id: 7 is not of type "string"'),
        ({"order": 7}, "unknown field 'order'; did you mean 'order_id'?"),
        ({"items": [{"sku": "a"}, {}]}, "items[1].sku: missing"),
        ({"items": [{"sku": "a", "suk": 1}]}, "items[0]: unknown field 'suk'; did you mean 'sku'?"),
        ({"placed_at": "yesterday"}, 'placed_at: "yesterday" is not a "date-time"'),
        ({"items": ["x" * 1000]}, f'items[0]: "{"x" * 59}…" is not of type "object"'),
    ],
)
def test_a_problem_says_where_and_why(change: dict[str, Any], told: str) -> None:
    assert schema(ORDER).problem({"order_id": "o-1", **change}, 1) == told


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"count": 3.0}, "count: 3.0 is not a whole number; write it without a point (bigint)"),
        ({"count": 1 << 63}, "count: 9223372036854775808 is out of range (-9223372036854775808 to "
         "9223372036854775807) (bigint)"),
        ({"placed_at": "2026-11-18t01:02:03z"}, 'placed_at: "2026-11-18t01:02:03z" is not a '
         'timestamp; write it like "2026-11-18T01:02:03Z", seconds included (timestamp)'),
        ({"amount": "12.345"},
         'amount: "12.345" has more than 2 digits after the point (decimal(12,2))'),
    ],
)  # fmt: skip
def test_what_json_schema_allows_and_spark_cannot_read_is_a_problem(
    change: dict[str, Any], told: str
) -> None:
    assert schema(ORDER).problem({"order_id": "o-1", **change}, 1) == told


@pytest.mark.parametrize("payload", [{1: 2}, {"order_id": {1, 2}}, {"order_id": "\ud800"}])
def test_what_is_not_json_is_a_problem_and_no_traceback(payload: Any) -> None:
    told = schema(ORDER).problem(payload, 1)
    assert told is not None
    assert told.startswith("payload: ")


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ({"type": "strin"}, 'type: "strin" is not valid under any of the schemas'),
        ({"properties": {"a": {"minLength": "x"}}}, "properties.a.minLength: "),
        ({"pattern": "("}, 'pattern: "(" is not a "regex"'),
        ({"$ref": "#/$defs/nowhere"}, "Pointer '/$defs/nowhere' does not exist"),
        ({"$schema": "https://example.com/own"}, "Unknown meta-schema: 'https://example.com/own'"),
        ("text", "a JSON Schema is an object, and not str"),
        ([], "a JSON Schema is an object, and not list"),
        ({"type": {1, 2}}, "Unsupported type: 'set'"),
        ({"properties": {"v": {"x-column-type": "decimall"}}}, "did you mean 'decimal'?"),
        ({"properties": {"v": {"x-column-type": 5}}}, "5 is not a column type; known are string"),
    ],
)
def test_what_is_not_a_json_schema_is_refused(document: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match="schema version 1: ") as found:
        schema(document)
    assert complaint in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:{port}/a.json", "file:///etc/hostname", "other.json"]
)
def test_nothing_is_ever_fetched(address: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        uri = address.format(port=server.getsockname()[1])
        with pytest.raises(ValueError, match=f"not a JSON Schema: .*{uri}"):
            schema({"properties": {"a": {"$ref": uri}}})
        assert columns(version({"properties": {"a": {"$ref": uri}}})) == {"a": "string"}
        with pytest.raises(TimeoutError):
            server.accept()


def test_without_the_library_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "jsonschema_rs":
            raise ImportError("No module named 'jsonschema_rs'")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match=r"pip install 'dagster-bus\[jsonschema\]'"):
        schema(ORDER)

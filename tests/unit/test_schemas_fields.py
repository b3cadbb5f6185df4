"""Payloads against declared fields: what fits, and what is said of the rest."""

import math
from collections import OrderedDict
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_bus.core.topic import SchemaConfig, SchemaVersion
from dagster_bus.schemas import PayloadSchema, columns, compile_schema
from dagster_bus.schemas.checks import MAX_KEY, compile_check
from dagster_bus.schemas.explain import problems
from dagster_bus.schemas.tree import Column, ColumnType, Struct
from dagster_bus.schemas.types import parse
from tests.unit.test_schemas_types import column_types

ORDER = {
    "order_id": "string not null",
    "customer": "string",
    "amount": "decimal(12,2)",
    "placed_at": "timestamp",
    "items": "array<struct<sku: string not null, count: int>>",
    "prices": "map<string, double>",
}
GOOD = {
    "order_id": "o-1",
    "customer": None,
    "amount": "12.50",
    "placed_at": "2026-11-18T01:02:03Z",
    "items": [{"sku": "a", "count": 2}, None, {"sku": "b"}],
    "prices": {"eu": 1, "us": 1.5, "uk": None},
}


def schema(fields: dict[str, str]) -> PayloadSchema:
    return compile_schema(SchemaConfig({1: SchemaVersion("fields", fields)}, 1, strict=True))


def problem(type_: str, value: Any) -> str | None:
    return schema({"v": type_}).problem({"v": value}, 1)


def test_a_payload_that_fits_has_no_problem() -> None:
    assert schema(ORDER).problem(GOOD, 1) is None
    assert schema(ORDER).problem({"order_id": "o-1"}, 1) is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"order_id": None}, "order_id: null is not allowed (string not null)"),
        ({"order_id": 7}, "order_id: 7 is not text (string)"),
        ({"amount": "12.345"},
         'amount: "12.345" has more than 2 digits after the point (decimal(12,2))'),
        ({"ordr_id": 1}, "unknown field 'ordr_id'; did you mean 'order_id'?"),
        ({"Order_ID": None}, "unknown field 'Order_ID'; did you mean 'order_id'?"),
        ({"zzz": 1}, "unknown field 'zzz'; known are order_id, customer, amount, placed_at, items, "
         "prices"),
        ({1: "x"}, "unknown field '1'; known are order_id, customer, amount, placed_at, items, "
         "prices"),
        ({"items": {}}, "items: an object is not an array "
         "(array<struct<sku:string not null,count:int>>)"),
        ({"items": [{"sku": "a"}, {}]}, "items[1].sku: missing (string not null)"),
        ({"items": [{"sku": "a", "skuu": 1}]},
         "items[0]: unknown field 'skuu'; did you mean 'sku'?"),
        ({"items": ["x"]},
         'items[0]: "x" is not an object (struct<sku:string not null,count:int>)'),
        ({"prices": {"eu": "1"}}, 'prices.eu: "1" is not a number (double)'),
        ({"prices": {"e u": "1"}}, 'prices["e u"]: "1" is not a number (double)'),
        ({"prices": {1: 1}},
         "prices: 1 is not a key; keys are text of at most 10,000 characters"),
        ({"prices": {"k" * (MAX_KEY + 1): 1}}, f'prices: "{"k" * 59}…" is not a key; keys are text '
         "of at most 10,000 characters"),
        ({"prices": []}, "prices: an array is not an object (map<string,double>)"),
    ],
)  # fmt: skip
def test_a_problem_says_where_and_why_and_what_is_expected(
    change: dict[Any, Any], told: str
) -> None:
    assert schema(ORDER).problem({**GOOD, **change}, 1) == told


@pytest.mark.parametrize(
    ("type_", "value", "told"),
    [
        ("string", {}, "an object is not text"),
        ("string", "x" * 100, None),
        ("boolean", 1, "1 is not true or false"),
        ("boolean", "true", '"true" is not true or false'),
        ("tinyint", 128, "128 is out of range (-128 to 127)"),
        ("int", True, "true is not a whole number"),
        ("int", 3.0, "3.0 is not a whole number; write it without a point"),
        ("int", 3.5, "3.5 is not a whole number"),
        ("bigint", "3", '"3" is not a whole number'),
        ("bigint", 1 << 63, "9223372036854775808 is out of range "
         "(-9223372036854775808 to 9223372036854775807)"),
        ("double", 7, None),
        ("double", "1.5", '"1.5" is not a number'),
        ("double", False, "false is not a number"),
        ("double", math.nan, "nan is not a number"),
        ("double", math.inf, "inf is too large"),
        ("float", 1e39, "1e+39 is too large"),
        ("double", 10**400, f"1{'0' * 58}… is too large"),
        ("decimal(5,2)", 999, None),
        ("decimal(5,2)", 1000, "1000 has more than 3 digits before the point"),
        ("decimal(5,2)", "1234.5", '"1234.5" has more than 3 digits before the point'),
        ("decimal(5,2)", 0.125, "0.125 has more than 2 digits after the point"),
        ("decimal(5,2)", "1,5", '"1,5" is not a number; write it like 12.5 or "12.5"'),
        ("decimal(5,2)", True, 'true is not a number; write it like 12.5 or "12.5"'),
        ("decimal(5,2)", math.nan, 'nan is not a number; write it like 12.5 or "12.5"'),
        ("decimal(5,2)", [], 'an array is not a number; write it like 12.5 or "12.5"'),
        ("date", "2026-11-18T00:00:00",
         '"2026-11-18T00:00:00" is not a date; write it like "2026-11-18"'),
        ("date", 20_000, '20000 is not a date; write it like "2026-11-18"'),
        ("timestamp", "2026-11-18T01:02Z", '"2026-11-18T01:02Z" is not a timestamp; write it like '
         '"2026-11-18T01:02:03Z", seconds included'),
        ("timestamp", datetime(2026, 11, 18, tzinfo=UTC), "a Python datetime is not a timestamp; "
         'write it like "2026-11-18T01:02:03Z", seconds included'),
        ("timestamp", 1_700_000_000, None),
        ("timestamp", 1_700_000_000_000, "1700000000000 is out of range: numbers are whole seconds "
         "since 1970; are these milliseconds?"),
        ("timestamp", -(10**12), "-1000000000000 is out of range: numbers are whole seconds since "
         "1970"),
        ("timestamp", True, 'true is not a timestamp; write it like "2026-11-18T01:02:03Z", '
         "seconds included"),
        ("timestamp_ntz", "2026-11-18T01:02:03Z", '"2026-11-18T01:02:03Z" is not a timestamp '
         'without a zone; write it like "2026-11-18T01:02:03"'),
        ("binary", "hello", "\"hello\" is not base64 text, padded with '='"),
        ("binary", "aGVsbG8=", None),
    ],
)  # fmt: skip
def test_every_type_says_what_it_misses(type_: str, value: Any, told: str | None) -> None:
    assert problem(type_, value) == (f"v: {told} ({type_})" if told else None)


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("2026-11-18T01:02:03Z", {"timestamp"}),
        ("2026-11-18 01:02:03.123456+02:00", {"timestamp"}),
        ("2026-11-18T01:02:03.123456789Z", {"timestamp"}),
        ("2026-11-18T01:02:03 UTC", {"timestamp"}),
        ("2026-11-18T01:02:03-5:30", {"timestamp"}),
        ("2026-11-18T01:02:03+18:00", {"timestamp"}),
        ("2026-11-18T01:02:03+1801", set()),
        ("2026-11-18T01:02:03+01:60", set()),
        ("2026-11-18T01:02:03 CET", set()),
        ("2026-11-18t01:02:03", set()),
        ("2026-11-18T01:02:03", {"timestamp", "timestamp_ntz"}),
        ("2026-1-8T1:2", {"timestamp", "timestamp_ntz"}),
        ("2026-11-18T24:00:00", set()),
        ("2024-02-29T00:00:00", {"timestamp", "timestamp_ntz"}),
        ("2026-02-29T00:00:00", set()),
        ("2026-11-31", set()),
        ("2026-12-31", {"timestamp", "timestamp_ntz", "date"}),
        ("2026-1-8", {"timestamp", "timestamp_ntz", "date"}),
        ("2026", {"timestamp", "timestamp_ntz", "date", "decimal(7,2)"}),
        ("20261118", set()),
        ("0000-01-01", set()),
        (" 2026-11-18", set()),
        ("12", {"decimal(7,2)"}),
        ("12.500", {"decimal(7,2)"}),
        ("-.5e1", {"decimal(7,2)"}),
        ("0.000e9", {"decimal(7,2)"}),
        ("1e5", set()),
        ("12345.678", set()),
        ("٣", set()),
    ],
)
def test_texts_of_moments_and_numbers_fit_the_types_that_can_hold_them(
    text: str, fits: set[str]
) -> None:
    types = ("timestamp", "timestamp_ntz", "date", "decimal(7,2)")
    assert {type_ for type_ in types if problem(type_, text) is None} == fits


@pytest.mark.parametrize("payload", [None, 7, "text", [], [{"order_id": "o-1"}]])
def test_a_payload_is_an_object(payload: Any) -> None:
    told = schema({"a": "int"}).problem(payload, 1)
    assert told is not None
    assert told.startswith("payload: ")
    assert told.endswith(" is not an object (struct<a:int>)")


def test_the_first_few_problems_are_told_and_the_rest_counted() -> None:
    numbers = schema({"n": "array<int>"})
    assert numbers.problem({"n": ["a", "b"]}, 1) == (
        'n[0]: "a" is not a whole number (int); n[1]: "b" is not a whole number (int)'
    )
    told = numbers.problem({"n": ["a"] * 5}, 1) or ""
    assert told.startswith("n[0]: ")
    assert told.endswith("; and 2 more")
    assert (numbers.problem({"n": ["a"] * 500_000}, 1) or "").endswith("; and many more")


def test_messages_are_one_short_line_whatever_comes() -> None:
    strange = {"a\nb" * 100: 1, "n": "x\n" * 1000}
    told = schema({"n": "int"}).problem(strange, 1) or ""
    assert "\n" not in told
    assert len(told) < 300


def test_a_number_that_python_does_not_write_out_is_told_of() -> None:
    assert problem("decimal(5,2)", 10**5000) == (
        "v: a very large number has more than 3 digits before the point (decimal(5,2))"
    )


def test_values_of_derived_classes_count_as_what_they_are() -> None:
    class Colour(StrEnum):
        RED = "red"

    class Level(IntEnum):
        HIGH = 3

    fields = {"c": "string", "l": "int", "m": "map<string,int>", "a": "array<int>"}
    payload = OrderedDict(c=Colour.RED, l=Level.HIGH, m=OrderedDict(x=1), a=(1, Level.HIGH))
    assert schema(fields).problem(payload, 1) is None


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda values: st.one_of(
        st.lists(values, max_size=3), st.dictionaries(st.text(max_size=3), values, max_size=3)
    ),
    max_leaves=8,
)


@given(column_types, json_values)
def test_the_check_and_its_explanation_agree(type_: ColumnType, value: Any) -> None:
    if value is not None:
        assert compile_check(type_)(value) == (not list(problems(type_, value)))


@given(st.dictionaries(st.sampled_from("abcde"), json_values))
def test_they_agree_on_objects_open_and_closed(value: dict[str, Any]) -> None:
    texts = {"a": "string", "b": "int not null", "c": "array<double>", "d": "boolean not null"}
    named: tuple[tuple[str, Column], ...] = tuple((name, parse(t)) for name, t in texts.items())
    for struct in (Struct(named), Struct(named, open=True)):
        assert compile_check(struct)(value) == (not list(problems(struct, value)))


def test_versions_are_checked_by_their_own_rules() -> None:
    versions = {
        1: SchemaVersion("fields", {"a": "int"}),
        2: SchemaVersion("fields", {"a": "int", "b": "string"}),
    }
    both = compile_schema(SchemaConfig(versions, 2))
    assert (both.strict, both.current) == (False, 2)
    old, new = {"a": 1}, {"a": 1, "b": "x"}
    assert both.problems_in([old, new, old], [2, 2, 2]) == {}
    assert both.problems_in([old, new, new, old], [1, 2, 1, 7]) == {
        2: "unknown field 'b'; known are a",
        3: "schema version 7 is not declared (declared: 1, 2)",
    }
    assert list(both.problems_in([old] * 3, [7] * 3)) == [0, 1, 2]
    assert both.problems_in([], []) == {}


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"a": "strng"}, "schema version 1: a: 'strng' is not a column type; known are"),
        ({"a": "int", "A": "int"}, "schema version 1: 'a' and 'A' differ in case only; Spark"),
        ({"": "int"}, "schema version 1: a column needs a name"),
    ],
)
def test_a_wrong_declaration_is_refused(fields: dict[str, str], complaint: str) -> None:
    with pytest.raises(ValueError, match="schema version 1: ") as found:
        schema(fields)
    assert str(found.value).startswith(complaint)


def test_the_current_version_must_be_declared() -> None:
    with pytest.raises(ValueError, match="schema version 2 is the current one and not declared"):
        compile_schema(SchemaConfig({1: SchemaVersion("fields", {"a": "int"})}, 2))


def test_columns_have_the_types_that_spark_gives_them() -> None:
    assert columns(SchemaVersion("fields", ORDER)) == {
        "order_id": "string",
        "customer": "string",
        "amount": "decimal(12,2)",
        "placed_at": "timestamp",
        "items": "array<struct<sku:string,count:int>>",
        "prices": "map<string,double>",
    }

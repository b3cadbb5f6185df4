"""The promise of the schemas, held against a real Spark: what fits arrives as what it says, and
what does not fit would not have."""

import base64
import json
import math
import re
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, TypeVar

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from dagster_bus.core.topic import SchemaConfig, SchemaVersion
from dagster_bus.schemas import PayloadSchema, columns, compile_schema
from dagster_bus.schemas.tree import Array, ColumnType, Map, Simple, Struct, quoted, spelled
from dagster_bus.schemas.types import normal_type
from tests.unit.test_schemas_types import column_types, structs, written

T = TypeVar("T")

INTEGERS = ["tinyint", "smallint", "int", "bigint"]
FLOATS = ["float", "double"]
DECIMALS = ["decimal(10,0)", "decimal(7,2)", "decimal(38,0)", "decimal(38,18)", "decimal(5,5)"]
TIMES = ["timestamp", "timestamp_ntz", "date"]
OTHERS = ["string", "boolean", "binary", "array<int>", "map<string,int>", "struct<a:int>"]

NOT_TEXT: list[Any] = [True, False, [], {}, [1], {"a": 1}, [None], {"a": None}, [[1]], {"a": "x"}]
NUMBERS: list[Any] = [
    *(sign * ((1 << bits) + more) for bits in (7, 8, 15, 31, 63, 64, 100) for more in (-1, 0, 1)
      for sign in (1, -1)),
    0, 3, 99_999, 100_000, 10**38 - 1, 10**38, -(10**38), 10**308, 2**1024 - 2**970 - 1,
    2**1024 - 2**970, 2**128 - 2**103 - 1, 2**128 - 2**103, 0.0, -0.0, 3.0, 3.5, -1.5, 1e2, 0.1,
    0.01, 0.001, 0.25, 1.005, 0.1 + 0.2, 1e16, 1e22, 1e23, 1e-7, 5e-324, 3.4028235e38, 3.5e38,
    1.7976931348623157e308, 12345.67, 12345.678, 99999.99, 99999.995, 0.99999, 0.999999,
]  # fmt: skip
DECIMAL_TEXTS = [
    "", "0", "1", "+1", "-1", "1.5", "1.50", "1.500", "1.005", "12.345", "99999.99", "99999.994",
    "99999.995", "100000", "1e3", "1E3", "1e+3", "1e-2", "1e-3", "1.0e1", "1.e1", ".5e1", ".e1",
    "e1", "1.", ".5", "+.5", ".", "-", "+", "--1", "+-1", "1-", "1.2.3", " 1", "1 ", "1\n", "abc",
    "0x1", "1_0", "(1)", "$1", "1d", "1f", "1L", "NaN", "Infinity", "0000001.5", "0" * 2000 + "1",
    "0." + "0" * 2000, "0e999", "0e-999", "1e400", "1e-400", "0e999999999", "1e9999999999",
    "9" * 38, "9" * 39, "0." + "9" * 18, "0." + "9" * 19, "0.99999", "0.999999", "-0", "1e", "1e+",
]  # fmt: skip
TIME_TEXTS = [
    "2026", "2026-11", "2026-1", "2026-1-8", "2026-11-18", "2026-13", "2026-13-01", "2026-00-10",
    "2026-10-00", "2026-02-29", "2024-02-29", "1900-02-29", "2000-02-29", "2026-11-31",
    "2026-12-31",
    "2026-", "2026-11-", "2026-W47-3", "2026-322", "2026/11/18", "18.11.2026", "026-11-18",
    "26-11-18", "2026-011-18", "2026-11-018", "２026-11-18", "2026--1-18", "0001-01-01",
    "9999-12-31", "1582-10-10", "Nov 18, 2026", "now", "today", "epoch", "", "20261118T010203Z",
    "2026-11-18Z", "2026-11-18+02:00", "2026-11-18t01:02:03",
]  # fmt: skip
TIMESTAMP_TEXTS = [
    *TIME_TEXTS,
    "2026-11-18T", "2026-11-18T01", "2026-11-18 1", "2026-11-18T01:", "2026-11-18T01:02",
    "2026-11-18T1:2", "2026-11-18T01:02:", "2026-11-18T01:02:03", "2026-11-18 01:02:03",
    "2026-11-18  01:02:03", "2026-1-8T1:2:3", "2026-11-18T001:02:03", "2026-11-18T24:00:00",
    "2026-11-18T24", "2026-11-18T23:60", "2026-11-18T23:59:60", "2026-11-18T01:60:00",
    "2026-11-18T-1:02:03", "2026-11-18T01:02:03.", "2026-11-18T01:02:03.1", "2026-11-18T01:02:03,1",
    "2026-11-18T01:02:03.123456", "2026-11-18T01:02:03.123456789",
    "2026-11-18T01:02:03." + "1" * 99,
    "2026-02-29T01:02:03", "2000-02-29T01:02:03", "2026-11-31T01:02:03", "0001-01-01T00:00:00",
    "9999-12-31T23:59:59.999999", "2026-11-18T01:02:03x", "2026-11-18T01:02:03.5x",
    "2026-11-18T01:02:03Z", "2026-11-18T01:02:03.5Z", "2026-11-18T01:02:03.Z", "2026-11-18T01:02Z",
    "2026-11-18T01Z", "2026-11-18T01:02+02:00", "2026-11-18T01:02.5Z", "2026-11-18T01:02:03z",
    "2026-11-18T01:02:03 Z", "2026-11-18T01:02:03UTC", "2026-11-18T01:02:03 UTC",
    "2026-11-18T01:02:03GMT", "2026-11-18T01:02:03utc",
    "2026-11-18T01:02:03+", "2026-11-18T01:02:03-",
    "2026-11-18T01:02:03Zx", "2026-11-18T01:02:03Z[UTC]", "2026-11-18T01:02:03[Europe/Berlin]",
    "2026-11-18T01:02:03−02:00", "9999-12-31T23:59:59-18:00", "0001-01-01T00:00:00+18:00",
    *(f"2026-11-18T01:02:03{zone}" for zone in (
        "+0", "-0", "+00", "+2", "+02", "+99", "+0200", "+200", "+02:00", "-5:30", "+5:00", "+05:0",
        "+1:2", "-00:00", "+18:00", "-18:00", "+1800", "+18", "+18:01", "+1801", "+18:59", "+19:00",
        "+19", "+01:60", "+0160", " +5", " +05:30", ".5+5", ".5 Z", ".123456+02:00")),
]  # fmt: skip
BINARY_TEXTS = [
    "", "AA==", "AA", "AAA=", "AAA", "AAAA", "AA=A", "A", "AB==", "-_8=", "+/8=", "A A==", "AA\n==",
    "AA=", "====", "é", "hello", "aGVsbG8=", "AAAA====", "A" * 1000,
]  # fmt: skip


def schema_of(type_: str) -> PayloadSchema:
    version = SchemaVersion("fields", {"v": type_, "w": "string"})
    return compile_schema(SchemaConfig({1: version}, 1, strict=True))


def fits(type_: str, values: list[Any]) -> list[bool]:
    problems = schema_of(type_).problems_in([{"v": value} for value in values], [1] * len(values))
    return [place not in problems for place in range(len(values))]


def arrived(spark: SparkSession, type_: str, values: list[Any]) -> list[Any]:
    """What one job of Spark reads for each value, in a form that Python can hold."""
    texts = [
        json.dumps({"v": value, "w": "x"}, ensure_ascii=False, allow_nan=False) for value in values
    ]
    read = (
        spark.createDataFrame(list(enumerate(texts)), "place int, payload string")
        .coalesce(1)
        .select("place", F.from_json("payload", f"v {type_}, w string").alias("read"))
        .select("place", "read.*")
    )
    if type_ == "date":
        read = read.withColumn("v", F.unix_date("v"))
    elif type_ in TIMES:
        read = read.withColumn("v", F.unix_micros(F.col("v").cast("timestamp")))
    elif "<" in type_:
        read = read.withColumn("v", F.to_json("v", {"ignoreNullFields": "false"}))
    found = {row.place: row.v for row in read.collect() if row.v is None or row.w == "x"}
    return [found[place] for place in range(len(values))]


def arrives(type_: str, value: Any, read: Any) -> bool:
    """Whether Spark read what a value says. Of moments only that it read something: what they say
    takes more than a line, and is looked at elsewhere."""
    if read is None or type_ in TIMES:
        return read is not None
    if type_ in FLOATS:
        return math.isfinite(read) and math.isclose(read, value, rel_tol=1e-7, abs_tol=1e-45)
    if type_ in DECIMALS:
        return bool(read == Decimal(repr(value) if isinstance(value, float) else value))
    if type_ == "binary":
        return bool(read == base64.b64decode(value))
    if type_.startswith("struct"):
        return bool(json.loads(read) == {"a": None, **value})
    return bool((json.loads(read) if "<" in type_ else read) == value)


def many(strategy: st.SearchStrategy[T], count: int = 300) -> list[T]:
    """Values that Hypothesis thinks of, to be looked at by one job."""
    found: list[T] = []

    @settings(max_examples=count, database=None, phases=[Phase.generate])
    @given(strategy)
    def collect(value: T) -> None:
        found.append(value)

    collect()
    return found


def candidates(type_: str) -> list[Any]:
    """Values of all sorts, those that are read in spite of what they say left out."""
    if type_ in INTEGERS or type_ in FLOATS:
        return [*NUMBERS, *NOT_TEXT, "", "3", "true", "abc", *many(st.integers()), *many(finite)]
    if type_ in DECIMALS:
        return [*NUMBERS, *NOT_TEXT, *DECIMAL_TEXTS, *many(st.integers()), *many(finite),
                *many(decimal_texts)]  # fmt: skip
    if type_ == "date":
        return [*NUMBERS, *NOT_TEXT, *TIME_TEXTS, *many(st.dates().map(str))]
    if type_ in TIMES:
        return [True, [], {}, 0.5, *TIMESTAMP_TEXTS, *many(st.datetimes().map(str)),
                *([] if type_ == "timestamp" else NUMBERS)]  # fmt: skip
    if type_ == "binary":
        return [*NUMBERS, *NOT_TEXT, *BINARY_TEXTS,
                *many(st.binary().map(lambda data: base64.b64encode(data).decode()))]  # fmt: skip
    return [*NUMBERS, *NOT_TEXT, "", "a", "true", "[1]", "{}", "null", "\0", "😀"]


finite = st.floats(allow_nan=False, allow_infinity=False)
decimal_texts = st.one_of(
    st.from_regex(r"[+-]?[0-9]{1,6}\.[0-9]{0,3}(e[+-]?[0-9]{1,2})?", fullmatch=True),
    st.text("0123456789.+-eE x", max_size=8),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
)


@pytest.mark.parametrize("type_", [*INTEGERS, *FLOATS, *DECIMALS, *TIMES, *OTHERS])
def test_what_fits_is_just_what_arrives(spark: SparkSession, type_: str) -> None:
    values = candidates(type_)
    found = list(zip(values, fits(type_, values), arrived(spark, type_, values), strict=True))
    assert {fit for _, fit, _ in found} == {True, False}
    wrong = [case for case in found if case[1] != arrives(type_, case[0], case[2])]
    assert wrong == []


zones = st.integers(-18 * 60, 18 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(
    min_value=datetime(1, 1, 3),  # noqa: DTZ001  (the zones are drawn)
    max_value=datetime(9999, 12, 29),  # noqa: DTZ001
    timezones=st.one_of(st.none(), zones),
)


@st.composite
def moment_texts(draw: st.DrawFn) -> tuple[datetime, str]:
    """A moment, and one of the ways to write it."""
    moment = draw(moments)
    text = moment.replace(tzinfo=None).isoformat(sep=draw(st.sampled_from("T ")))
    offset = moment.utcoffset()
    if offset is not None:
        minutes = abs(offset) // timedelta(minutes=1)
        hours, minutes = divmod(minutes, 60)
        sign = "-" if offset < timedelta(0) else "+"
        colon = draw(st.sampled_from([":", ""]))
        text += draw(st.sampled_from(["", " "])) + f"{sign}{hours:02}{colon}{minutes:02}"
        if not offset:
            text = text[: -5 - len(colon)].rstrip() + draw(st.sampled_from(["Z", "UTC", " GMT"]))
    return moment.replace(tzinfo=moment.tzinfo or UTC), text


def test_moments_arrive_whatever_way_they_are_written(spark: SparkSession) -> None:
    cases = many(moment_texts(), 500)
    texts = [text for _, text in cases]
    assert [
        text for text, fit in zip(texts, fits("timestamp", texts), strict=True) if not fit
    ] == []
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    expected = [(moment - epoch) // timedelta(microseconds=1) for moment, _ in cases]
    assert arrived(spark, "timestamp", texts) == expected


def test_days_and_seconds_arrive(spark: SparkSession) -> None:
    days = many(st.dates())
    texts = [str(day) for day in days]
    assert all(fits("date", texts))
    assert arrived(spark, "date", texts) == [(day - date(1970, 1, 1)).days for day in days]
    seconds = [0, 1, -1, 1_700_000_000, -62_135_596_800, 253_402_300_799]
    assert all(fits("timestamp", seconds))
    assert arrived(spark, "timestamp", seconds) == [second * 1_000_000 for second in seconds]


LEFT_OUT = {
    "date": re.compile(
        r"\s.*|.*\s"  # blanks around it
        r"|[+-].*|0000.*|\d{5,}.*|\d{1,3}"  # years; digits alone are days
        r"|\d{4}-\d{1,2}-\d{1,2}[T ].*"  # a time
    ),
    "timestamp": re.compile(
        r"\s.*|.*\s"
        r"|[+-].*|0000.*|\d{5,}.*"
        r"|T?\d{1,2}:.*"  # no date
        r"|.*:[\d.]+ *(?!(?:Z|UTC|GMT)$)[A-Z].*"  # names of zones
        r"|.*:[\d.]+ +.* .*|.*:[\d.]+  +.*|.*[+-]\d\d?:?\d\d?:?\d\d"  # odd offsets
    ),
}
LEFT_OUT["timestamp_ntz"] = LEFT_OUT["timestamp"]


@st.composite
def damaged_moments(draw: st.DrawFn) -> str:
    text = draw(moment_texts())[1]
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.integers(0, len(text)))
        length = draw(st.integers(0, 4))
        new = draw(st.text("0123456789-:TZ+ .UTCGM/", max_size=2))
        text = text[:place] + new + text[place + length :]
    return text


@pytest.mark.parametrize("type_", TIMES)
def test_damaged_moments_fit_only_if_they_arrive(spark: SparkSession, type_: str) -> None:
    texts = many(damaged_moments(), 1_500)
    found = zip(texts, fits(type_, texts), arrived(spark, type_, texts), strict=True)
    wrong = [
        (text, fit, read)
        for text, fit, read in found
        if fit != (read is not None) and (fit or not LEFT_OUT[type_].fullmatch(text))
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("type_", "value", "read"),
    [
        ("tinyint", 128, -128),
        ("tinyint", 255, -1),
        ("float", 3.5e38, math.inf),
        ("double", 10**309, math.inf),
        ("double", "-Infinity", -math.inf),
        ("decimal(7,2)", "1.005", Decimal("1.01")),
        ("decimal(7,2)", 0.30000000000000004, Decimal("0.30")),
        ("decimal(7,2)", "1,5", Decimal("15.00")),
        ("decimal(7,2)", "1,000", Decimal("1000.00")),
        ("decimal(7,2)", "٣", Decimal("3.00")),
        ("date", "2026-11-18T23:00:00-05:00", 20_775),
        ("date", "2026-11-18T nonsense", 20_775),
        ("date", "20261118", 20_261_118),
        ("date", "0000-01-01", -719_528),
        ("timestamp", "2026-11-18T01:02:03 Europe/Berlin", 1_794_960_123_000_000),
        ("timestamp", "10000-01-01T00:00:00Z", 253_402_300_800_000_000),
        ("timestamp", " 2026-11-18", 1_794_960_000_000_000),
        ("timestamp", 1_700_000_000_000, 1_700_000_000_000_000_000),
        ("timestamp", 9_223_372_036_855, -9_223_372_036_854_551_616),
        ("string", 1.5, "1.5"),
        ("string", {"a": [1]}, '{"a":[1]}'),
        ("binary", "AAA=AAAA", bytearray(5)),
        ("binary", " AAAA", bytearray(3)),
    ],
)
def test_what_spark_would_change_or_guess_does_not_fit(
    spark: SparkSession, type_: str, value: Any, read: Any
) -> None:
    assert fits(type_, [value]) == [False]
    assert arrived(spark, type_, [value]) == [read]


def test_one_bad_value_or_name_can_take_the_whole_payload_with_it(spark: SparkSession) -> None:
    """Why binary text and keys are looked at closely."""
    payloads = [('{"v": "hello", "w": "x"}', "binary"),
                ('{"v": {"%s": 1}, "w": "x"}' % ("k" * 50_001), "map<string,int>")]  # fmt: skip
    for text, type_ in payloads:
        frame = spark.createDataFrame([(text,)], "payload string")
        (row,) = frame.select(F.from_json("payload", f"v {type_}, w string").alias("p")).collect()
        assert row.p.w is None
        assert schema_of(type_).problem(json.loads(text), 1)


def values_of(type_: ColumnType) -> st.SearchStrategy[Any]:
    """Values that fit a type, with nulls where they may be."""
    match type_:
        case Simple("bigint"):
            return st.integers(-(1 << 63), (1 << 63) - 1)
        case Simple("double"):
            return finite
        case Simple("boolean"):
            return st.booleans()
        case Array(element):
            return st.lists(st.none() | values_of(element), max_size=3)
        case Map(value):
            return st.dictionaries(texts, st.none() | values_of(value), max_size=3)
        case Struct(fields):
            return st.fixed_dictionaries(
                {
                    name: values_of(each.type)
                    if each.required
                    else st.none() | values_of(each.type)
                    for name, each in fields
                }
            )
    return texts


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
nested = st.recursive(
    st.sampled_from(["string", "bigint", "double", "boolean"]).map(Simple),
    lambda types: st.one_of(types.map(Array), types.map(Map), structs(types)),
    max_leaves=6,
)
cases = nested.flatmap(lambda type_: st.tuples(st.just(type_), values_of(type_)))


def test_nested_values_arrive_whole(spark: SparkSession) -> None:
    found = many(cases, 100)
    fields = {f"c{place}": spelled(type_) for place, (type_, _) in enumerate(found)}
    payload = {f"c{place}": value for place, (_, value) in enumerate(found)}
    version = SchemaVersion("fields", fields)
    assert compile_schema(SchemaConfig({1: version}, 1)).problem(payload, 1) is None
    ddl = ", ".join(f"{name} {type_}" for name, type_ in columns(version).items())
    frame = spark.createDataFrame([(json.dumps(payload),)], "payload string")
    read = frame.select(F.from_json("payload", ddl).alias("p"))
    keep_nulls = {"ignoreNullFields": "false"}
    (row,) = read.select(F.to_json("p", keep_nulls).alias("text")).collect()
    assert json.loads(row.text) == payload


PROPERTIES = {
    "id": {"type": "string", "format": "uuid"},
    "n": {"type": "integer"},
    "x": {"type": ["number", "null"]},
    "day": {"type": "string", "format": "date"},
    "at": {"type": "string", "format": "date-time"},
    "amount": {"x-column-type": "decimal(12,2)"},
    "either": {"type": ["integer", "object", "array"]},
    "odd `name`": {"additionalProperties": {"items": {"enum": ["a", "b"]}}},
    "node": {"$ref": "#/$defs/node"},
}
NODE = {"properties": {"name": {"const": "a"}, "next": {"$ref": "#/$defs/node"}}}


@pytest.mark.parametrize("either", [7, {"a": [1, None]}, [], [{"a": 1}]])
def test_payloads_of_a_json_schema_arrive_whole(spark: SparkSession, either: Any) -> None:
    document = {"properties": PROPERTIES, "required": list(PROPERTIES), "$defs": {"node": NODE}}
    payload = {
        "id": "12345678-1234-5678-1234-567812345678",
        "n": 7,
        "x": 1.5,
        "day": "2026-11-18",
        "at": "2026-11-18T01:02:03.500Z",
        "amount": 12.5,
        "either": either,
        "odd `name`": {"k": ["a", "b"]},
        "node": {"name": "a", "next": {"name": "a", "next": {}}},
    }
    version = SchemaVersion("json_schema", document)
    assert compile_schema(SchemaConfig({1: version}, 1)).problem(payload, 1) is None
    ddl = ", ".join(f"{quoted(name)} {type_}" for name, type_ in columns(version).items())
    frame = spark.createDataFrame([(json.dumps(payload),)], "payload string")
    (row,) = frame.select(F.to_json(F.from_json("payload", ddl)).alias("text")).collect()
    read = json.loads(row.text)
    texts = {"either": read.pop("either"), "next": read["node"].pop("next")}
    assert json.loads(texts["either"]) == payload.pop("either")
    assert json.loads(texts["next"]) == payload["node"].pop("next")
    assert read == payload


def field(ddl: str) -> StructField:
    """The column that Spark reads from a DDL."""
    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    (column,) = found.fields
    return column


@settings(max_examples=150)
@given(column_types.flatmap(lambda type_: st.tuples(st.just(type_), written(type_))))
def test_spark_reads_types_as_we_do(spark: SparkSession, case: tuple[ColumnType, str]) -> None:
    type_, text = case
    as_written = field(f"v {text}")
    assert field(f"v {normal_type(text)}") == as_written
    assert not field(f"v {normal_type(f'{text} not null')}").nullable
    printed = as_written.dataType.simpleString()
    spelling = spelled(type_, not_nulls=False)
    assert field(f"v {spelling}").dataType.simpleString() == printed
    assert spelling == printed or "`" in spelling  # Spark prints odd names as if they were not


def test_spark_makes_every_column_nullable(spark: SparkSession) -> None:
    declared = "struct<a: int not null, b: array<int>>"
    version = SchemaVersion("fields", {"v": f"{declared} not null"})
    assert columns(version) == {"v": "struct<a:int,b:array<int>>"}
    frame = spark.range(1).select(F.from_json(F.lit("{}"), f"v {declared} not null").alias("p"))
    assert '"nullable":false' not in frame.schema.json()

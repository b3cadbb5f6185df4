"""The data source's decisions, which need neither Spark nor a store."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    DecimalType,
    IntegerType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from dagster_bus.core.ranges import count
from dagster_bus.core.topic import OffsetRange, TopicPartition
from dagster_bus.errors import UsageError
from dagster_bus.spark.source.filters import condition, narrowed
from dagster_bus.spark.source.identity import Numbering, digest, hashes_of, require_apart
from dagster_bus.spark.source.options import Options, Place
from dagster_bus.spark.source.reading import READING, batch_query
from dagster_bus.spark.source.splitting import LARGE_PIECE, PIECE, TASK_BYTES, split
from dagster_bus.spark.source.streaming import STREAMING, limited, stream_query
from dagster_bus.spark.source.values import Payloads
from dagster_bus.spark.source.writing import WRITING, target

STORE = {"store": "sqlite:////tmp/bus.db"}
TOPICS = {**STORE, "topics": "orders.*"}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "one of two options: store, its address, or config, the path of its topics.yaml"),
        ({**TOPICS, "config": "topics.yaml"}, "one of two options"),
        (STORE, "option topics is missing: names or patterns of topics"),
        ({**TOPICS, "startingOfsets": "x"}, "'startingofsets' is unknown.*'startingOffsets'"),
        ({**TOPICS, "startingOffsets": "first"}, "startingOffsets is earliest, latest, or JSON"),
        ({**TOPICS, "startingOffsets": '{"a": {"0": -3}}'}, "startingOffsets is earliest"),
        ({**TOPICS, "startingOffsets": '{"a": 1}'}, "startingOffsets is earliest"),
        ({**TOPICS, "startingOffsets": "latest"}, "begins at the latest reads nothing"),
        ({**TOPICS, "endingOffsets": "earliest"}, "ends at the earliest reads nothing"),
        ({**TOPICS, "endingTimestamp": "yesterday"}, "endingTimestamp is a number from 0"),
        (
            {**TOPICS, "startingTimestamp": "1", "startingOffsets": "earliest"},
            "one of the options startingOffsets and startingTimestamp",
        ),
        ({**TOPICS, "minPartitions": "0"}, "minPartitions is a number from 1, and not '0'"),
        ({**TOPICS, "failOnDataLoss": "maybe"}, "failOnDataLoss is true or false, and not 'maybe'"),
        ({**TOPICS, "maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger is for streams"),
        ({**TOPICS, "ranges": "[[1]]"}, "ranges is a JSON list of lists of topic"),
        ({**TOPICS, "filter": '{"is": 1}'}, "filter is JSON with equals, exists and keys"),
        ({"topics": "a", "store": "postgres://u:secret@h"}, "this one begins with 'postgres'"),
    ],
)
def test_an_option_that_cannot_be_is_refused_with_what_is_allowed(
    options: dict[str, str], told: str
) -> None:
    with pytest.raises(UsageError, match=told) as error:
        batch_query(Options(options))
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("option", ["endingOffsets", "endingTimestamp", "ranges"])
def test_a_stream_has_no_end(option: str) -> None:
    with pytest.raises(UsageError, match=f"option {option} is for batches"):
        stream_query(Options({**TOPICS, option: "1"}))


def test_every_option_is_documented_and_every_documented_option_is_there() -> None:
    text = (Path(__file__).parents[2] / "docs" / "spark-source.md").read_text(encoding="utf-8")
    known = {*READING, *STREAMING, *WRITING} - {"ranges"}
    assert {name for name in known if f"`{name}`" not in text} == set()
    camel = set(re.findall(r"`([a-z]+[A-Z][a-zA-Z]+)`", text)) - {"availableNow"}
    assert camel <= known


def test_options_are_read_whatever_their_case() -> None:
    given = {**TOPICS, "STARTINGoffsets": '{"orders.paid": {"0": 7, "1": -2}}', "TYPED": "true"}
    asked = batch_query(Options(given))
    assert asked.start == Place(offsets={"orders.paid": {0: 7, 1: -2}}, option="startingOffsets")
    assert asked.patterns == ("orders.*",)


@pytest.mark.parametrize(
    ("columns", "options", "told"),
    [
        ("payload string", {}, "option topic is missing"),
        ("payload string, n int", {"topic": "out"}, "the columns n would be lost, as 'payload'"),
        ("key int, n int", {"topic": "out"}, "'key' is the key and of type int: cast it"),
        ("key string", {"topic": "out"}, "no column is left for the payload"),
        ("n int", {"topic": "out", "keyColumn": "k"}, "keyColumn: there is no column 'k'"),
        ("n int, attributes int", {"topic": "out"}, "make it a map or JSON text"),
        ("n int", {"topic": "out", "topics": "out"}, "'topics' is unknown.*did you mean 'topic'"),
    ],
)
def test_columns_that_do_not_say_what_to_publish_are_refused(
    columns: str, options: dict[str, str], told: str
) -> None:
    schema = _schema(columns)
    with pytest.raises(UsageError, match=told):
        target(Options({**STORE, **options}), schema, False, WRITING)


def _schema(columns: str) -> StructType:
    schema = StructType()
    for column in columns.split(", "):
        name, type_ = column.split()
        schema = schema.add(name, {"int": IntegerType(), "string": StringType()}[type_])
    return schema


def test_a_log_is_not_overwritten() -> None:
    with pytest.raises(UsageError, match=r'only appended to: write with .mode\("append"\)'):
        target(Options({**STORE, "topic": "out"}), _schema("n int"), True, WRITING)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 300_000)), max_size=6),
    st.integers(1, 50),
)
def test_tasks_have_each_event_once_and_are_of_bounded_size(
    sizes: list[tuple[int, int]], least: int
) -> None:
    ranges = [
        OffsetRange("orders", partition, 5, 4 + size) for partition, (_, size) in enumerate(sizes)
    ]
    tasks = split(ranges, least_tasks=least)
    taken = [span for task in tasks for span in task]
    assert count(taken) == count(ranges)
    assert {(s.partition, n) for s in taken for n in (s.first, s.last)} >= {
        (s.partition, n) for s in ranges for n in (s.first, s.last)
    }
    assert all(count(task) <= LARGE_PIECE for task in tasks)
    assert len(tasks) >= min(least, count(ranges))


def test_large_events_make_small_tasks() -> None:
    span = OffsetRange("orders", 0, 1, PIECE)
    tasks = split([span], event_bytes={TopicPartition("orders", 0): TASK_BYTES / 100})
    assert [count(task) for task in tasks] == [100] * (PIECE // 100)


def test_short_ranges_share_a_task() -> None:
    ranges = [OffsetRange("orders", partition, 1, 10) for partition in range(64)]
    assert split(ranges) == [tuple(ranges)]


EVENTS = [(topic, partition, offset, 1_000 + 2 * (offset // 2))
          for topic in ("a", "b") for partition in (0, 1) for offset in range(1, 13)]  # fmt: skip
MOMENTS = st.integers(999_000, 1_016_000).map(
    lambda us: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)
)
COMPARE = {
    EqualTo: lambda a, b: a == b,
    LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b,
    GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b,
    In: lambda a, b: a in b,
}


def filters() -> st.SearchStrategy[Filter]:
    values = {"topic": st.sampled_from("abc"), "partition": st.integers(-1, 3),
              "offset": st.integers(-1, 15), "ts": MOMENTS}  # fmt: skip

    def of(column: str) -> st.SearchStrategy[Filter]:
        kinds = [EqualTo] if column == "topic" else [k for k in COMPARE if k is not In]
        one = st.builds(lambda kind, value: kind((column,), value), st.sampled_from(kinds),
                        values[column])  # fmt: skip
        if column == "ts":
            return one
        several = st.lists(values[column], max_size=3)
        return one | several.map(lambda found: In((column,), tuple(found)))

    return st.sampled_from(list(values)).flatmap(of)


@given(st.lists(filters(), max_size=4))
def test_ranges_under_conditions_are_just_what_the_conditions_let_through(
    asked: list[Filter],
) -> None:
    def passes(event: tuple[str, int, int, int]) -> bool:
        columns: dict[str, Any] = dict(zip(("topic", "partition", "offset"), event, strict=False))
        columns["ts"] = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=event[3])
        return all(COMPARE[type(f)](columns[f.attribute[0]], f.value) for f in asked)  # type: ignore[attr-defined, no-untyped-call]

    def offsets_at(partitions: Any, ts_ms: int) -> dict[TopicPartition, int]:
        return {
            at: min([o for t, p, o, ts in EVENTS if (t, p) == at and ts >= ts_ms], default=13)
            for at in partitions
        }

    ranges = [OffsetRange(t, p, 1, 12) for t in ("a", "b") for p in (0, 1)]
    conditions = [each for f in asked if (each := condition(f)) is not None]
    assert len(conditions) == len(asked)
    left = {
        (span.topic, span.partition, offset)
        for span in narrowed(ranges, conditions, offsets_at)
        for offset in range(span.first, span.last + 1)
    }
    assert left == {event[:3] for event in EVENTS if passes(event)}


@pytest.mark.parametrize(
    "left_to_spark",
    [
        EqualTo(("key",), "a"),
        Not(EqualTo(("partition",), 1)),
        StringStartsWith(("topic",), "a"),
        LessThan(("topic",), "b"),
        EqualTo(("payload", "topic"), "a"),
        EqualTo(("ts",), datetime(2026, 1, 1)),  # noqa: DTZ001
    ],
)
def test_other_filters_are_left_to_spark(left_to_spark: Filter) -> None:
    assert condition(left_to_spark) is None


def test_the_envelope_can_be_asked_for_inside_its_column_too() -> None:
    assert condition(EqualTo(("_event", "partition"), 1)) == condition(EqualTo(("partition",), 1))
    assert condition(IsNotNull(("_event", "offset"))) is not None


@given(st.dictionaries(st.integers(0, 5), st.integers(0, 1_000), min_size=1), st.integers(1, 300))
def test_a_batch_is_no_larger_than_allowed_and_always_goes_on(
    waiting: dict[int, int], most: int
) -> None:
    begin = {TopicPartition("orders", n): 7 for n in waiting}
    ends = {TopicPartition("orders", n): 7 + count for n, count in waiting.items()}
    limit = limited(begin, ends, most)
    assert sum(limit[at] - 7 for at in limit) == min(most, sum(waiting.values()))
    assert all(7 <= limit[at] <= ends[at] for at in ends)


@given(st.lists(st.lists(st.sampled_from("abcde"), max_size=9), max_size=6), st.randoms())
def test_equal_rows_are_numbered_the_same_in_any_order(batches: list[list[str]], dice: Any) -> None:
    def keys(given_batches: list[list[str]]) -> set[tuple[str, int]]:
        numbering = Numbering()
        return {
            (row, number)
            for batch in given_batches if batch
            for row, number in zip(
                batch, numbering.numbers(hashes_of([digest(row) for row in batch])), strict=True
            )
        }  # fmt: skip

    rows = [row for batch in batches for row in batch]
    shuffled = list(rows)
    dice.shuffle(shuffled)
    found = keys(batches)
    assert found == keys([shuffled[:4], shuffled[4:]])
    assert len(found) == len(rows)


def test_what_a_row_says_cannot_be_moved_from_one_field_to_the_next() -> None:
    said = [
        ("ab", "c"),
        ("a", "bc"),
        ("abc", None),
        ("abc", ""),
        (None, "abc"),
        ("a:b", "c"),
        ("a", "b:c"),
    ]
    assert len({digest(*parts) for parts in said}) == len(said)


def test_equal_rows_of_two_tasks_are_refused() -> None:
    one, other = np.array([1, 5], dtype=np.uint64), np.array([2, 5], dtype=np.uint64)
    require_apart([one, np.array([2], dtype=np.uint64)])
    with pytest.raises(UsageError, match=r"1 rows equal rows of other tasks.*repartition"):
        require_apart([one, other])


def test_payloads_that_do_not_fit_their_columns_arrive_as_nulls() -> None:
    types = {"n": "int", "price": "decimal(5,2)", "at": "timestamp", "day": "date", "raw": "binary",
             "tags": "array<int>", "seen": "map<string,int>", "to": "struct<a:int>",
             "text": "string"}  # fmt: skip
    payloads: list[Any] = [
        {"n": 1, "price": 1.5, "at": "2026-11-18 01:02:03.5+02:00", "day": "2026-1-2",
         "raw": "YWI=", "tags": [1, None, "x"], "seen": {"a": 1, "b": "x"}, "to": {"a": 1, "b": 2},
         "text": {"a": [1]}},
        {"n": 1 << 31, "price": "1234.5", "at": "soon", "day": "2026-02-30", "raw": "?",
         "tags": 1, "seen": [], "to": "x", "text": 1.5},
        {"price": "2.5", "at": 60}, [1], None,
    ]  # fmt: skip
    schema = to_arrow_schema(_ddl(types), timezone="UTC")
    columns = Payloads(types).columns([json.dumps(payload) for payload in payloads], schema)
    rows = pa.table(columns).to_pylist()
    first = rows[0]
    assert (first["n"], str(first["price"]), str(first["day"])) == (1, "1.50", "2026-01-02")
    assert first["at"] == datetime(2026, 11, 17, 23, 2, 3, 500_000, tzinfo=UTC)
    assert (first["raw"], first["tags"]) == (b"ab", [1, None, None])
    assert (dict(first["seen"]), first["to"]) == ({"a": 1, "b": None}, {"a": 1})
    assert first["text"] == '{"a":[1]}'
    assert {name: value for name, value in rows[1].items() if value is not None} == {"text": "1.5"}
    assert (str(rows[2]["price"]), rows[2]["at"].minute) == ("2.50", 1)
    assert all(value is None for row in rows[3:] for value in row.values())


def _ddl(types: dict[str, str]) -> StructType:
    known = {"int": IntegerType(), "decimal(5,2)": DecimalType(5, 2), "timestamp": TimestampType(),
             "date": DateType(), "binary": BinaryType(), "array<int>": ArrayType(IntegerType()),
             "map<string,int>": MapType(StringType(), IntegerType()), "string": StringType(),
             "struct<a:int>": StructType().add("a", IntegerType())}  # fmt: skip
    schema = StructType()
    for name, type_ in types.items():
        schema = schema.add(name, known[type_])
    return schema

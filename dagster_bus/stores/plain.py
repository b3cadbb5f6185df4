"""JSON payloads as Arrow columns, where every value is of just the type that its column has.

Arrow reads JSON faster than Spark's `from_json` does, and agrees with it about values that need no
indulgence: text for a string, a number without a point for an integer. Where Spark would convert,
round or give null, nothing is read here, and the payloads are left to Spark.
"""

import re
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

_SIMPLE = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")

_YEAR = r"(?:1[6-9]|[2-9]\d)\d\d"
_WRITTEN = {
    "date": (pa.date32(), rf"^{_YEAR}-\d\d-\d\d$"),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        rf"^{_YEAR}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{{1,6}})?Z$",
    ),
}
"""Types that JSON has as text, each with the spellings that leave no question open."""


class PlainColumns:
    """Columns that Arrow reads as Spark would."""

    def __init__(self, types: Mapping[str, str]) -> None:
        """Raises KeyError if a column has a type that is not plain."""
        self._moments = {name: _WRITTEN[text] for name, text in types.items() if text in _WRITTEN}
        asked = [
            (name, pa.string() if text in _WRITTEN else _type(text)) for name, text in types.items()
        ]
        self._how = pa_json.ParseOptions(
            explicit_schema=pa.schema(asked), unexpected_field_behavior="ignore"
        )
        self._names = list(types)

    def read(self, payloads: pa.Array) -> dict[str, pa.Array] | None:
        """The columns of some payloads; None if a single value is for Spark to judge."""
        if not pc.all(pc.starts_with(payloads, "{"), min_count=0).as_py():
            return None  # Arrow 25 would crash over `null`
        lines = _lines(payloads)
        whole = pa_json.ReadOptions(use_threads=False, block_size=max(lines.size, 1))
        try:
            found = pa_json.read_json(pa.BufferReader(lines), whole, self._how)
            if found.num_rows != len(payloads):
                return None
            columns = {name: found[name].combine_chunks() for name in self._names}
            for name, (type_, spelling) in self._moments.items():
                columns[name] = _moments(columns[name], type_, spelling)
        except pa.ArrowInvalid:
            return None
        return columns


def plain_columns(types: Mapping[str, str]) -> PlainColumns | None:
    """A reader for columns, if there are any and all are of types that Arrow reads like Spark."""
    try:
        return PlainColumns(types) if types else None
    except KeyError:
        return None


def _type(text: str) -> pa.DataType:
    if found := _DECIMAL.fullmatch(text):
        return pa.decimal128(int(found[1]), int(found[2]))
    return _SIMPLE[text]


def _lines(texts: pa.Array) -> pa.Buffer:
    """Texts one after the other, each on a line."""
    together = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    return pc.binary_join(together, "\n")[0].as_buffer()


def _moments(texts: pa.Array, type_: pa.DataType, spelling: str) -> pa.Array:
    """Raises ArrowInvalid if one is not spelled as it should be, or there is no such day."""
    if not pc.all(pc.match_substring_regex(texts, spelling), min_count=0).as_py():
        raise pa.ArrowInvalid("spelled in another way")
    return pc.cast(texts, type_)

"""JSON payloads as columns of declared types, in the way that Spark's `from_json` reads them.

A value arrives as what it is, or as null if it does not fit its column; no row is ever left out.
What fits is known by the same rules that payloads are checked by when they are published.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from dagster_bus.schemas.checks import FLOATS, INTEGERS, compile_check
from dagster_bus.schemas.tree import Array, Column, ColumnType, Decimals, Map, Raw, Simple, Struct
from dagster_bus.schemas.types import parse

Convert = Callable[[Any], Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EXACT = Context(prec=76)
_PARTS = re.compile(
    r"(\d{4})(?:-(\d+))?(?:-(\d+))?"
    r"(?:[T ](\d+)(?::(\d+))?(?::(\d+))?(?:\.(\d*))?)? ?(?:Z|UTC|GMT|([+-])(\d\d?):?(\d+)?)?"
)


class Payloads:
    """Reads some columns of payloads."""

    def __init__(self, types: Mapping[str, str]) -> None:
        self._converts = {name: converter(_type(parse(text))) for name, text in types.items()}

    def columns(self, texts: Sequence[str], schema: Any) -> dict[str, Any]:
        """Arrow arrays by name, with the types of an Arrow schema."""
        payloads = [_object(text) for text in texts]
        return {
            name: pa.array(
                [convert(payload.get(name)) for payload in payloads], schema.field(name).type
            )
            for name, convert in self._converts.items()
        }


def converter(type_: ColumnType) -> Convert:
    """From a JSON value to what Arrow takes for a type, or None if it does not fit."""
    convert = _conversion(type_)
    if isinstance(type_, Array | Map | Struct | Raw) or type_ == Simple("string"):
        return convert  # these look at their parts, or take anything
    fits = compile_check(type_)
    return lambda value: convert(value) if value is not None and fits(value) else None


def _conversion(type_: ColumnType) -> Convert:
    match type_:
        case Simple("string") | Raw():
            return _text
        case Simple(name) if name in INTEGERS:
            return int
        case Simple(name) if name in FLOATS:
            return float
        case Simple(name):
            return _SIMPLE[name]
        case Decimals(_, scale):
            unit = Decimal(1).scaleb(-scale)
            return lambda value: Decimal(
                repr(value) if isinstance(value, float) else value
            ).quantize(unit, context=_EXACT)
        case Array(element):
            each = converter(element)
            return lambda value: [each(item) for item in value] if type(value) is list else None
        case Map(value_type):
            entry = converter(value_type)
            return lambda value: (
                [(key, entry(item)) for key, item in value.items()] if type(value) is dict else None
            )
        case Struct(columns):
            fields = [(name, converter(column.type)) for name, column in columns]
            return lambda value: (
                {name: field(value.get(name)) for name, field in fields}
                if type(value) is dict
                else None
            )


def _type(parsed: Column | ColumnType) -> ColumnType:
    return parsed.type if isinstance(parsed, Column) else parsed


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    return value if type(value) is dict else {}


def _text(value: Any) -> str | None:
    """A string column takes anything; what is not text, as JSON."""
    if value is None or type(value) is str:
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _microseconds(value: str | int) -> int:
    """Since 1970; a text without a zone is in UTC."""
    if isinstance(value, int):
        return value * 1_000_000
    since = _moment(value) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _moment(text: str) -> datetime:
    found = _PARTS.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a moment")
    *numbers, fraction, sign, zone_hours, zone_minutes = found.groups()
    year, month, day, hour, minute, second = (int(number or 0) for number in numbers)
    microsecond = int((fraction or "0")[:6].ljust(6, "0"))
    moment = datetime(year, month or 1, day or 1, hour, minute, second, microsecond, UTC)
    if not sign:
        return moment
    offset = timedelta(hours=int(zone_hours), minutes=int(zone_minutes or 0))
    return moment.replace(tzinfo=timezone(-offset if sign == "-" else offset))


def _day(text: str) -> date:
    return _moment(text).date()


_SIMPLE: dict[str, Convert] = {
    "boolean": bool,
    "binary": base64.b64decode,
    "date": _day,
    "timestamp": _microseconds,
    "timestamp_ntz": _microseconds,
}

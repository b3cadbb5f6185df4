"""Why a value does not fit its type: where, what is there, and what is expected.

Slow and wordy on purpose: it is asked only when the compiled check has said no."""

import math
from collections.abc import Iterator
from typing import Any

from dagster_bus.schemas.checks import FLOATS, INTEGERS, MAX_KEY, compile_check, is_key
from dagster_bus.schemas.decimals import digits_of
from dagster_bus.schemas.times import LAST_SECOND
from dagster_bus.schemas.tree import (
    Array,
    Column,
    ColumnType,
    Decimals,
    Map,
    Simple,
    Struct,
    spelled,
    spelled_column,
)
from dagster_bus.schemas.words import field_path, shortened, shown, unknown_field

_EXPECTED = {
    "string": "text",
    "boolean": "true or false",
    "binary": "base64 text, padded with '='",
    "date": 'a date; write it like "2026-11-18"',
    "timestamp": 'a timestamp; write it like "2026-11-18T01:02:03Z", seconds included',
    "timestamp_ntz": 'a timestamp without a zone; write it like "2026-11-18T01:02:03"',
}


def problems(type_: ColumnType, value: Any, path: str = "") -> Iterator[str]:
    """Everything that keeps a value from fitting a type; nothing if it fits."""
    match type_:
        case Array(element):
            yield from _in_array(type_, element, value, path)
        case Map(entry):
            yield from _in_map(type_, entry, value, path)
        case Struct():
            yield from _in_struct(type_, value, path)
        case _:
            if not compile_check(type_)(value):
                yield _problem(path, _complaint(type_, value), type_)


def _in_array(type_: Array, element: ColumnType, value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, list | tuple):
        yield _problem(path, f"{shown(value)} is not an array", type_)
        return
    for place, item in enumerate(value):
        if item is not None:
            yield from problems(element, item, f"{path}[{place}]")


def _in_map(type_: Map, entry: ColumnType, value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield _problem(path, f"{shown(value)} is not an object", type_)
        return
    for key, item in value.items():
        if not is_key(key):
            complaint = f"keys are text of at most {MAX_KEY:,} characters"
            yield f"{path}: {shown(key)} is not a key; {complaint}"
        elif item is not None:
            yield from problems(entry, item, field_path(path, key))


def _in_struct(struct: Struct, value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield _problem(path, f"{shown(value)} is not an object", struct)
        return
    columns = dict(struct.columns)
    if not struct.open:
        for name in value:
            if name not in columns:
                yield unknown_field(path, name, columns)
    for name, column in columns.items():
        yield from _in_column(column, value, name, field_path(path, name))


def _in_column(column: Column, value: dict[str, Any], name: str, path: str) -> Iterator[str]:
    item = value.get(name)
    if item is not None:
        yield from problems(column.type, item, path)
    elif column.required:
        missing = "null is not allowed" if name in value else "missing"
        yield f"{path}: {missing} ({_type(spelled_column(column))})"


def _complaint(type_: ColumnType, value: Any) -> str:
    """What is wrong with a value that does not fit a type without columns of its own."""
    match type_:
        case Decimals(precision, scale):
            return _decimal_complaint(value, precision - scale, scale)
        case Simple(name) if name in INTEGERS:
            return _integer_complaint(value, *INTEGERS[name])
        case Simple(name) if name in FLOATS:
            return _number_complaint(value)
        case Simple("timestamp") if _is_whole(value):
            unit = "; are these milliseconds?" if value > LAST_SECOND else ""
            return f"{shown(value)} is out of range: numbers are whole seconds since 1970{unit}"
        case Simple(name):
            return f"{shown(value)} is not {_EXPECTED[name]}"
    return f"{shown(value)} does not fit"


def _integer_complaint(value: Any, least: int, most: int) -> str:
    if isinstance(value, float) and value.is_integer():
        return f"{shown(value)} is not a whole number; write it without a point"
    if not _is_whole(value):
        return f"{shown(value)} is not a whole number"
    return f"{shown(value)} is out of range ({least} to {most})"


def _number_complaint(value: Any) -> str:
    if _is_whole(value) or (isinstance(value, float) and not math.isnan(value)):
        return f"{shown(value)} is too large"
    return f"{shown(value)} is not a number"


def _decimal_complaint(value: Any, whole: int, scale: int) -> str:
    text = float.__repr__(value) if isinstance(value, float) else value
    digits = digits_of(text) if isinstance(text, str) else None
    if digits is None and not _is_whole(value):
        return f'{shown(value)} is not a number; write it like 12.5 or "12.5"'
    if digits and digits[1] > scale:
        return f"{shown(value)} has more than {scale} digits after the point"
    return f"{shown(value)} has more than {whole} digits before the point"


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _problem(path: str, complaint: str, type_: ColumnType) -> str:
    return f"{path or 'payload'}: {complaint} ({_type(spelled(type_))})"


def _type(spelling: str) -> str:
    return shortened(spelling, 80)

"""Types compiled to functions that answer one question fast: does this value fit?

A value fits if it arrives in Spark's column of that type as what it is: neither as null, nor
rounded, cut or wrapped around. Why one does not fit is not known here.
"""

import re
import sys
from collections.abc import Callable
from typing import Any

from dagster_bus.schemas.decimals import decimal_check
from dagster_bus.schemas.times import is_date, is_local_timestamp, is_timestamp
from dagster_bus.schemas.tree import Array, ColumnType, Decimals, Map, Raw, Simple, Struct

Check = Callable[[Any], bool]

INTEGERS = {
    "tinyint": (-(1 << 7), (1 << 7) - 1),
    "smallint": (-(1 << 15), (1 << 15) - 1),
    "int": (-(1 << 31), (1 << 31) - 1),
    "bigint": (-(1 << 63), (1 << 63) - 1),
}
FLOATS = {
    "float": (3.4028235677973366e38, 2**128 - 2**103 - 1),
    "double": (sys.float_info.max, 2**1024 - 2**970 - 1),
}
"""The largest float and the largest whole number that do not arrive as infinity."""

MAX_KEY = 10_000
"""Characters in a map's key. Spark's parser gives up on a payload with a name of 50,000 bytes."""

_base64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?").fullmatch


def compile_check(type_: ColumnType) -> Check:
    """Whether a value that is not null fits a type."""
    match type_:
        case Simple(name) if name in INTEGERS:
            return _integer(*INTEGERS[name])
        case Simple(name) if name in FLOATS:
            return _number(*FLOATS[name])
        case Simple(name):
            return _OTHERS[name]
        case Raw():
            return _anything
        case Decimals(precision, scale):
            return decimal_check(precision, scale)
        case Array(element):
            return _array(compile_check(element))
        case Map(value):
            return _map(compile_check(value))
        case Struct():
            return _open_struct(type_) if type_.open else _struct(type_)


def _integer(least: int, most: int) -> Check:
    def fits(value: Any) -> bool:
        if type(value) is int:
            return least <= value <= most
        return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most

    return fits


def _number(most: float, most_whole: int) -> Check:
    def fits(value: Any) -> bool:
        if isinstance(value, float):
            return -most <= value <= most  # not so for NaN
        if isinstance(value, int):
            return not isinstance(value, bool) and -most_whole <= value <= most_whole
        return False

    return fits


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _boolean(value: Any) -> bool:
    return value is True or value is False


def _binary(value: Any) -> bool:
    return isinstance(value, str) and _base64(value) is not None


def _anything(_: Any) -> bool:
    return True


def _nothing(_: Any) -> bool:
    return False


_OTHERS: dict[str, Check] = {
    "string": _text,
    "boolean": _boolean,
    "binary": _binary,
    "date": is_date,
    "timestamp": is_timestamp,
    "timestamp_ntz": is_local_timestamp,
}


def _array(element: Check) -> Check:
    def fits(value: Any) -> bool:
        if not isinstance(value, (list, tuple)):
            return False
        for item in value:  # noqa: SIM110  (all() would start a generator for each array)
            if item is not None and not element(item):
                return False
        return True

    return fits


def _map(entry: Check) -> Check:
    def fits(value: Any) -> bool:
        if not isinstance(value, dict):
            return False
        for key, item in value.items():
            if not is_key(key) or (item is not None and not entry(item)):
                return False
        return True

    return fits


def is_key(key: Any) -> bool:
    return isinstance(key, str) and len(key) <= MAX_KEY


def _struct(struct: Struct) -> Check:
    checks = {name: compile_check(column.type) for name, column in struct.columns}
    texts = frozenset(name for name, column in struct.columns if column.type == Simple("string"))
    required = frozenset(name for name, column in struct.columns if column.required)
    find = checks.get

    def fits(value: Any) -> bool:
        if not isinstance(value, dict):
            return False
        for name, item in value.items():
            if type(item) is str and name in texts:
                continue  # most fields are text: those are spared a call
            if item is None:
                if name in required or name not in checks:
                    return False
            elif not find(name, _nothing)(item):
                return False
        return len(value) == len(checks) or required <= value.keys()

    return fits


def _open_struct(struct: Struct) -> Check:
    checks = [(name, compile_check(column.type)) for name, column in struct.columns]
    required = frozenset(name for name, column in struct.columns if column.required)

    def fits(value: Any) -> bool:
        if not isinstance(value, dict):
            return False
        for name, check in checks:
            item = value.get(name)
            if item is None:
                if name in required:
                    return False
            elif not check(item):
                return False
        return True

    return fits

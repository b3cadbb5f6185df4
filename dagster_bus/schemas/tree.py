"""The types of a payload's columns as a tree, and the one spelling that each of them has."""

import re
from dataclasses import dataclass
from typing import TypeAlias

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Simple:
    """A type without parts, by the name that Spark prints."""

    name: str


@dataclass(frozen=True, slots=True)
class Raw:
    """A string column that takes whatever comes, as JSON text."""


@dataclass(frozen=True, slots=True)
class Decimals:
    """Numbers of `precision` digits, `scale` of them after the point."""

    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class Array:
    element: "ColumnType"


@dataclass(frozen=True, slots=True)
class Map:
    """Values by text: JSON has no other keys."""

    value: "ColumnType"


@dataclass(frozen=True, slots=True)
class Column:
    """A type, and whether a value must be there."""

    type: "ColumnType"
    required: bool = False


@dataclass(frozen=True, slots=True)
class Struct:
    """Named columns. Raises ValueError for names that Spark cannot use or tell apart."""

    columns: tuple[tuple[str, Column], ...]
    open: bool = False
    """Fields that are not declared may be there; Spark passes over them."""

    def __post_init__(self) -> None:
        seen: dict[str, str] = {}
        for name, _ in self.columns:
            if not name:
                raise ValueError("a column needs a name")
            if name.lower() in seen:
                raise ValueError(_indistinct(seen[name.lower()], name))
            seen[name.lower()] = name


ColumnType: TypeAlias = Simple | Raw | Decimals | Array | Map | Struct


def spelled(type_: ColumnType, *, not_nulls: bool = True) -> str:
    """A type in Spark's DDL; without `not_nulls`, just as Spark prints it."""
    match type_:
        case Simple(name):
            return name
        case Raw():
            return "string"
        case Decimals(precision, scale):
            return f"decimal({precision},{scale})"
        case Array(element):
            return f"array<{spelled(element, not_nulls=not_nulls)}>"
        case Map(value):
            return f"map<string,{spelled(value, not_nulls=not_nulls)}>"
        case Struct(columns):
            parts = (
                f"{quoted(name)}:{spelled_column(column) if not_nulls else _bare(column)}"
                for name, column in columns
            )
            return f"struct<{','.join(parts)}>"


def spelled_column(column: Column) -> str:
    return spelled(column.type) + (" not null" if column.required else "")


def quoted(name: str) -> str:
    """A column's name as it stands in a DDL."""
    return name if _PLAIN_NAME.fullmatch(name) else f"`{name.replace('`', '``')}`"


def _bare(column: Column) -> str:
    return spelled(column.type, not_nulls=False)


def _indistinct(first: str, second: str) -> str:
    if first == second:
        return f"{first!r} stands there twice"
    return f"{first!r} and {second!r} differ in case only; Spark takes them for one"

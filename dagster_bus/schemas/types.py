"""Column types as people declare them: Spark's DDL, without what JSON cannot carry.

A type that stands alone may end in `not null`, as the fields of a struct may: the value must then
be there.
"""

import re
from collections.abc import Sequence

from dagster_bus.schemas.tree import (
    Array,
    Column,
    ColumnType,
    Decimals,
    Map,
    Simple,
    Struct,
    spelled_column,
)
from dagster_bus.schemas.words import did_you_mean, shortened

MAX_PRECISION = 38
MAX_DEPTH = 32
"""Types within types. Whatever is deeper is a mistake, and recursion has its limits."""

_SIMPLE = {
    "string": "string",
    "boolean": "boolean",
    "tinyint": "tinyint",
    "byte": "tinyint",
    "smallint": "smallint",
    "short": "smallint",
    "int": "int",
    "integer": "int",
    "bigint": "bigint",
    "long": "bigint",
    "float": "float",
    "real": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "binary": "binary",
}
_WORDS = (*_SIMPLE, "decimal", "array", "map", "struct")
_KNOWN = (
    f"{', '.join(dict.fromkeys(_SIMPLE.values()))}, decimal(p,s), array<type>, map<string,type> "
    "and struct<name: type, …>"
)
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|([A-Za-z0-9_]+)|([<>(),:]))")


def normal_type(text: str) -> str:
    """The normal spelling of a declared type. Raises ValueError saying what is allowed."""
    return spelled_column(parse(text))


def parse(text: str) -> Column:
    """The column that a text declares. Raises ValueError saying what is allowed."""
    if not isinstance(text, str):  # as a JSON document may have it
        raise ValueError(f"{text!r} is not a column type; known are {_KNOWN}")
    try:
        parser = _Parser(_tokens(text))
        column = parser.column()
        parser.end()
    except _UnknownType as unknown:
        raise ValueError(_unknown_type(unknown.word, text)) from None
    except ValueError as error:
        raise ValueError(f"{shortened(text)!r} is not a column type: {error}") from None
    return column


class _UnknownType(Exception):
    """A word that is no type stands where one should."""

    def __init__(self, word: str) -> None:
        super().__init__(word)
        self.word = word


def _unknown_type(word: str, text: str) -> str:
    inside = "" if word == text.strip() else f" (in {shortened(text)!r})"
    return (
        f"{shortened(word)!r} is not a column type{inside}; known are {_KNOWN}"
        f"{did_you_mean(word, _WORDS)}"
    )


def _tokens(text: str) -> list[str]:
    tokens = []
    place, end = 0, len(text.rstrip())
    while place < end:
        found = _TOKEN.match(text, place)
        if found is None:
            odd = text[place:].lstrip()[0]
            raise ValueError(f"{odd!r} cannot stand in it; put odd names into backticks: `a-b`")
        tokens.append(found[found.lastindex or 0])
        place = found.end()
    return tokens


class _Parser:
    """Takes one token after the other. Raises ValueError with what it missed."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = tokens
        self._place = 0
        self._depth = 0

    def column(self) -> Column:
        type_ = self._type()
        if self._peek().lower() != "not":
            return Column(type_)
        self._take()
        self._expect("null", "after 'not' comes 'null'")
        return Column(type_, required=True)

    def end(self) -> None:
        if self._peek():
            raise ValueError(f"it should end before {self._peek()!r}")

    def _type(self) -> ColumnType:
        if self._depth == MAX_DEPTH:
            raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
        self._depth += 1
        word = self._take()
        match word.lower():
            case "decimal":
                type_: ColumnType = self._decimal()
            case "array":
                type_ = self._array()
            case "map":
                type_ = self._map()
            case "struct":
                type_ = self._struct()
            case lowered:
                type_ = self._simple(word, lowered)
        self._depth -= 1
        return type_

    def _simple(self, word: str, lowered: str) -> Simple:
        if lowered in _SIMPLE:
            return Simple(_SIMPLE[lowered])
        if word and word not in "<>(),:":
            raise _UnknownType(word)
        raise ValueError(f"a type is missing {f'before {word!r}' if word else 'at its end'}")

    def _decimal(self) -> Decimals:
        if self._peek() != "(":
            return Decimals(10, 0)  # as in Spark
        self._take()
        precision = self._digits()
        scale = 0
        if self._peek() == ",":
            self._take()
            scale = self._digits()
        self._expect(")", "write decimal(p,s), such as decimal(12,2)")
        if not (1 <= precision <= MAX_PRECISION and scale <= precision):
            raise ValueError(
                f"a decimal has 1 to {MAX_PRECISION} digits, at most all of them after the point"
            )
        return Decimals(precision, scale)

    def _digits(self) -> int:
        word = self._take()
        if not (word.isdecimal() and len(word) <= 9):
            raise ValueError("write decimal(p,s), such as decimal(12,2)")
        return int(word)

    def _array(self) -> Array:
        self._expect("<", "write array<type>")
        element = self._type()
        self._close("array<type>")
        return Array(element)

    def _map(self) -> Map:
        self._expect("<", "write map<string,type>")
        if self._type() != Simple("string"):
            raise ValueError("the keys of a map are string, as JSON has no others")
        self._expect(",", "write map<string,type>")
        value = self._type()
        self._close("map<string,type>")
        return Map(value)

    def _struct(self) -> Struct:
        self._expect("<", "write struct<name: type, …>")
        columns = [self._field()]
        while self._peek() == ",":
            self._take()
            columns.append(self._field())
        self._close("struct<name: type, …>")
        return Struct(tuple(columns))

    def _field(self) -> tuple[str, Column]:
        word = self._take()
        if not word or word in "<>(),:":
            raise ValueError("write struct<name: type, …>")
        name = word[1:-1].replace("``", "`") if word.startswith("`") else word
        if self._peek() == ":":  # Spark does without it, too
            self._take()
        return name, self.column()

    def _close(self, form: str) -> None:
        if self._peek().lower() == "not":
            raise ValueError("'not null' stands after a field's type only")
        self._expect(">", f"'>' is missing; write {form}")

    def _expect(self, wanted: str, advice: str) -> None:
        if self._take().lower() != wanted:
            raise ValueError(advice)

    def _peek(self) -> str:
        return self._tokens[self._place] if self._place < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._place += 1
        return token

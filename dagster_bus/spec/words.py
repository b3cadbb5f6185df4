"""The words that may stand in the file: names, patterns, addresses, paths of code."""

import re
from collections.abc import Callable
from typing import Annotated

from dagster_bus.core.topic import require_pattern, require_topic_name
from dagster_bus.errors import UsageError
from dagster_bus.schemas.types import normal_type
from dagster_bus.spec.base import Word
from dagster_bus.spec.hints import shown
from dagster_bus.spec.times import cron_schedule, iso_timestamp, time_zone


def _by_the_core(require: Callable[[str], None], pattern: str) -> Word:
    """A rule of the core as a rule of the file."""

    def check(text: str) -> str:
        try:
            require(text)
        except UsageError as error:
            raise ValueError(str(error)) from None
        return text

    return Word(check, pattern)


def _spelled(pattern: str, advice: str) -> Word:
    """A check of a word's spelling that says in words what is allowed."""
    expression = re.compile(pattern)

    def check(word: str) -> str:
        if not expression.fullmatch(word):
            raise ValueError(f"{shown(word)} cannot stand here ({advice})")
        return word

    return Word(check, pattern)


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("there is no text here (write some, or remove the key)")
    return text


def _store_url(url: str) -> str:
    """Addresses hold passwords, so no message repeats one."""
    if re.fullmatch(r"sqlite:///.+", url):
        return url
    if not re.match(r"mongodb(\+srv)?://[^/?#]", url):
        raise ValueError(
            "this is not the address of a store (sqlite:///path/to/bus.db, "
            "mongodb://host/bus?replicaSet=rs0 or mongodb+srv://host/bus)"
        )
    if not re.fullmatch(r'mongodb(\+srv)?://[^/?#]+/[^/\\. "$*<>:|?#]{1,63}(\?.*)?', url):
        raise ValueError(
            "the address names no database (it stands after the host, such as "
            "mongodb://host:27017/bus?replicaSet=rs0)"
        )
    return url


_SEGMENT = "[a-z0-9-]+"
_PART = rf"(?:{_SEGMENT}|\*\*?)"

TopicName = Annotated[str, _by_the_core(require_topic_name, rf"{_SEGMENT}(?:\.{_SEGMENT})*")]
Pattern = Annotated[str, _by_the_core(require_pattern, rf"{_PART}(?:\.{_PART})*")]
GroupName = Annotated[
    str, _spelled("[a-z0-9][a-z0-9-]{0,59}", "a group's name is at most 60 of a-z, 0-9 and '-'")
]
PolicyName = Annotated[
    str,
    _spelled(
        "[A-Za-z0-9][A-Za-z0-9_-]{0,59}",
        "a policy's name is at most 60 letters, digits, '-' and '_'",
    ),
]
Name = Annotated[
    str,
    _spelled("[A-Za-z_][A-Za-z0-9_]*", "a name is letters, digits and '_', no digit first"),
]
ColumnName = Annotated[
    str,
    _spelled("[A-Za-z][A-Za-z0-9_]*", "a column's name is a letter, then letters, digits and '_'"),
]
ColumnType = Annotated[str, Word(normal_type)]
OwnerName = Annotated[
    str,
    _spelled(
        r"team:.+|[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}",
        "an owner is team:NAME or an e-mail address",
    ),
]
CallerPattern = Annotated[
    str,
    _spelled(
        "[A-Za-z0-9_.@:/*-]+",
        "a caller's name is letters, digits and _ . @ : / -, and '*' stands for any of them",
    ),
]
ExceptionPattern = Annotated[
    str,
    _spelled(
        "[A-Za-z_*][A-Za-z0-9_.*]*",
        "the name of an exception, such as ValueError, pymongo.errors.* or *Timeout",
    ),
]
Function = Annotated[
    str,
    _spelled(
        "[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*",
        "write module:function, such as shop.jobs:clean",
    ),
]
Class = Annotated[
    str,
    _spelled(
        "[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*",
        "write module:Class, such as shop.models:Order",
    ),
]
StoreUrl = Annotated[str, Word(_store_url, r"sqlite:///.+|mongodb(\+srv)?://[^/?#]+/[^/?#]+.*")]
SparkRemote = Annotated[
    str, _spelled("sc://.+", "a Spark Connect server is sc://host:port, such as sc://spark:15002")
]
MavenPackage = Annotated[
    str,
    _spelled(
        r"[^:,\s]+:[^:,\s]+:[^:,\s]+",
        "a package is group:artifact:version, such as io.delta:delta-spark_2.13:4.0.0",
    ),
]
DagsterName = Annotated[
    str, _spelled("[A-Za-z0-9_]+", "a name in Dagster is letters, digits and '_'")
]
PoolName = Annotated[str, _spelled(r"\S+", "a pool's name has no blanks")]
TagKey = Annotated[
    str,
    _spelled(
        "([A-Za-z0-9_.-]{1,63}/)?[A-Za-z0-9_.-]{1,63}",
        "a tag's key is letters, digits and _ . -, with one '/' at most",
    ),
]
LabelKey = Annotated[
    str,
    _spelled(
        "(?!dagster/)([A-Za-z0-9_.-]{1,63}/)?[A-Za-z0-9_.-]{1,63}",
        "a label's key is letters, digits and _ . -, with one '/' at most, and not dagster/…",
    ),
]
LabelValue = Annotated[
    str,
    _spelled("[A-Za-z0-9_.-]{0,63}", "a label's value is at most 63 letters, digits and _ . -"),
]
WebAddress = Annotated[
    str,
    _spelled(r"https?://[^\s/]+\S*", "write an address of the web, such as https://wiki/orders"),
]
Text = Annotated[str, Word(_not_blank)]
Cron = Annotated[str, Word(cron_schedule)]
TimeZone = Annotated[str, Word(time_zone)]
Timestamp = Annotated[str, Word(iso_timestamp, "[0-9]{4}-.+")]

"""Columns for Dagster: what they are, and which of a table's are columns of topics, where the file
alone tells.

A query of the plainest kind is understood: columns of the view `events`, renamed or not, with
expressions beside them. Of all others nothing is claimed.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from dagster import TableColumn, TableColumnDep, TableColumnLineage, TableSchema

from dagster_bus.orchestration.names import topic_key
from dagster_bus.spec.load import LoadedSpec

_PLAIN = re.compile(
    r"\s*SELECT\s+(?!DISTINCT\b)(.*?)\s+FROM\s+events\b(.*)", re.IGNORECASE | re.DOTALL
)
_MORE = re.compile(
    r"\b(SELECT|FROM|JOIN|UNION|INTERSECT|EXCEPT|MINUS|LATERAL|PIVOT|UNPIVOT|VALUES)\b|[;,`]",
    re.IGNORECASE,
)
"""What may bring other columns in, or quotes what this does not look into."""

_COMMENT = re.compile(r"--|/\*")

_COLUMN = re.compile(r"(?:events\.)?([a-z_]\w*)(?:\s+(?:AS\s+)?([a-z_]\w*))?", re.IGNORECASE)


def table_schema(columns: Mapping[str, str]) -> TableSchema:
    """Columns and their types in Spark's words."""
    return TableSchema(columns=[TableColumn(name, type_) for name, type_ in columns.items()])


def column_lineage(loaded: LoadedSpec, group: str) -> dict[str, TableColumnLineage]:
    """As metadata of the group's table; nothing if nothing is known."""
    query = loaded.spec.groups[group].sql
    if query is None:
        return {}
    topics = loaded.topics_of(group)
    deps = {
        column: [
            TableColumnDep(topic_key(topic), source)
            for topic in topics
            if source in loaded.columns_of_topic(topic)
        ]
        for column, source in passed_through(query, loaded.columns_of(group))
    }
    return {"dagster/column_lineage": TableColumnLineage(deps)} if deps else {}


def passed_through(query: str, columns: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Columns of a query's result that are columns of the events, each with that one's name."""
    query = _without_texts(query)
    found = _PLAIN.fullmatch(query)
    if found is None or _COMMENT.search(query) or _MORE.search(found[2]):
        return
    known = {name.lower(): name for name in columns}
    for item in _items(found[1]):
        column = _COLUMN.fullmatch(item.strip())
        source = known.get(column[1].lower()) if column else None
        if column and source:
            yield column[2] or column[1], source


def _without_texts(sql: str) -> str:
    return re.sub(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"", "''", sql)


def _items(select: str) -> Iterator[str]:
    """What stands between commas that are in no parentheses."""
    depth, item = 0, ""
    for sign in select:
        depth += (sign in "([") - (sign in ")]")
        if sign == "," and not depth:
            yield item
            item = ""
        else:
            item += sign
    yield item

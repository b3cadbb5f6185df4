"""Putting the rows of many events into the log with few and short statements.

One statement with many rows is faster than many executions of one with a single row, and each
execution is a chance for other threads to take the interpreter away. Most columns of a batch have
one value in all rows, which need be handed over but once.
"""

import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from dagster_bus.stores.sqlite.connection import load_queries

INSERT = load_queries()["insert_event"]
SIZES = (100, 30, 10, 3, 1)
"""Rows of a statement. A few sizes serve for any number of events, and their statements are kept
ready by the connection."""

Columns = tuple[Sequence[Any], ...]
"""The values of events, each column of the table by itself."""


def insert_events(connection: sqlite3.Connection, batches: Sequence[Columns]) -> None:
    columns = batches[0] if len(batches) == 1 else _joined(batches)
    count = len(columns[0])
    is_shared = tuple(column.count(column[0]) == count for column in columns)
    shared = [column[0] for column, one in zip(columns, is_shared, strict=True) if one]
    own = [column for column, one in zip(columns, is_shared, strict=True) if not one]
    values = list(chain.from_iterable(zip(*own, strict=True)))
    width, done = len(own), 0
    for size in SIZES:
        while count - done >= size:
            some = values[done * width : (done + size) * width]
            connection.execute(_statement(is_shared, size), shared + some)
            done += size


def _joined(batches: Sequence[Columns]) -> Columns:
    return tuple(list(chain.from_iterable(parts)) for parts in zip(*batches, strict=True))


@lru_cache(maxsize=128)
def _statement(is_shared: tuple[bool, ...], rows: int) -> str:
    """The statement for so many rows. Its first parameters are those that all rows share."""
    shared = iter(range(1, sum(is_shared) + 1))
    numbers = [next(shared) if one else None for one in is_shared]
    last = sum(is_shared) + rows * is_shared.count(False)
    own = iter(range(sum(is_shared) + 1, last + 1))
    values = (
        f"({', '.join(f'?{number or next(own)}' for number in numbers)})" for _ in range(rows)
    )
    head, _, _ = INSERT.rpartition("(")
    return head + ", ".join(values)

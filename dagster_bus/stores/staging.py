"""Ranges of the embedded store as Parquet files, written by processes of their own.

Spark reads such files many times as fast as it takes rows from a Python process. Payloads that
Arrow reads as Spark would are staged as columns, beside the envelope; the others as text, which
Spark is to parse. A process of its own is needed, as the one that asks may have the store open
(see `dagster_bus.stores.arrow`); several, as there is more than one core.

python -m dagster_bus.stores.staging    reads a job from its input, and then a piece a line
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dagster_bus.core.topic import EventFilter, OffsetRange
from dagster_bus.errors import BusError, StoreError
from dagster_bus.stores.arrow import ENVELOPE, pieces, read_batches
from dagster_bus.stores.plain import plain_columns
from dagster_bus.stores.sqlite.connection import keep_freed_memory

PARSED, TEXT = "parsed", "text"
"""The folders of the two kinds of files."""

PIECE = 100_000
"""Events in one file."""

MOST_PROCESSES = 8

Pieces = SimpleQueue[tuple[int, OffsetRange]]
Counts = dict[str, int]


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be staged, and how."""

    store: str
    folder: str
    wanted: EventFilter
    types: Mapping[str, str]
    """The payload's columns."""
    event: str
    """The column for the envelope, beside those."""
    corrupt: str | None = None
    """A column for payloads that do not fit; those that are staged as columns do."""


@contextmanager
def staging(job: Job, ranges: Sequence[OffsetRange]) -> Iterator[Callable[[], Counts]]:
    """Have files written while the block does something else. What it gets waits for them, and says
    how many events are in those of each kind, or raises StoreError if events are not there.

    Nothing is written any more when the block has ended."""
    waiting: Pieces = SimpleQueue()
    todo = pieces(ranges, PIECE)
    for numbered in enumerate(todo):
        waiting.put(numbered)
    count = min(os.cpu_count() or 1, MOST_PROCESSES, len(todo))
    with ThreadPoolExecutor(max(count, 1)) as threads:
        parts = [threads.submit(_feed, waiting, job) for _ in range(count)]
        try:
            yield lambda: _sum([part.result() for part in parts])
        finally:
            _drain(waiting)


def _sum(parts: Sequence[Counts]) -> Counts:
    return {kind: sum(counts[kind] for counts in parts) for kind in (PARSED, TEXT)}


def _drain(waiting: Pieces) -> None:
    with suppress(Empty):
        while True:
            waiting.get_nowait()


Worker = subprocess.Popen[str]


@contextmanager
def _worker(job: Job) -> Iterator[Worker]:
    """A process that writes pieces. It ends with its input, and so with this process."""
    command = [sys.executable, "-m", "dagster_bus.stores.staging"]
    pipe = subprocess.PIPE
    with subprocess.Popen(  # noqa: S603  (this very program)
        command, stdin=pipe, stdout=pipe, text=True, encoding="utf-8"
    ) as worker:
        try:
            _say(worker, asdict(job))
            yield worker
        finally:
            worker.kill()


def _feed(waiting: Pieces, job: Job) -> Counts:
    """Give pieces to a process of its own, as long as there are any."""
    counts = {PARSED: 0, TEXT: 0}
    with _worker(job) as worker:
        while True:
            try:
                number, span = waiting.get_nowait()
            except Empty:
                return counts
            try:
                answer = _answer(worker, [number, *asdict(span).values()])
            except StoreError:
                _drain(waiting)  # there is no use in the other pieces
                raise
            for kind, count in answer.items():
                counts[kind] += count


def _answer(worker: Worker, piece: Sequence[Any]) -> Counts:
    assert worker.stdout is not None  # noqa: S101  (both are pipes)
    try:
        _say(worker, piece)
    except BrokenPipeError:
        line = ""
    else:
        line = worker.stdout.readline()
    if not line:
        raise StoreError("a process that was reading the store has died; its output says why")
    answer: dict[str, Any] = json.loads(line)
    if "error" in answer:
        raise StoreError(answer["error"])
    return answer


def _say(worker: Worker, what: Any) -> None:
    assert worker.stdin is not None  # noqa: S101
    worker.stdin.write(f"{json.dumps(what)}\n")
    worker.stdin.flush()


class Stager:
    """Writes pieces as files."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._plain = plain_columns(job.types)

    def write(self, number: int, span: OffsetRange) -> Counts:
        """A file of each kind that is needed."""
        counts = {PARSED: 0, TEXT: 0}
        with ExitStack() as files:
            writers: dict[str, pq.ParquetWriter] = {}
            for batch in read_batches(self._job.store, span, self._job.wanted):
                kind, rows = self._rows(batch)
                if kind not in writers:
                    file = Path(self._job.folder, kind, f"{number:06}.parquet")
                    file.parent.mkdir(exist_ok=True)
                    writers[kind] = files.enter_context(_writer(file, rows.schema))
                writers[kind].write_batch(rows, row_group_size=rows.num_rows)
                counts[kind] += rows.num_rows
        return counts

    def _rows(self, batch: pa.RecordBatch) -> tuple[str, pa.RecordBatch]:
        columns = self._plain.read(batch["payload"]) if self._plain else None
        if columns is None:
            return TEXT, batch
        if self._job.corrupt is not None:
            columns[self._job.corrupt] = pa.nulls(batch.num_rows, pa.string())
        columns[self._job.event] = pa.StructArray.from_arrays(batch.columns, fields=[*ENVELOPE])
        return PARSED, pa.RecordBatch.from_pydict(columns)


def _writer(file: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """Few values of these columns are repeated, but for those of the envelope that are all one."""
    return pq.ParquetWriter(
        file, schema, compression="lz4", use_dictionary=False, write_statistics=False
    )


class NoPandas:
    """Arrow imports pandas to know its objects when it sees them, which takes a process that lives
    for a moment as long as half of its work does. There are none here."""

    def find_spec(self, name: str, *_: Any) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def main() -> None:
    keep_freed_memory(31 << 20)
    sys.meta_path.insert(0, NoPandas())
    job = json.loads(sys.stdin.readline())
    stager = Stager(Job(**{**job, "wanted": EventFilter(**job["wanted"])}))
    for line in sys.stdin:
        number, *span = json.loads(line)
        try:
            answer: dict[str, Any] = stager.write(number, OffsetRange(*span))
        except BusError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

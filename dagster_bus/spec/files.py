"""Files as text, with a place for everything that keeps one from being read."""

import json
from pathlib import Path
from typing import Any

from dagster_bus.errors import Problem, SpecError, UsageError

MAX_BYTES = 4 << 20
"""Room for tens of thousands of topics; more is not a file that somebody wrote."""


def read_text(file: Path) -> str:
    """The text of `topics.yaml`. Raises UsageError if there is no file, SpecError if no text."""
    data = _read(file, "dagster-bus -f names another file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8-sig", errors="replace")) + 1
        wide = "it looks like UTF-16; " if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
        message = f"not UTF-8 text ({wide}save it as UTF-8)"
        problem = Problem(file.name, before.count(b"\n") + 1, column, message)
        raise SpecError([problem]) from None


def read_json(file: Path) -> Any:
    """A JSON document. Raises UsageError saying what is wrong with it."""
    data = _read(file, "the path counts from the folder of topics.yaml")
    try:
        return json.loads(data.decode("utf-8-sig"), parse_constant=_refuse)
    except json.JSONDecodeError as error:
        problem = f"{error.msg} in line {error.lineno}, column {error.colno}"
    except UnicodeDecodeError:
        problem = "not UTF-8 text"
    except ValueError as error:
        problem = str(error)
    except RecursionError:
        problem = "nested too deeply"
    raise UsageError(f"{file} is not JSON: {problem}")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON value")


def _read(file: Path, advice: str) -> bytes:
    """The bytes of a file of bearable size; of anything else only so many."""
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"cannot read {file}: {reason} ({advice})") from None
    if len(data) > MAX_BYTES:
        raise UsageError(f"{file} is larger than {MAX_BYTES >> 20} MiB, and is not read")
    return data

"""A group's pipeline: a user's function, or a query, from a DataFrame of events to rows.

A function may give one DataFrame, or several by name; and beside that a DataFrame of the events
that it rejects, with the columns `_event` and `reason`.
"""

import importlib
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from dagster_bus.errors import PipelineError
from dagster_bus.spark.frames import EVENT

Pipeline = Callable[[DataFrame], Any]

ONLY = ""
"""The name of a result that has none, as it is the only one."""

REASON = "reason"

VIEW = "events"


@dataclass(frozen=True, slots=True)
class Produced:
    """What a pipeline gave."""

    results: Mapping[str, DataFrame]
    rejected: DataFrame | None = None


def load_pipeline(path: str) -> Pipeline:
    """Import `module:function`. Raises PipelineError saying which of the two is missing."""
    module_name, function_name = path.split(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise PipelineError(f"pipeline {path}: {error}; is its folder on PYTHONPATH?") from error
    except Exception as error:
        raise PipelineError(
            f"pipeline {path}: importing {module_name} failed with {type(error).__name__}: {error}"
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise PipelineError(f"pipeline {path}: {module_name} has no function {function_name!r}")
    pipeline: Pipeline = function
    return pipeline


def query_pipeline(query: str, params: Mapping[str, Any]) -> Pipeline:
    """A query over the view `events`, with values for its `:name` parameters."""

    def run(events: DataFrame) -> DataFrame:
        events.createOrReplaceTempView(VIEW)
        return events.sparkSession.sql(query, args=dict(params))

    return run


def apply_pipeline(
    pipeline: Pipeline, events: DataFrame, *, name: str, names: tuple[str, ...] = (ONLY,)
) -> Produced:
    """The pipeline's results, by the names that are declared. An error that a function raises
    tells where it stood. Raises PipelineError if its results are not what was declared."""
    try:
        given = pipeline(events)
    except Exception as error:
        if (place := _place(error)) is not None:
            error.add_note(f"raised at {place}")
        raise
    rows, rejected = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    results = rows if isinstance(rows, Mapping) else {ONLY: rows}
    for label, frame in (*results.items(), ("rejected", rejected)):
        if not isinstance(frame, DataFrame) and not (label == "rejected" and frame is None):
            kind = type(frame).__name__
            raise PipelineError(f"pipeline {name} returned {kind}; it must return a DataFrame")
    if {*results} != {*names}:
        raise PipelineError(_other_names(name, [*results], [*names]))
    if rejected is not None and not {EVENT, REASON} <= {*rejected.columns}:
        raise PipelineError(
            f"pipeline {name} rejects events without saying which or why: "
            f"the second DataFrame needs the columns {EVENT} and {REASON}"
        )
    return Produced(results, rejected)


def _place(error: BaseException) -> str | None:
    """The last place in the file of the user's function that an error came through."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    own = [frame for frame in frames if frame.filename == frames[0].filename != __file__]
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}, in {own[-1].name}" if own else None


def _other_names(pipeline: str, given: list[str], declared: list[str]) -> str:
    if given == [ONLY]:
        return f"pipeline {pipeline} returned one DataFrame; table.results names {declared}"
    if declared == [ONLY]:
        return (
            f"pipeline {pipeline} returned several DataFrames, {given}; "
            f"name them in the group's table: results: {given}"
        )
    return f"pipeline {pipeline} returned the results {given}; table.results names {declared}"

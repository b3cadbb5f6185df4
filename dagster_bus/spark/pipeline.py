"""A group's pipeline: a user's function from a DataFrame of events to a DataFrame of rows."""

import importlib
from collections.abc import Callable

from pyspark.sql import DataFrame

from dagster_bus.errors import PipelineError

Pipeline = Callable[[DataFrame], DataFrame]


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


def apply_pipeline(pipeline: Pipeline, events: DataFrame, *, name: str) -> DataFrame:
    """The pipeline's rows. Raises PipelineError if it did not return a DataFrame."""
    rows = pipeline(events)
    if not isinstance(rows, DataFrame):
        raise PipelineError(
            f"pipeline {name} returned {type(rows).__name__}; it must return a DataFrame"
        )
    return rows

"""Errors as they are kept."""

import pytest

from dagster_bus.core.failure import (
    MESSAGE_LIMIT,
    TRACEBACK_LIMIT,
    describe,
    fingerprint,
    message_of,
)


def described(error: BaseException) -> str:
    return fingerprint(describe(error, attempt=1, worker="run", at_ms=0))


def test_errors_that_differ_in_values_only_have_one_fingerprint() -> None:
    assert described(ValueError("order 'A-17' has 3 items at 0x7f")) == described(
        ValueError("order 'B-2' has 41 items at 0x1a")
    )


def test_other_words_or_another_type_make_another_fingerprint() -> None:
    one = described(ValueError("no rate for 'XAU'"))
    assert described(ValueError("no price for 'XAU'")) != one
    assert described(KeyError("no rate for 'XAU'")) != one


def from_a_worker(last: str) -> RuntimeError:
    """As Spark tells of an error in a function of the user's."""
    return RuntimeError(
        "An exception was thrown from the Python worker:\n"
        "Traceback (most recent call last):\n"
        '  File "/srv/pipelines.py", line 20, in half\n'
        "    return 1 // n\n"
        f"{last}\n SQLSTATE: 38000"
    )


def test_errors_in_another_process_are_told_apart_by_what_their_traceback_ends_with() -> None:
    one = described(from_a_worker("LookupError: no rate for 'XAU'"))
    assert described(from_a_worker("LookupError: no rate for 'XPT'")) == one
    assert described(from_a_worker("ZeroDivisionError: division by zero")) != one


JAVA = """\
An error occurred while calling o91.save.
: org.apache.spark.SparkException: Job aborted: Python worker exited unexpectedly
\tat org.apache.spark.api.python.BasePythonRunner$Reader$$anonfun$1.applyOrElse(Runner.scala:1136)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: java.io.EOFException
\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:398)
\t... 28 more

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2935)
"""

PLAN = """\
[UNRESOLVED_COLUMN] A column with name `nope` cannot be resolved. Did you mean `n`?; line 1 pos 7;
'Project ['nope]
+- Project [id#0L AS n#1L]
   +- Range (0, 3, step=1, splits=Some(2))


JVM stacktrace:
org.apache.spark.sql.catalyst.ExtendedAnalysisException
\tat org.apache.spark.sql.errors.QueryCompilationErrors$.unresolved(Errors.scala:551)
"""

CUT_OFF = """\
Job aborted: Mkdirs failed
\tat org.apache.hadoop.fs.FileSystem.create(FileSystem.java:1234)
\tat org.apache.spark.sql.execution.datasources.v2.WritingTask.$anonfun$run$9(Write.scala:69..."""


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            JAVA,
            "org.apache.spark.SparkException: Job aborted: Python worker exited unexpectedly\n"
            "Caused by: java.io.EOFException",
        ),
        (PLAN, PLAN.split("\n")[0]),
        (CUT_OFF, "Job aborted: Mkdirs failed"),
        ("two lines:\n  looked at it\n  - at once", "two lines:\n  looked at it\n  - at once"),
    ],
)
def test_an_error_of_sparks_is_told_without_places_in_java_and_without_its_plan(
    said: str, told: str
) -> None:
    assert message_of(RuntimeError(said)) == told


def test_a_huge_error_is_shortened_at_both_ends_kept() -> None:
    kept = describe(RuntimeError("begin" + "x" * 10**6 + "end"), attempt=2, worker=None, at_ms=5)
    assert len(kept.message) < MESSAGE_LIMIT + 100
    assert len(kept.traceback) < TRACEBACK_LIMIT + 100
    assert kept.message.startswith("begin")
    assert kept.message.endswith("end")
    assert "characters left out" in kept.message


def test_an_error_whose_text_cannot_be_read_is_still_kept() -> None:
    class Unreadable(Exception):
        def __str__(self) -> str:
            raise ConnectionError("the Java process is gone")

    kept = describe(Unreadable(), attempt=1, worker=None, at_ms=0)
    assert kept.type == "Unreadable"
    assert kept.message == "(its message cannot be read: ConnectionError)"


def test_the_traceback_names_the_place() -> None:
    try:
        raise KeyError("gone")
    except KeyError as error:
        kept = describe(error, attempt=1, worker=None, at_ms=0)
    assert "test_failure.py" in kept.traceback

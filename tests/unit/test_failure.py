"""Errors as they are kept."""

from dagster_bus.core.failure import MESSAGE_LIMIT, TRACEBACK_LIMIT, describe, fingerprint


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

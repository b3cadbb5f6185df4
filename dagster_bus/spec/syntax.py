"""YAML text as a parser's events, and what is wrong with text that is not YAML, in plain words."""

import re
from collections.abc import Iterator
from typing import Any

import yaml
from yaml.events import CollectionEndEvent, CollectionStartEvent, Event
from yaml.reader import ReaderError

from dagster_bus.errors import Problem, SpecError
from dagster_bus.spec.hints import shown

MAX_DEPTH = 50
"""No sensible file is nested deeper; what is read further on may recurse."""

_WORDS = (
    (r"found character '\\t'", "a tab stands here (indent with spaces)"),
    (r"found character ('.*')", "no word begins with {} (put it in quotes)"),
    (r"mapping values are not allowed", "a ':' too many, or the line is not indented as it should"
     " be (text with ': ' in it stands in quotes)"),
    (r"expected ':'", "a key without a ':'"),
    (r"expected <block end>", "the line is not indented like those it belongs to"),
    (r"entries are not allowed|keys are not allowed", "a list or a mapping cannot begin here"),
    (r"expected ',' or '([\]}])'", "a ',' or '{}' is missing"),
    (r"unexpected end of stream|document separator", "the quotation mark is never closed"),
    (r"unknown escape character ('.*')", "no escape begins with a backslash and {} (double the"
     " backslash, or use single quotes)"),
    (r"hexadecimal numbers", "an escape with too few digits"),
    (r"expected the node content", "a value is missing"),
    (r"undefined tag handle", "tags are not understood (remove it)"),
    (r"YAML document|YAML directive|duplicate tag handle", "this directive is not understood"),
    (r"<document start>", "more text after the end of the document"),
    (r"comment or a line break|indentation indicator", "after '|' or '>' the text begins on the"
     " next line"),
    (r"alphabetic or numeric", "a '&', '*' or '%' without a name (put the text in quotes)"),
)  # fmt: skip


def events(text: str, file: str) -> Iterator[Event]:
    """The events of a text, one by one. Raises SpecError where it is not YAML."""
    try:
        loader = yaml.SafeLoader(text)
    except ReaderError as error:
        before = text[: error.position]
        raise _refusal(
            file,
            before.count("\n"),
            len(before) - before.rfind("\n") - 1,
            f"the character U+{ord(text[error.position]):04X} cannot stand in YAML (remove it)",
        ) from None
    depth = 0
    try:
        while loader.check_event():
            event = loader.get_event()  # type: ignore[no-untyped-call]
            depth += isinstance(event, CollectionStartEvent)
            depth -= isinstance(event, CollectionEndEvent)
            if depth > MAX_DEPTH:
                mark = event.start_mark
                message = f"nested more than {MAX_DEPTH} levels deep"
                raise _refusal(file, mark.line, mark.column, message)
            yield event
    except yaml.MarkedYAMLError as error:
        mark = _mark(error)
        message = f"not YAML: {_in_words(error)}{_hint(text, mark.line)}"
        raise _refusal(file, mark.line, mark.column, message) from None
    except (ValueError, OverflowError):  # the parser's own, at an escape or a directive
        mark = loader.get_mark()
        message = "not YAML: an escape or a directive with a number that is too large"
        raise _refusal(file, mark.line, mark.column, message) from None


def _in_words(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or ""
    for expression, words in _WORDS:
        if found := re.search(expression, problem):
            return words.format(*found.groups())
    return shown(problem)


def _hint(text: str, line: int) -> str:
    """Braces end where a variable's do."""
    has_variable = re.search(r"\{.*[^\"'\w]\$\{", "\n".join(text.splitlines()[line : line + 1]))
    return "; inside braces, put ${…} in quotes" if has_variable else ""


def _mark(error: yaml.MarkedYAMLError) -> Any:
    """Where the mistake shows, or for a quotation mark that is never closed where it stands."""
    opened = "quoted scalar" in (error.context or "") and "unexpected" in (error.problem or "")
    return (error.context_mark if opened else None) or error.problem_mark or error.context_mark


def _refusal(file: str, line: int, column: int, message: str) -> SpecError:
    return SpecError([Problem(file, line + 1, column + 1, message)])

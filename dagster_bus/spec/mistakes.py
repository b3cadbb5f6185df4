"""What does not fit the models, in the words of the file.

The library that checks them speaks of inputs and instances; nobody who writes the file should have
to read that. Each kind of mistake it knows gets words of our own.
"""

import re
from collections.abc import Callable
from typing import Any

from pydantic_core import ErrorDetails

from dagster_bus.errors import Problem
from dagster_bus.spec.hints import Path, dotted, hint, nearest, shown
from dagster_bus.spec.shapes import known_keys
from dagster_bus.spec.source import Source

_MEANT_AS_BOOLEAN = {
    **dict.fromkeys(("yes", "on", "y", "true", "1"), "true"),
    **dict.fromkeys(("no", "off", "n", "false", "0"), "false"),
}


def written_path(source: Source, loc: Path) -> Path:
    """The path in the file that an error's location means: short forms have names there that the
    file does not have."""
    path: Path = ()
    for part in loc:
        if (*path, part) in source.places:
            path = (*path, part)
    return path


def explained(source: Source, details: ErrorDetails) -> Problem:
    """A mistake at its place, in plain words."""
    loc, kind = details["loc"], details["type"]
    path = written_path(source, loc)
    if kind == "extra_forbidden":
        word = str(loc[-1])
        message = f"{dotted(path[:-1])}: unknown key {shown(word)}{_meant_key(word, path[:-1])}"
        return source.key_problem(path, message)
    if kind == "missing":
        return source.problem(path, f"{dotted(path)} needs the key {loc[-1]!r}")
    message = f"{dotted(path)}: {_told(details, path)}"
    if loc[-1:] == ("[key]",):
        return source.key_problem(path, message)
    return source.problem(path, message)


def _told(details: ErrorDetails, path: Path) -> str:
    context, found = details.get("ctx", {}), details["input"]
    match details["type"]:
        case "value_error":
            return str(context["error"])
        case "literal_error":
            return (
                f"{shown(found)} is not known here ({_choices(context['expected'], found, path)})"
            )
        case "greater_than_equal":
            return f"{shown(found)} is too small (at least {context['ge']:g})"
        case "less_than_equal":
            return f"{shown(found)} is too large (at most {context['le']:g})"
    return _TOLD.get(details["type"], _unknown)(found)


def _unknown(found: Any) -> str:
    return f"{shown(found)} cannot stand here"


def _no_text(found: Any) -> str:
    if isinstance(found, dict | list):
        return f"{shown(found)} stands where text should"
    return f"{shown(found)} is not text (put it in quotes)"


def _no_list(found: Any) -> str:
    if isinstance(found, dict):
        return "a mapping stands where a list should (begin each line with '- ')"
    return f"{shown(found)} is not a list (write [{found}])"


def _no_mapping(found: Any) -> str:
    return f"{shown(found)} stands where keys and values should (write key: value)"


def _no_boolean(found: Any) -> str:
    meant = _MEANT_AS_BOOLEAN.get(str(found).lower())
    return f"{shown(found)} is not true or false{f' (did you mean {meant}?)' if meant else ''}"


def _no_number(found: Any) -> str:
    return f"{shown(found)} is not a number (such as 2 or 1.5)"


def _empty(found: Any) -> str:
    return f"{shown(found)} without anything in it (write at least one entry)"


_TOLD: dict[str, Callable[[Any], str]] = {
    "string_type": _no_text,
    "list_type": _no_list,
    "dict_type": _no_mapping,
    "model_type": _no_mapping,
    "bool_type": _no_boolean,
    "float_type": _no_number,
    "too_short": _empty,
}


def _choices(expected: str, found: Any, path: Path) -> str:
    """The words that may stand at a path, and the one that was probably meant."""
    words = re.findall(r"[^', ]+", expected.replace(" or ", " "))
    if keys := list(known_keys(path)):
        words.append(f"a mapping with {' or '.join(keys)}")
    allowed = f"{', '.join(words[:-1])} or {words[-1]}" if words[1:] else words[0]
    close = nearest(str(found), words)
    return f"{allowed}; did you mean {close!r}?" if close else allowed


def _meant_key(word: str, path: Path) -> str:
    """The key that was probably meant, here or one level further down; otherwise those known."""
    known = known_keys(path)
    if nearest(word, known) is None:
        for key in known:
            if close := nearest(word, known_keys((*path, key))):
                return f" (did you mean '{key}.{close}'?)"
    return hint(word, known)

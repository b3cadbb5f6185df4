"""How values, places and mistakes are put into words. Always one line, and never a long one."""

import difflib
import json
import re
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Any

LONGEST = 60
"""Characters of a value that a message repeats."""

FIRST_FEW = 3
MANY = 100
"""Problems that are told in full, and those that are counted at all."""

_PLAIN_NAME = re.compile(r"\w+")


def shown(value: Any) -> str:
    """A value as JSON writes it if it is short, else what kind of value it is."""
    if isinstance(value, str):
        return json.dumps(shortened(value), ensure_ascii=False)
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, float):
        return float.__repr__(value)
    if isinstance(value, int):
        return _number(value)
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list | tuple):
        return "an array"
    return f"a Python {type(value).__name__}"


def shortened(text: str, most: int = LONGEST) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def field_path(path: str, name: Any) -> str:
    """The place of a field or a map's entry inside the object at a place."""
    text = name if isinstance(name, str) else repr(name)
    if not _PLAIN_NAME.fullmatch(text) or len(text) > LONGEST:
        return f"{path}[{shown(text)}]"
    return f"{path}.{text}" if path else text


def path_of(steps: Iterable[str | int]) -> str:
    """A place from the steps that lead there: names and numbers of array elements."""
    path = ""
    for step in steps:
        path = f"{path}[{step}]" if isinstance(step, int) else field_path(path, step)
    return path


def unknown_field(path: str, name: Any, known: Collection[str]) -> str:
    """What to say of a field that is not declared."""
    text = name if isinstance(name, str) else repr(name)
    hint = did_you_mean(text, known)
    if known and not hint:
        hint = f"; known are {shortened(', '.join(known), 200)}"
    return f"{path}{': ' if path else ''}unknown field {shortened(text)!r}{hint}"


def did_you_mean(word: str, known: Collection[str]) -> str:
    """The end of a message about an unknown word: the nearest known one, if there is one."""
    by_case = {each.lower(): each for each in known}
    near = difflib.get_close_matches(shortened(word).lower(), by_case, n=1)
    return f"; did you mean {by_case[near[0]]!r}?" if near else ""


def summary(problems: Iterable[str]) -> str:
    """The first few problems, and how many more there are."""
    found = list(islice(problems, MANY + 1))
    told = [" ".join(problem.split()) for problem in found[:FIRST_FEW]]
    if len(found) > MANY:
        told.append("and many more")
    elif more := len(found) - len(told):
        told.append(f"and {more} more")
    return "; ".join(told)


def _number(value: int) -> str:
    try:
        return shortened(int.__repr__(value))
    except ValueError:  # thousands of digits: Python does not write them out
        return "a very large number"

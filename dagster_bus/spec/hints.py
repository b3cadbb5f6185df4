"""What messages about the file have in common: how a value is shown, what might be meant."""

import difflib
from collections.abc import Iterable
from typing import Any

Path = tuple[str | int, ...]
"""Keys, and places in lists, from the top of the file to a value."""

MANY = 12
LONG = 80


def dotted(path: Path) -> str:
    """A path as messages name it. Places in lists are left out: line and column tell them."""
    return ".".join(part for part in path if isinstance(part, str)) or "the file"


def shown(value: Any) -> str:
    """A value as it is written in the file, and not at any length."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and abs(value) >= 10**LONG:
        return "so large a number"
    text = repr(value)
    return text if len(text) <= LONG else f"{text[:LONG]}…"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant."""
    if not 1 < len(word) <= LONG:
        return None
    by_lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1)
    return by_lower[close[0]] if close else None


def hint(word: str, known: Iterable[str]) -> str:
    """What might be meant or, if nothing is near, what there is; in brackets, to be appended."""
    names = list(known)
    if close := nearest(word, names):
        return f" (did you mean {close!r}?)"
    if not names:
        return ""
    more = f" and {len(names) - MANY:,} more" if len(names) > MANY else ""
    return f" (known are {', '.join(names[:MANY])}{more})"

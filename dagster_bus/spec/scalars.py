"""Single values: what plain words mean, and variables put in from the environment.

Only plain data is understood: texts, whole numbers, decimal numbers, true, false and null. So `on`,
`1:30` and `2026-01-02` are the texts they look like. Everything here raises ValueError, saying what
is wrong and what to write instead.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from dagster_bus.spec.hints import shown

_INT = re.compile(r"[-+]?[0-9][0-9_]*")
_FLOAT = re.compile(r"[-+]?[0-9][0-9_]*\.[0-9]+(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.inf|\.nan", re.IGNORECASE)
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_VARIABLE = re.compile(r"\$\$\{|\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\})?")
_NEVER_IN_TEXT = re.compile("[\x00\ud800-\udfff]")


def plain(text: str) -> Any:
    """What a word without quotes means."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return _whole(text)
    if _FLOAT.fullmatch(text):
        number = float(text.replace("_", ""))
        if math.isinf(number):
            raise ValueError(f"{shown(text)} is too large a number")
        return number
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{shown(text)} is not a number to work with (in quotes it is text)")
    return text


def _whole(text: str) -> int:
    try:
        return int(text.replace("_", ""))
    except ValueError:  # Python converts some thousand digits and no more
        raise ValueError(f"{shown(text)} is too large a number") from None


def checked_text(text: str) -> str:
    """The text, unless it has characters that no store and no terminal could take."""
    if found := _NEVER_IN_TEXT.search(text):
        raise ValueError(f"the character U+{ord(found[0]):04X} cannot stand in text (remove it)")
    return text


def has_variables(text: str) -> bool:
    return "${" in text


def substituted(text: str, environ: Mapping[str, str]) -> str:
    """`${NAME}` and `${NAME:-default}` replaced; `$${` stands for a plain `${`."""

    def replace(found: re.Match[str]) -> str:
        name, default = found[1], found[2]
        if found[0] == "$${":
            return "${"
        if name is None or "${" in (default or ""):
            raise ValueError(
                f"{shown(text)} has a '${{' that begins no variable (write ${{NAME}} or "
                "${NAME:-default}, and $${ for a plain '${')"
            )
        value = environ.get(name) or default
        if value is None:
            state = "empty" if name in environ else "not set"
            raise ValueError(
                f"the environment variable {name} is {state} (or write ${{{name}:-default}})"
            )
        return value

    return _VARIABLE.sub(replace, text)

"""Durations the way people write them."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d[\d_]*)\s*(ms|s|m|h|d)")


def duration_ms(value: Any) -> int:
    """Milliseconds of a text such as 500ms, 30s, 5m, 1h or 30d."""
    found = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{value!r} is not a duration; write a number and ms, s, m, h or d")
    return int(found[1].replace("_", "")) * _UNIT_MS[found[2]]


DurationMs = Annotated[int, BeforeValidator(duration_ms)]


def in_words(ms: int) -> str:
    """A duration in the largest unit that fits: the reverse of `duration_ms`."""
    unit = max((unit for unit in _UNIT_MS if ms % _UNIT_MS[unit] == 0), key=_UNIT_MS.__getitem__)
    return f"{ms // _UNIT_MS[unit]}{unit}"

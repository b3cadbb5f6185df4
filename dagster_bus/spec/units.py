"""Durations, sizes and counts the way people write them, and back into words."""

import re
from typing import Any

from dagster_bus.spec.hints import shown

_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNIT_BYTES: dict[str, int] = {
    "B": 1,
    **{f"{prefix}B": 1_000**power for power, prefix in enumerate("KMGT", 1)},
    **{f"{prefix}iB": 1_024**power for power, prefix in enumerate("KMGT", 1)},
}
_BYTES_BY_LOWER = {unit.lower(): number for unit, number in _UNIT_BYTES.items()}

NUMBER = "[0-9][0-9_]{0,30}"
"""More digits than any limit allows, and few enough to be converted at once."""
DURATION = f"({NUMBER}) *(ms|s|m|h|d)"
SIZE = f"({NUMBER}) *([KMGTkmgt]?i?[Bb])?"

_DURATION, _SIZE, _COUNT = re.compile(DURATION), re.compile(SIZE), re.compile(NUMBER)


def duration_ms(value: Any) -> int:
    """Milliseconds of a text such as 500ms, 30s, 5m, 1h or 30d."""
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(
            f"{shown(value)} is not a duration (a number and ms, s, m, h or d, such as 90s)"
        )
    return int(found[1].replace("_", "")) * _UNIT_MS[found[2]]


def size_bytes(value: Any) -> int:
    """Bytes of a text such as 512KB, 10MB or 1MiB, or of a plain number."""
    found = _SIZE.fullmatch(value if isinstance(value, str) else _digits(value))
    unit = (found[2] or "B").lower() if found else ""
    if found is None or unit not in _BYTES_BY_LOWER:
        raise ValueError(
            f"{shown(value)} is not a size (a number and B, KB, MB, GB, TB, KiB, MiB, GiB or TiB, "
            "such as 10MB)"
        )
    return int(found[1].replace("_", "")) * _BYTES_BY_LOWER[unit]


def count(value: Any) -> int:
    """A whole number; as text too, as one in quotes is."""
    if type(value) is int:
        return value
    if isinstance(value, str) and _COUNT.fullmatch(value):
        return int(value.replace("_", ""))
    raise ValueError(f"{shown(value)} is not a whole number (digits only, such as 4 or 50_000)")


def in_words(ms: int) -> str:
    """A duration in the largest unit that fits: the reverse of `duration_ms`."""
    return _in_largest(ms, _UNIT_MS) if ms else "0s"


def size_in_words(size: int) -> str:
    """A size in the largest unit that fits: the reverse of `size_bytes`."""
    return _in_largest(size, _UNIT_BYTES) if size else "0B"


def count_in_words(number: int) -> str:
    """A count with its thousands apart: the reverse of `count`."""
    return f"{number:_}"


def _digits(value: Any) -> str:
    return str(value) if type(value) is int and abs(value) < 10**30 else ""


def _in_largest(number: int, units: dict[str, int]) -> str:
    unit = max((unit for unit in units if number % units[unit] == 0), key=units.__getitem__)
    return f"{number // units[unit]}{unit}"

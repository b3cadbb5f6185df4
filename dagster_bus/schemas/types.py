"""The column types a topic may declare. One spelling each, the one that Spark prints itself."""

import re

_SIMPLE = {
    "string": "string",
    "boolean": "boolean",
    "int": "int",
    "integer": "int",
    "bigint": "bigint",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp",
}
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")
MAX_PRECISION = 38


def normal_type(text: str) -> str:
    """The normal spelling of a declared type. Raises ValueError saying what is allowed."""
    lowered = text.strip().lower()
    if lowered in _SIMPLE:
        return _SIMPLE[lowered]
    decimal = _DECIMAL.fullmatch(lowered)
    if decimal:
        precision, scale = int(decimal[1]), int(decimal[2])
        if 1 <= precision <= MAX_PRECISION and scale <= precision:
            return f"decimal({precision},{scale})"
        raise ValueError(
            f"{text!r}: a decimal has 1 to {MAX_PRECISION} digits, at most all behind the point"
        )
    raise ValueError(
        f"{text!r} is not a column type; known are {', '.join(_SIMPLE)} and decimal(p,s)"
    )

"""Which numbers and texts a decimal column takes: those that lose no digit on their way into it.

Spark reads decimals from JSON numbers and from text, rounds what has too many digits after the
point, and makes null of what has too many before it.
"""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

# Spark also drops commas, so that "1,5" arrives as 15, and reads the digits of other scripts.
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")


def decimal_check(precision: int, scale: int) -> Callable[[Any], bool]:
    """Whether a value is a number, or the text of one, that decimal(precision,scale) can hold."""
    whole = precision - scale
    limit: int = 10**whole
    before = f"[0-9]{{1,{whole}}}" if whole else "0"
    common = re.compile(rf"[+-]?{before}(?:\.[0-9]{{0,{scale}}})?").fullmatch

    def text_fits(text: str) -> bool:
        digits = digits_of(text)
        return digits is not None and digits[0] <= whole and digits[1] <= scale

    def fits(value: Any) -> bool:
        if isinstance(value, str):
            return common(value) is not None or text_fits(value)
        if isinstance(value, float):
            text = float.__repr__(value)  # the digits that JSON has
            return common(text) is not None or text_fits(text)
        return isinstance(value, int) and not isinstance(value, bool) and -limit < value < limit

    return fits


def digits_of(text: str) -> tuple[int, int] | None:
    """How many digits a number has before and after its point, without zeros that say nothing;
    None if the text is no number."""
    if _NUMBER.fullmatch(text) is None:
        return None
    number = Decimal(text)
    if not number:
        return 0, 0
    _, digits, exponent = number.as_tuple()
    shift = int(exponent)
    zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    return max(0, len(digits) + shift), max(0, -shift - zeros)

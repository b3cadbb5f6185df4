"""Which texts Spark reads as dates and timestamps, as far as it keeps all that they say.

Left out, although Spark reads them: a date with a time, which it cuts off; a time without a date,
which it puts on the present day; digits alone that are no year, which it takes for days since
1970; names of time zones but UTC and GMT; years outside 1 to 9999, which Python cannot hold; and
blanks around the text. Digits after the microseconds are accepted, and cut off.
"""

import re
from datetime import date
from typing import Any

FIRST_SECOND = -62_135_596_800
LAST_SECOND = 253_402_300_799
"""Years 1 to 9999 in seconds since 1970: a number in a timestamp column."""

FURTHEST_ZONE_MINUTES = 18 * 60

_DAY = (
    r"(?!0000)[0-9]{4}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])"
    r"|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
)
_TIME = r"[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]*)?"
_ZONE = r"(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])?"

# The usual forms need one look; everything else is taken apart.
_usual_date = re.compile(_DAY).fullmatch
_usual_local = re.compile(_DAY + _TIME).fullmatch
_usual = re.compile(_DAY + _TIME + _ZONE).fullmatch

_parts = re.compile(
    r"(?P<year>[0-9]{4})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})"
    r"(?P<time>[T ](?P<hour>[0-9]{1,2})(?::(?P<minute>[0-9]{1,2})"
    r"(?::(?P<second>[0-9]{1,2})(?:\.[0-9]*)?"
    r"(?P<zone> ?(?:Z|UTC|GMT|[+-](?:(?P<zh>[0-9]{1,2})(?::(?P<zm>[0-9]{1,2}))?"
    r"|(?P<zhh>[0-9]{2})(?P<zmm>[0-9]{2}))))?)?)?)?)?)?"
).fullmatch


def is_timestamp(value: Any) -> bool:
    """Text of a moment, in UTC if it names no offset, or whole seconds since 1970."""
    if isinstance(value, str):
        return _usual(value) is not None or _is_moment(value)
    return (
        isinstance(value, int)
        and not isinstance(value, bool)
        and FIRST_SECOND <= value <= LAST_SECOND
    )


def is_local_timestamp(value: Any) -> bool:
    """Text of a date and time without a zone."""
    return isinstance(value, str) and (
        _usual_local(value) is not None or _is_moment(value, zone=False)
    )


def is_date(value: Any) -> bool:
    """Text of a day."""
    return isinstance(value, str) and (
        _usual_date(value) is not None or _is_moment(value, time=False)
    )


def _is_moment(text: str, *, time: bool = True, zone: bool = True) -> bool:
    parts = _parts(text)
    if parts is None or (parts["time"] and not time) or (parts["zone"] and not zone):
        return False
    hour, minute, second, zone_hours, zone_minutes = (
        int(part or 0)
        for part in (
            parts["hour"],
            parts["minute"],
            parts["second"],
            parts["zh"] or parts["zhh"],
            parts["zm"] or parts["zmm"],
        )
    )
    try:
        date(int(parts["year"]), int(parts["month"] or 1), int(parts["day"] or 1))
    except ValueError:
        return False
    return (
        hour < 24
        and minute < 60
        and second < 60
        and zone_minutes < 60
        and zone_hours * 60 + zone_minutes <= FURTHEST_ZONE_MINUTES
    )

"""Timestamps, cron schedules and time zones in `topics.yaml`."""

import pytest

from dagster_bus.spec.times import cron_schedule, time_zone, timestamp_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("2026-01-31T08:00:00.250Z", 1_769_846_400_250),
        ("20260131T080000Z", 1_769_846_400_000),
    ],
)
def test_a_timestamp_says_its_zone(text: str, ms: int) -> None:
    assert timestamp_ms(text) == ms


@pytest.mark.parametrize(
    "text", ["", "now", "2026-01-31", "2026-01-31T08:00:00", "2026-13-01T00:00:00Z", "1769846400"]
)
def test_what_is_no_point_in_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a point in time"):
        timestamp_ms(text)


def test_a_zone_does_not_move_a_timestamp_out_of_the_calendar() -> None:
    with pytest.raises(ValueError, match="lies outside the calendar"):
        timestamp_ms("0001-01-01T00:00:00+14:00")


@pytest.mark.parametrize(
    "text",
    [
        "* * * * *",
        "0 6 * * *",
        "*/15 0-6,22-23 1,15 jan-MAR mon-fri",
        "5/10 0 31 12 7",
        "0 0 * * 0",
    ],
)
def test_five_fields_are_a_schedule(text: str) -> None:
    assert cron_schedule(text) == text


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "five fields"),
        ("@daily", "five fields"),
        ("* * * * * *", "five fields"),
        ("60 * * * *", "its minute is '60' (0 to 59"),
        ("* 24 * * *", "its hour is '24' (0 to 23"),
        ("* * 0 * *", "its day of the month is '0' (1 to 31"),
        ("* * * foo *", "its month is 'foo' (1 to 12"),
        ("* * * * 8", "its day of the week is '8' (0 to 7"),
        ("*/0 * * * *", "its minute is '*/0'"),
        ("5-1 * * * *", "its minute is '5-1'"),
        ("1,,2 * * * *", "its minute is '1,,2'"),
        ("a-b * * * *", "its minute is 'a-b'"),
        ("² * * * *", "its minute is '²'"),
    ],
)
def test_what_is_no_schedule_is_refused_with_its_field(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match="is not a cron schedule") as found:
        cron_schedule(text)
    assert complaint in str(found.value)


@pytest.mark.parametrize("name", ["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires"])
def test_zones_have_the_names_of_the_database(name: str) -> None:
    assert time_zone(name) == name


@pytest.mark.parametrize("name", ["", "Europe", "Mars/Olympus", "../../etc/passwd", "/etc/passwd"])
def test_other_zones_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a time zone"):
        time_zone(name)

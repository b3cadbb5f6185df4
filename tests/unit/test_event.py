"""Envelopes: what is accepted, and how ids look."""

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_bus.core.event import encode_attributes, encode_payload, require_text, uuid7
from dagster_bus.errors import InvalidEvent, InvalidPayloadError


@given(st.integers(0, (1 << 48) - 1))
def test_ids_are_version_7_uuids_that_carry_their_time(now_ms: int) -> None:
    parsed = uuid.UUID(uuid7(now_ms))
    assert parsed.version == 7
    assert parsed.variant == uuid.RFC_4122
    assert parsed.int >> 80 == now_ms


def test_ids_of_one_moment_differ() -> None:
    assert len({uuid7(1) for _ in range(10_000)}) == 10_000


@pytest.mark.parametrize(
    "payload", [float("nan"), float("inf"), {1, 2}, object(), b"bytes", "\ud800", {"x": -1e999}]
)
def test_a_payload_that_is_not_json_is_refused(payload: Any) -> None:
    with pytest.raises(InvalidPayloadError, match="not JSON"):
        encode_payload(payload)


def test_a_payload_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidPayloadError):
        encode_payload(endless)


def test_any_json_is_accepted() -> None:
    assert encode_payload({"é": [1, 2.5, None, True, "😀"]}) == '{"é":[1,2.5,null,true,"😀"]}'


@pytest.mark.parametrize("value", [None, [1], {"a": 1}, float("nan"), object()])
def test_an_attribute_that_is_not_a_simple_value_is_refused(value: Any) -> None:
    with pytest.raises(InvalidEvent, match="attribute 'x'"):
        encode_attributes({"x": value})


@pytest.mark.parametrize("key", ["\udcff", 7, b"k"])
def test_a_key_that_is_not_text_is_refused(key: Any) -> None:
    with pytest.raises(InvalidEvent, match="key"):
        require_text("key", key)

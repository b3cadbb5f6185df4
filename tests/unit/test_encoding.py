"""Payloads, attributes and texts: what can be written, and what cannot."""

import dataclasses
import hashlib
import json
from collections import OrderedDict, defaultdict
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_bus.core.encoding import (
    encode_attributes,
    encode_payload,
    require_text,
    verified_payload,
)
from dagster_bus.errors import InvalidEvent, InvalidPayloadError

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@dataclasses.dataclass
class Order:
    id: str = "A-1"


class Size(IntEnum):
    SMALL = 1


@given(JSON)
def test_any_json_is_written_compactly_and_reads_back_as_it_was(payload: Any) -> None:
    text = encode_payload(payload)
    assert json.loads(text) == payload
    assert b"\n" not in text


def test_text_stays_readable() -> None:
    expected = '{"é":[1,2.5,null,true,"😀"]}'.encode()
    assert encode_payload({"é": [1, 2.5, None, True, "😀"]}) == expected


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({1: "a"}, b'{"1":"a"}'),
        (1 << 80, b"1208925819614629174706176"),
        (OrderedDict(a=1), b'{"a":1}'),
        (defaultdict(int, a=None), b'{"a":null}'),
        (Size.SMALL, b"1"),
        ((1, 2), b"[1,2]"),
        (None, b"null"),
        ({"a": "null"}, b'{"a":"null"}'),
    ],
)
def test_what_the_standard_library_takes_is_taken(payload: Any, text: bytes) -> None:
    assert encode_payload(payload) == text


@pytest.mark.parametrize(
    "payload",
    [
        float("nan"),
        float("inf"),
        {"x": [None, -1e999]},
        {"deep": {"x": float("nan"), "y": None}},
        {1, 2},
        object(),
        b"bytes",
        "\ud800",
        {"\udfff": 1},
        Order(),
        datetime(2026, 1, 1, tzinfo=UTC),
        {("a",): 1},
    ],
)
def test_a_payload_that_is_not_json_is_refused(payload: Any) -> None:
    with pytest.raises(InvalidPayloadError, match="not JSON"):
        encode_payload(payload)


def test_a_payload_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidPayloadError):
        encode_payload(endless)


def test_a_digest_is_verified_over_the_text_that_is_kept() -> None:
    digest = hashlib.sha256(b'{"n":1}').hexdigest()
    assert verified_payload({"n": 1}, digest) == b'{"n":1}'
    with pytest.raises(InvalidEvent, match=f"payload_sha256 is '{digest}', and the payload's is"):
        verified_payload({"n": 2}, digest)


def test_a_number_may_be_written_as_other_languages_do() -> None:
    text = b"1e-07"
    assert encode_payload(1e-7) == b"1e-7"
    assert verified_payload(1e-7, hashlib.sha256(text).hexdigest()) == text


@pytest.mark.parametrize(
    "value", [None, [1], {"a": 1}, float("nan"), float("-inf"), object(), 1 << 64, b"x", Size.SMALL]
)
def test_an_attribute_that_is_not_a_simple_value_is_refused(value: Any) -> None:
    with pytest.raises(InvalidEvent, match="attribute 'x'"):
        encode_attributes({"x": value})


@pytest.mark.parametrize("attributes", [{1: "a"}, {"a\0": 1}, {"a": "\ud800"}, {"\ud800": 1}])
def test_attributes_that_no_store_can_keep_are_refused(attributes: Any) -> None:
    with pytest.raises(InvalidEvent, match="attribute"):
        encode_attributes(attributes)


def test_attributes_keep_their_types() -> None:
    text = encode_attributes({"a": 1, "b": True, "c": 1.0, "d": "é"})
    assert text == '{"a":1,"b":true,"c":1.0,"d":"é"}'
    assert encode_attributes(None) == encode_attributes({}) == "{}"


@pytest.mark.parametrize("key", ["\udcff", 7, b"k", "é" * 6])
def test_a_key_that_is_not_text_or_too_long_is_refused(key: Any) -> None:
    with pytest.raises(InvalidEvent, match="key"):
        require_text("key", key, 11)
    assert require_text("key", "é" * 5, 11) == "é" * 5

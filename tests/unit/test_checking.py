"""From messages to a batch: each field is checked, and a mistake is told with its message."""

from typing import Any

import pytest

from dagster_bus.core.checking import check_messages
from dagster_bus.core.event import Batch, Message
from dagster_bus.core.partitioner import Partitioner
from dagster_bus.core.topic import TopicConfig
from dagster_bus.core.window import FIRST_WINDOW_MS
from dagster_bus.errors import InvalidEvent, InvalidPayloadError, UsageError
from tests.support.builders import START_MS

CONFIG = TopicConfig("orders", 4, max_payload_bytes=100, max_key_bytes=20, dedup_ms=5)


def check(*messages: Any, config: TopicConfig = CONFIG) -> Batch:
    return check_messages(messages, config, 3, Partitioner(), START_MS)[0]


def test_plain_payloads_and_messages_may_be_mixed() -> None:
    batch = check({"n": 1}, Message({"n": 2}, key="k"), None)
    assert batch.payloads == ['{"n":1}', '{"n":2}', "null"]
    assert batch.keys == [None, "k", None]
    assert batch.schema_versions == [3, 3, 3]
    assert batch.attributes == ["{}"] * 3
    assert batch.times is None
    assert batch.dedup_ms == 5


def test_every_field_finds_its_column() -> None:
    batch = check(
        Message(1, "k", "me", {"a": 1}, "high", "once", 9, 2, None, "my-id", START_MS - 5, 3),
        Message(2),
    )
    assert batch.keys == ["k", None]
    assert batch.sources == ["me", None]
    assert batch.attributes == ['{"a":1}', "{}"]
    assert batch.priorities == [1, 2]
    assert batch.idempotency_keys == ["once", None]
    assert batch.ttls == [9, None]
    assert batch.schema_versions == [2, 3]
    assert batch.ids[0] == "my-id"
    assert len(batch.ids[1]) == 36
    assert batch.times == [START_MS - 5, None]
    assert batch.partitions[0] == 3
    assert batch.sizes == [1 + 7 + 1, 0 + 2 + 1]


def test_times_before_the_first_window_are_moved_into_it() -> None:
    assert check(Message(1, ts=5)).times == [FIRST_WINDOW_MS]


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (Message("x" * 99), "the payload has 101 bytes; the topic takes 100 at most"),
        (Message(1, key="é" * 11), "key has 22 bytes; at most 20 are allowed"),
        (Message(1, key=5), "key is text, not int"),  # type: ignore[arg-type]
        (Message(1, key="\ud800"), "key is not valid Unicode"),
        (Message(1, source=b"x"), "source is text, not bytes"),  # type: ignore[arg-type]
        (Message(1, attributes={"a": None}), "attribute 'a' is None; allowed are"),  # type: ignore[dict-item]
        (Message(1, priority="urgent"), "priority is one of critical, high, normal, low"),  # type: ignore[arg-type]
        (Message(1, idempotency_key="x" * 21), "idempotency_key has 21 bytes"),
        (Message(1, ttl_s=-1), "ttl_s is a whole number from 0 on, and not -1"),
        (Message(1, ttl_s=True), "ttl_s is a whole number"),
        (Message(1, ttl_s=1 << 40), "ttl_s is a whole number"),
        (Message(1, schema_version=0), "schema_version is a whole number from 1 on"),
        (Message(1, payload_sha256="beef"), "payload_sha256 is 'beef', and the payload's is"),
        (Message(1, payload_sha256=7), "payload_sha256 is text"),  # type: ignore[arg-type]
        (Message(1, id="x" * 300), "id has 300 bytes"),
        (Message(1, ts="now"), "ts is a time in whole milliseconds"),  # type: ignore[arg-type]
        (Message(1, partition=4), "orders has partitions 0 to 3, not 4"),
        (Message(float("nan")), "the payload is not JSON"),
    ],
)
def test_a_field_that_cannot_be_accepted_is_named(message: Message, complaint: str) -> None:
    with pytest.raises((InvalidEvent, InvalidPayloadError)) as alone:
        check(message)
    assert str(alone.value).startswith(complaint)
    with pytest.raises(UsageError) as among:
        check(Message(1), 2, message, Message(4))
    assert str(among.value).startswith(f"message 3 of 4: {complaint}")
    assert (type(among.value), among.value.index) == (type(alone.value), 2)
    assert among.value.reason == str(alone.value)


def test_a_digest_is_kept_in_lower_case() -> None:
    digest = "6B86B273FF34FCE19D6B804EFF5A3F5747ADA4EAA22F1D49C01E52DDB7875B4B"
    batch = check(Message(1, payload_sha256=digest), Message(2))
    assert batch.payload_sha256s == [digest.lower(), None]

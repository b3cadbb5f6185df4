"""Publishing by the rules of a file, on every store: what is refused writes nothing."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from dagster_bus import Bus, Message
from dagster_bus.core.position import AtOffset, AtTime
from dagster_bus.core.topic import EventFilter
from dagster_bus.errors import (
    BusClosedError,
    BusError,
    InvalidEvent,
    InvalidPayloadError,
    InvalidTopicName,
    PartitionCountChanged,
    SchemaMismatch,
    UnknownTopic,
    UsageError,
)

FILE = """\
    version: 1
    store: STORE
    strict_topics: [checked.**]
    topics:
      plain: {partitions: 3, limits: {payload: 100B, key: 10B}}
      checked.orders:
        schema:
          version: 2
          fields: {order_id: string not null, amount: "decimal(12,2)", tags: array<string>}
          versions: {1: {fields: {order_id: bigint}}}
      checked.documents: {schema: {json_schema: document.json}}
      checked.models: {schema: {model: "tests.support.models:Payment"}}
      loose: {schema: {fields: {n: bigint}}}
      latest: {compaction: {}, schema: {mode: strict, fields: {n: bigint}}}
      signals: {durable: false, partitions: 2}
    """
DOCUMENT = '{"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}'


@pytest.fixture
def file(tmp_path: Path, store_url: str) -> Path:
    (tmp_path / "document.json").write_text(DOCUMENT)
    path = tmp_path / "topics.yaml"
    path.write_text(dedent(FILE).replace("STORE", store_url))
    return path


@pytest.fixture
def bus(file: Path) -> Iterator[Bus]:
    with Bus.open(file) as opened:
        yield opened


def everything(bus: Bus) -> list[Any]:
    durable = [topic.name for topic in bus.topics if topic.durable]
    return [event.payload for event in bus.tail(*durable)]


@pytest.mark.parametrize(
    ("topic", "message", "kind"),
    [
        ("plain", Message({1, 2}), InvalidPayloadError),
        ("plain", Message(float("nan")), InvalidPayloadError),
        ("plain", Message([float("inf")]), InvalidPayloadError),
        ("plain", Message("\ud83d"), InvalidPayloadError),
        ("plain", Message("x" * 99), InvalidPayloadError),
        ("plain", Message(1, key="x" * 11), InvalidEvent),
        ("plain", Message(1, key="\ud83d"), InvalidEvent),
        ("plain", Message(1, idempotency_key="a\0b"), InvalidEvent),
        ("plain", Message(1, attributes={"a": "x" * 200}), InvalidEvent),
        ("plain", Message(1, attributes=[("a", 1)]), InvalidEvent),  # type: ignore[arg-type]
        ("plain", Message(1, ttl_s=10**5000), InvalidEvent),
        (5, Message(1), InvalidTopicName),
        ("plain", Message(1, attributes={"a": [1]}), InvalidEvent),  # type: ignore[dict-item]
        ("plain", Message(1, payload_sha256="0" * 64), InvalidEvent),
        ("plain", Message(1, priority="urgent"), InvalidEvent),  # type: ignore[arg-type]
        ("Plain", Message(1), InvalidTopicName),
        ("plain..x", Message(1), InvalidTopicName),
        ("", Message(1), InvalidTopicName),
        ("bus.signal", Message(1), InvalidTopicName),
        ("system.metrics", Message(1), InvalidTopicName),
        ("elsewhere", Message(1), UnknownTopic),
        ("checked.orders", Message({"order_id": 5}), SchemaMismatch),
        ("checked.orders", Message({"amount": "1.00"}), SchemaMismatch),
        ("checked.orders", Message({"order_id": "A", "amout": "1.00"}), SchemaMismatch),
        ("checked.orders", Message({"order_id": "A"}, schema_version=3), SchemaMismatch),
        ("checked.orders", Message({"order_id": "A"}, schema_version=1), SchemaMismatch),
        ("checked.documents", Message({"n": 0}), SchemaMismatch),
        ("checked.models", Message({"payment_id": "P"}), SchemaMismatch),
        ("latest", Message({"n": "one"}, key="a"), SchemaMismatch),
    ],
)
def test_bad_input_is_refused_by_name_and_takes_its_whole_batch_along(
    bus: Bus, topic: str, message: Message, kind: type[BusError]
) -> None:
    with pytest.raises(kind):
        bus.publish_many(topic, [message])
    with pytest.raises(kind) as told:
        bus.publish_many(topic, [message, message])
    assert "\n" not in str(told.value)
    assert everything(bus) == []


def test_what_fits_its_schema_is_accepted_in_every_declared_version(bus: Bus) -> None:
    bus.publish("checked.orders", {"order_id": "A", "amount": "12.50", "tags": ["x"]})
    bus.publish("checked.orders", {"order_id": 7}, schema_version=1)
    bus.publish("checked.documents", {"n": 1})
    bus.publish("checked.models", {"payment_id": "P", "amount": "1.50"})
    events = list(bus.tail("checked.orders"))
    assert [event.schema_version for event in events] == [2, 1]


def test_a_null_payload_deletes_a_key_whatever_the_schema_says(bus: Bus) -> None:
    bus.publish("latest", {"n": 1}, key="a")
    assert bus.publish("latest", None, key="a").offset == 2
    with pytest.raises(SchemaMismatch):
        bus.publish("checked.orders", None)


def test_a_permissive_topic_takes_what_does_not_fit_and_warns_now_and_then(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "dagster_bus"):
        for n in range(30):
            bus.publish("loose", {"n": "x"} if n else {"n": 1})
    assert len(everything(bus)) == 30
    assert [record.args[1] for record in caplog.records] == [1, 10]  # type: ignore[index]
    assert "loose" in caplog.text


def test_topics_in_memory_are_published_to_and_read_like_others(bus: Bus, file: Path) -> None:
    bus.publish("signals", "stop", key="a")
    bus.publish("signals", "go", key="a")
    assert [event.payload for event in bus.tail("signals")] == ["stop", "go"]
    with Bus.open(file) as other:
        assert list(other.tail("signals")) == []
    with pytest.raises(UsageError, match="cannot be read together"):
        list(bus.tail())


def test_a_stream_is_published_in_batches(bus: Bus) -> None:
    batches = list(bus.publish_stream("plain", iter(range(25)), batch_size=10))
    assert [len(batch) for batch in batches] == [10, 10, 5]
    assert sorted(everything(bus)) == list(range(25))


def test_a_bus_that_knows_no_groups_deletes_nothing(bus: Bus, store_url: str) -> None:
    with (
        Bus.open(store_url) as by_address,
        pytest.raises(UsageError, match=r"open it by its topics\.yaml"),
    ):
        by_address.maintain()
    assert [done.trimmed for done in bus.maintain()] == [0] * len(bus.topics)


def test_one_message_is_not_taken_for_many(bus: Bus) -> None:
    with pytest.raises(UsageError, match="takes many messages"):
        bus.publish_many("plain", {"a": 1})
    with pytest.raises(UsageError, match="at least one message"):
        list(bus.publish_stream("plain", [1], batch_size=0))
    with pytest.raises(UsageError, match="not a place to begin"):
        list(bus.tail("plain", start="ealiest"))  # type: ignore[arg-type]


def test_a_reader_that_follows_a_closed_bus_is_told(bus: Bus) -> None:
    events = bus.tail("plain", follow=True)
    bus.publish("plain", 1)
    assert next(events).payload == 1
    bus.close()
    with pytest.raises(BusError):
        next(events)


def test_no_priority_is_a_normal_one(bus: Bus) -> None:
    bus.publish_many("plain", [Message(1, priority=None), Message(2, priority="low")])  # type: ignore[arg-type]
    assert sorted(event.priority for event in bus.tail("plain")) == [2, 3]


def test_an_empty_batch_is_nothing(bus: Bus) -> None:
    assert bus.publish_many("plain", []) == []


def test_a_partition_is_read_between_offsets(bus: Bus) -> None:
    bus.publish_many("plain", [Message(n, key="a") for n in range(10)])
    (partition,) = {event.partition for event in bus.tail("plain")}
    assert [event.payload for event in bus.read("plain", partition, 3, 5)] == [2, 3, 4]
    assert [event.payload for event in bus.read("plain", partition, 11)] == []
    with pytest.raises(UnknownTopic, match="partitions 0 to 2, and no 3"):
        bus.read("plain", 3)


def test_a_reader_begins_where_it_says(bus: Bus) -> None:
    times = [bus.publish("plain", n, key="a").ts for n in range(4)]
    found = [event.payload for event in bus.tail("plain", start=AtTime(times[-1]))]
    assert found == [n for n in range(4) if times[n] >= times[-1]]
    partition = next(event.partition for event in bus.tail("plain"))
    later = [e for e in bus.tail("plain", start=AtOffset(3)) if e.partition == partition]
    assert [event.payload for event in later] == [2, 3]
    assert list(bus.tail("plain", start="latest")) == []


def test_a_reader_takes_what_it_wants(bus: Bus) -> None:
    bus.publish("plain", 1, key="a", attributes={"region": "eu"})
    bus.publish("plain", 2, key="b", attributes={"region": "us"})
    wanted = EventFilter(equals={"region": "eu"})
    assert [event.payload for event in bus.tail("plain", wanted=wanted)] == [1]
    assert [event.payload for event in bus.tail("plain", key="b")] == [2]


def test_another_number_of_partitions_is_explained_when_the_file_is_opened(
    bus: Bus, file: Path
) -> None:
    file.write_text(file.read_text().replace("partitions: 3", "partitions: 4"))
    with pytest.raises(PartitionCountChanged, match="plain has 3 partitions in the store and is"):
        Bus.open(file)


def test_a_closed_bus_refuses_to_be_used(bus: Bus) -> None:
    bus.close()
    bus.close()
    with pytest.raises(BusClosedError):
        bus.publish("plain", 1)
    with pytest.raises(BusClosedError):
        list(bus.tail("plain"))


def test_threads_publish_at_once_and_each_keeps_its_own_order(bus: Bus) -> None:
    def publish(name: str) -> None:
        for n in range(25):
            bus.publish("plain", [name, n], key="same")

    threads = [threading.Thread(target=publish, args=(f"t{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = everything(bus)
    assert len(found) == 200
    for number in range(8):
        assert [n for name, n in found if name == f"t{number}"] == list(range(25))

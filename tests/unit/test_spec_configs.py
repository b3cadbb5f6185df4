"""`topics.yaml` in the terms of the core."""

from pathlib import Path

import pytest

from dagster_bus.core.retry import RetryPolicy
from dagster_bus.core.topic import MIB, SchemaConfig, SchemaVersion, TopicConfig
from dagster_bus.errors import SpecError
from dagster_bus.spec.configs import group_config, group_configs, topic_config, topic_configs
from tests.unit.test_spec import FULL, GOOD, load


def test_a_group_is_put_into_the_cores_terms(tmp_path: Path) -> None:
    config = group_config(load(tmp_path, GOOD), "history")
    assert config.topics == ("orders.created", "orders.cancelled")
    assert config.retry == RetryPolicy(7, 500, 3.0, 3_600_000, "none")
    assert config.max_events == 50_000
    assert config.lease_ms == 20_000
    assert config.filter.equals == {"region": "eu", "express": True, "tier": 1}
    assert config.filter.exists == ("channel",)


def test_a_group_without_a_policy_has_the_defaults(tmp_path: Path) -> None:
    loaded = load(tmp_path, FULL)
    assert [config.name for config in group_configs(loaded)] == ["load", "bill", "map", "pauses"]
    assert group_config(loaded, "bill").retry == RetryPolicy()


def test_a_topic_of_which_nothing_is_said_has_the_cores_defaults(tmp_path: Path) -> None:
    loaded = load(tmp_path, "{version: 1, topics: {a: {}}}")
    assert topic_configs(loaded) == (TopicConfig("a"),)


def test_a_topic_is_put_into_the_cores_terms(tmp_path: Path) -> None:
    assert topic_config(load(tmp_path, FULL), "meters.read") == TopicConfig(
        name="meters.read",
        partitions=8,
        schema=SchemaConfig(
            versions={
                1: SchemaVersion("model", "grid.models:Reading"),
                2: SchemaVersion("fields", {"meter": "string", "kwh": "double"}),
                3: SchemaVersion(
                    "fields",
                    {
                        "meter": "string not null",
                        "values": "array<struct<at:timestamp,kwh:decimal(10,3)>>",
                        "tags": "map<string,string>",
                    },
                ),
            },
            current=3,
            strict=False,
        ),
        dedup_ms=0,
        max_payload_bytes=256_000,
        max_key_bytes=200,
        retain_ms=90 * 86_400_000,
        retain_bytes=20 * 10**9,
    )


def test_compaction_is_on_where_it_is_written(tmp_path: Path) -> None:
    config = topic_config(load(tmp_path, FULL), "sites.state")
    assert (config.compacted, config.tombstone_ms) == (True, 12 * 3_600_000)
    defaults = load(tmp_path, "{version: 1, topics: {a: {compaction: {}, dedup: {window: 1m}}}}")
    config = topic_config(defaults, "a")
    assert (config.compacted, config.tombstone_ms, config.dedup_ms) == (True, 86_400_000, 60_000)


def test_a_topic_in_memory_remembers_no_keys(tmp_path: Path) -> None:
    config = topic_config(load(tmp_path, FULL), "control.pause")
    assert (config.durable, config.dedup_ms, config.max_payload_bytes) == (False, 0, MIB)


@pytest.mark.parametrize(
    ("mode", "strict_topics", "strict"),
    [
        ("", "[]", False),
        ("", "[a.*]", True),
        ("", "['**']", True),
        ("", "[b.c]", False),
        ("mode: strict, ", "[]", True),
        ("mode: permissive, ", "[a.*]", False),
        ("mode: strict, ", "[a.*]", True),
    ],
)
def test_a_topics_own_word_on_strictness_comes_first(
    tmp_path: Path, mode: str, strict_topics: str, strict: bool
) -> None:
    text = f"""\
        version: 1
        strict_topics: {strict_topics}
        topics:
          a.b: {{schema: {{{mode}fields: {{x: int}}}}}}
          b.c: {{schema: {{fields: {{x: int}}}}}}
        """
    schema = topic_config(load(tmp_path, text), "a.b").schema
    assert schema is not None
    assert schema.strict is strict


SYSTEM = """
version: 1
system: {metrics: 10s, dlq: true, audit: true}
topics: {orders: {}}
groups:
  undertakers: {topics: [system.bus.dlq]}
  all: {topics: ["**"]}
"""


def test_what_the_bus_is_to_tell_of_itself_are_topics_too(tmp_path: Path) -> None:
    loaded = load(tmp_path, SYSTEM)
    names = ["orders", "system.metrics", "system.bus.dlq", "system.bus.audit"]
    assert [config.name for config in topic_configs(loaded)] == names
    assert {config.retain_ms for config in topic_configs(loaded)[1:]} == {30 * 86_400_000}
    assert group_config(loaded, "undertakers").topics == ("system.bus.dlq",)
    assert group_config(loaded, "all").topics == ("orders",)


def test_a_group_cannot_read_what_the_bus_is_not_to_tell(tmp_path: Path) -> None:
    silent = SYSTEM.replace("dlq: true", "dlq: false")
    with pytest.raises(SpecError, match=r"no declared topic matches 'system\.bus\.dlq'"):
        load(tmp_path, silent)

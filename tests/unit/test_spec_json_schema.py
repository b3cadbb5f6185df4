"""The JSON Schema for editors: it lets pass what people write, and stops what they mistype."""

import json
import re
from textwrap import dedent
from typing import Any

import jsonschema_rs
import pytest
import yaml

from dagster_bus.spec.base import fields_by_key
from dagster_bus.spec.json_schema import json_schema
from dagster_bus.spec.models import BusSpec
from tests.unit.test_spec import FULL, GOOD, PROJECT

VALIDATOR = jsonschema_rs.validator_for(json_schema())


class AsEditorsRead(yaml.SafeLoader):
    """YAML 1.2, near enough: dates, on, 1:30 and numbers with underscores are text."""

    yaml_implicit_resolvers = {  # noqa: RUF012  (PyYAML's own)
        first: [
            (tag, expression) for tag, expression in resolvers if tag.endswith((":null", ":bool"))
        ]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        if first not in "yYnNoO"
    }


AsEditorsRead.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9]+$"), list("-+0123456789")
)
AsEditorsRead.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9]+\.[0-9]+$"),
    list("-+0123456789"),
)


def complaints(text: str) -> list[str]:
    data = yaml.load(dedent(text), AsEditorsRead)
    return [error.message for error in VALIDATOR.iter_errors(json.loads(json.dumps(data)))]


def test_it_is_a_schema_of_the_2020_dialect() -> None:
    schema = json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"]
    jsonschema_rs.meta.validate(schema)


def test_it_describes_every_key() -> None:
    schema = json_schema()
    assert list(schema["properties"]) == list(fields_by_key(BusSpec))
    for definition in [schema, *schema["$defs"].values()]:
        for key, value in definition["properties"].items():
            described = schema["$defs"].get(value.get("$ref", "").rsplit("/")[-1], value)
            assert value.get("description") or described["description"], key


@pytest.mark.parametrize("text", [GOOD, FULL, (PROJECT / "topics.yaml").read_text("utf-8")])
def test_files_that_are_fine_pass(text: str) -> None:
    assert complaints(text) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("partitions: 4", "partitions: ${PARTITIONS}"),
        ("partitions: 4", "partitions: 1_000"),
        ("partitions: 4", "durable: ${DURABLE:-true}"),
        ("partitions: 4", "limits: {payload: 1024, key: 5kb}"),
        ("sqlite:///bus.db", "${STORE}"),
        ("sqlite:///bus.db", "mongodb://${HOST}/bus"),
        ("multiplier: 3", "multiplier: '${FACTOR}'"),
        ("jitter: none", "jitter: '${JITTER}'"),
        ("lease: 20s", "lease: ${LEASE:-20s}"),
        ("lease: 20s", "window: ${WINDOW}"),
        ("lease: 20s", "start: {offset: '${OFFSET}'}"),
    ],
)
def test_what_people_write_passes(old: str, new: str) -> None:
    assert old in GOOD
    assert complaints(GOOD.replace(old, new)) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("version: 1", "version: 2"),
        ("    version: 1\n", ""),
        ("partitions: 4", "partitons: 4"),
        ("partitions: 4", "partitions: 0"),
        ("partitions: 4", "partitions: four"),
        ("partitions: 4", "partitions: 4.5"),
        ("partitions: 4", "partitions: [4]"),
        ("partitions: 4", "durable: yes"),
        ("partitions: 4", "owners: team:shop"),
        ("partitions: 4", "owners: [shop]"),
        ("partitions: 4", "compaction:"),
        ("partitions: 4", "limits: {payload: 1XB}"),
        ("sqlite:///bus.db", "redis://x"),
        ("sqlite:///bus.db", "mongodb://host"),
        ("orders.cancelled", "Orders.Cancelled"),
        ("      history:", "      My_Group:"),
        ("        topics: [orders.*]\n", ""),
        ("[orders.*]", "[]"),
        ("jitter: none", "jitter: some"),
        ("multiplier: 3", "multiplier: fast"),
        ("lease: 20s", "lease: 20"),
        ("lease: 20s", "lease: soon"),
        ("lease: 20s", "start: now"),
        ("lease: 20s", "start: {ofset: 1}"),
        ("lease: 20s", "window: {timezone: UTC}"),
        ("lease: 20s", "expect: {a: {condition: x, on_violation: ignore}}"),
        ("pipeline: shop.pipelines:history", "pipeline: history"),
        ("tier: 1", "tier: [1]"),
    ],
)
def test_typical_mistakes_do_not_pass(old: str, new: str) -> None:
    assert old in GOOD
    assert complaints(GOOD.replace(old, new, 1)) != []


def everywhere(schema: Any) -> Any:
    yield schema
    for inner in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(inner, dict | list):
            yield from everywhere(inner)


def test_it_has_no_null_and_no_names_of_classes_to_show() -> None:
    assert not any(part == {"type": "null"} for part in everywhere(json_schema()))
    titles = [part["title"] for part in everywhere(json_schema()) if "title" in part]
    assert titles == ["topics.yaml of dagster-bus"]

"""`topics.yaml`: what is understood, and how mistakes are told."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from pydantic import BaseModel

from dagster_bus.core.topic import SchemaVersion
from dagster_bus.errors import SpecError, UsageError
from dagster_bus.spec.load import LoadedSpec, load_spec
from dagster_bus.spec.models import BusSpec, fields_by_key
from dagster_bus.spec.shapes import forms, is_model

PROJECT = Path(__file__).parents[2]

GOOD = """\
    version: 1
    store: sqlite:///bus.db
    retry_policies:
      slow: {max_attempts: 7, base_delay: 500ms, multiplier: 3, max_delay: 1h, jitter: none}
    topics:
      orders.created:
        partitions: 4
        schema: {fields: {order_id: string, amount: "decimal(12, 2)"}}
      orders.cancelled: {}
    groups:
      history:
        topics: [orders.*]
        filter: {equals: {region: eu, express: true, tier: 1}, exists: [channel]}
        batch: {max_events: 50_000}
        retry: slow
        pipeline: shop.pipelines:history
        table: {path: data/history}
        lease: 20s
    """

FIELDS = 'fields: {order_id: string, amount: "decimal(12, 2)"}'

FULL = """\
    version: 1
    store: mongodb+srv://${MONGO_USER:-bus}@db.example.org/bus?retryWrites=true
    spark:
      remote: sc://spark.example.org:15002
      conf: {spark.sql.shuffle.partitions: 8, spark.sql.ansi.enabled: true}
      packages: [org.postgresql:postgresql:42.7.4]
    strict_topics: [meters.*, "sites.**"]

    retry_policies:
      patient:
        max_attempts: 12
        base_delay: 10s
        multiplier: 1.5
        max_delay: 30m
        jitter: equal
        max_age: 2d
        retry_on: [TimeoutError, "pymongo.errors.*"]
        dead_letter_on: [ValueError]
        circuit_breaker: {failures: 3, reset_after: 5m}

    topics:
      meters.read:
        description: A meter was read.
        owners: [team:grid, ada@example.org]
        partitions: ${PARTITIONS:-8}
        schema:
          mode: permissive
          version: 3
          fields:
            meter: string not null
            values: "array<struct<at: timestamp, kwh: decimal(10,3)>>"
            tags: map<string, string>
          versions:
            1: {model: "grid.models:Reading"}
            2: {fields: {meter: string, kwh: double}}
        dedup: {window: 0s}
        limits: {payload: 256KB, key: 200}
        retention: {age: 90d, size: 20GB}
        acl:
          publish: [meter-*]
          subscribe: {allow: ["*"], deny: [guest]}
      sites.state:
        schema: {fields: {site: string, state: string}}
        compaction: {keep_tombstones: 12h}
      load.hourly: {}
      control.pause:
        durable: false

    groups:
      load:
        description: Consumption by the hour.
        owners: [team:grid]
        labels: {tier: gold}
        docs: https://wiki.example.org/load
        topics: [meters.read]
        filter: {equals: {country: at, test: false}, exists: [gateway], key: [m-1, m-2]}
        start: {timestamp: "2026-01-31T00:00:00+01:00"}
        order: key
        batch: {max_events: 20_000, max_bytes: 64MiB, max_wait: 15s, max_inflight: 4}
        retry: patient
        on_exhausted: isolate
        window: {cron: "15 */6 * * mon-fri", timezone: Europe/Vienna}
        sql: |
          SELECT meter, sum(v.kwh) AS kwh, _event.ts AS ts
          FROM events LATERAL VIEW explode(values) AS v WHERE v.kwh > :least GROUP BY ALL
        params: {least: 0.5}
        expect:
          some: kwh > 0
          not_too_much: {condition: kwh < 1000000, on_violation: drop}
        corrupt: dead_letter
        table: {path: data/load, format: parquet, options: {compression: zstd}}
        publish: load.hourly
        slo: {max_lag: 100_000, max_age: 10m}
        dead_letters: {limit: 100}
        pool: spark
        tags: {team: grid}
        launch_timeout: 5m
        lease: 2m
      bill:
        topics: [load.hourly]
        start: latest
        window: daily
        job: billing
      map:
        topics: ["sites.**"]
        start: {offset: 1_000}
        assets: [maps/sites, maps/regions]
      pauses:
        topics: [control.*]
        filter: {key: all}
    dagster: {sensors: shared}
    system: {metrics: 30s, dlq: true, audit: true}
"""


def load(tmp_path: Path, text: str, **environ: str) -> LoadedSpec:
    file = tmp_path / "topics.yaml"
    file.write_text(dedent(text), encoding="utf-8")
    return load_spec(file, environ)


def mistakes(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(SpecError) as found:
        load(tmp_path, text)
    return str(found.value).splitlines()


def models(annotation: Any = BusSpec) -> Iterator[type[BaseModel]]:
    """Every model of the grammar."""
    for form in forms(annotation):
        if is_model(form):
            yield form
            for field in fields_by_key(form).values():
                yield from models(field.annotation)
        elif form not in (str, int, float, bool, Any):
            for argument in getattr(form, "__args__", ()):
                if not isinstance(argument, str | int):
                    yield from models(argument)


def test_the_shops_file_is_fine() -> None:
    loaded = load_spec(PROJECT / "topics.yaml", {})
    assert {group: loaded.topics_of(group) for group in loaded.spec.groups} == {
        "order-history": ("orders.created", "orders.cancelled"),
        "payments": ("payments.received",),
        "revenue": ("payments.booked",),
        "shipments": ("shipments.sent",),
    }


def test_all_of_the_grammar_is_understood(tmp_path: Path) -> None:
    spec = load(tmp_path, FULL).spec
    group = spec.groups["load"]
    assert group.model_dump(exclude_unset=True) == {
        "description": "Consumption by the hour.",
        "owners": ["team:grid"],
        "labels": {"tier": "gold"},
        "docs": "https://wiki.example.org/load",
        "topics": ["meters.read"],
        "filter": {
            "equals": {"country": "at", "test": False},
            "exists": ["gateway"],
            "key": ["m-1", "m-2"],
        },
        "start": {"timestamp": "2026-01-31T00:00:00+01:00"},
        "order": "key",
        "batch": {
            "max_events": 20_000,
            "max_bytes": 64 << 20,
            "max_wait": 15_000,
            "max_inflight": 4,
        },
        "retry": "patient",
        "on_exhausted": "isolate",
        "window": {"cron": "15 */6 * * mon-fri", "timezone": "Europe/Vienna"},
        "sql": group.sql,
        "params": {"least": 0.5},
        "expect": {
            "some": "kwh > 0",
            "not_too_much": {"condition": "kwh < 1000000", "on_violation": "drop"},
        },
        "corrupt": "dead_letter",
        "table": {"path": "data/load", "format": "parquet", "options": {"compression": "zstd"}},
        "publish": "load.hourly",
        "slo": {"max_lag": 100_000, "max_age": 600_000},
        "dead_letters": {"limit": 100},
        "pool": "spark",
        "tags": {"team": "grid"},
        "launch_timeout": 300_000,
        "lease": 120_000,
    }
    assert spec.store == "mongodb+srv://bus@db.example.org/bus?retryWrites=true"
    assert spec.topics["meters.read"].partitions == 8
    assert spec.groups["map"].assets == ["maps/sites", "maps/regions"]


def test_every_key_of_the_grammar_stands_in_the_full_example() -> None:
    """Whoever adds a key shows it there, and so has it checked against everything else."""
    written = set(re.findall(r"([a-z_]+):", FULL))
    excluded = {
        "json_schema",
        "pipeline",
        "results",
        "master",
    }  # they exclude what is there
    assert {key for model in models() for key in fields_by_key(model)} - excluded <= written


def test_every_key_of_the_grammar_has_a_description() -> None:
    for model in set(models()):
        assert model.__doc__
        assert model.model_config["frozen"]
        assert model.model_config["extra"] == "forbid"
        for key, field in fields_by_key(model).items():
            assert field.description, f"{model.__name__}.{key}"
            assert field.description.endswith((".", "…")), f"{model.__name__}.{key}"


def test_types_have_one_spelling(tmp_path: Path) -> None:
    assert load(tmp_path, GOOD).columns_of("history") == {
        "order_id": "string",
        "amount": "decimal(12,2)",
    }


def test_paths_count_from_the_files_folder(tmp_path: Path) -> None:
    loaded = load(tmp_path, GOOD)
    assert loaded.folder == tmp_path
    assert loaded.table_path("history") == str(tmp_path / "data/history")


def test_a_table_may_lie_elsewhere(tmp_path: Path) -> None:
    loaded = load(tmp_path, GOOD.replace("data/history", "s3a://lake/history"))
    assert loaded.table_path("history") == "s3a://lake/history"


def test_a_group_without_a_table_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="group 'bill' has no table"):
        load(tmp_path, FULL).table_path("bill")


def test_a_json_schema_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "schemas").mkdir()
    document = '{"type": "object", "properties": {"order_id": {"type": "string"}}}'
    (tmp_path / "schemas/order.json").write_text(document)
    loaded = load(tmp_path, GOOD.replace(FIELDS, "json_schema: schemas/order.json"))
    schema = loaded.schemas["orders.created"]
    assert schema.versions[1] == SchemaVersion(
        "json_schema", {"type": "object", "properties": {"order_id": {"type": "string"}}}
    )
    assert loaded.columns_of("history") == {"order_id": "string"}


MODEL = """\
from pydantic import BaseModel

class Order(BaseModel):
    order_id: str
    amount: float
"""


def test_a_model_is_imported_when_its_columns_are_asked_for_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shapes_of_orders.py").write_text(MODEL)
    loaded = load(tmp_path, GOOD.replace(FIELDS, "model: shapes_of_orders:Order"))
    assert "shapes_of_orders" not in sys.modules
    assert loaded.columns_of("history") == {"order_id": "string", "amount": "double"}
    monkeypatch.delitem(sys.modules, "shapes_of_orders")


def test_columns_of_a_model_that_disagree_are_told_when_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "more_shapes.py").write_text(MODEL)
    text = GOOD.replace("cancelled: {}", "cancelled: {schema: {model: 'more_shapes:Order'}}")
    loaded = load(tmp_path, text)
    with pytest.raises(SpecError) as found:
        loaded.columns_of("history")
    assert str(found.value) == (
        "topics.yaml:12:5: groups.history.topics: column 'amount' is decimal(12,2) in "
        "orders.created and double in orders.cancelled (a column has one type)"
    )
    monkeypatch.delitem(sys.modules, "more_shapes")


def test_a_model_that_is_not_there_is_told_when_its_columns_are_asked_for(tmp_path: Path) -> None:
    loaded = load(tmp_path, GOOD.replace(FIELDS, "model: no.where:X"))
    with pytest.raises(SpecError) as found:
        loaded.columns_of("history")
    assert str(found.value).startswith("topics.yaml:8:5: topics.orders.created.schema: model no.")


def test_variables_come_from_the_environment_or_their_default(tmp_path: Path) -> None:
    text = GOOD.replace("sqlite:///bus.db", "${STORE:-sqlite:///d.db}").replace(
        "partitions: 4", "partitions: ${PARTS:-3}"
    )
    assert load(tmp_path, text).spec.store == "sqlite:///d.db"
    assert load(tmp_path, text).spec.topics["orders.created"].partitions == 3
    assert load(tmp_path, text, STORE="sqlite:///e.db").spec.store == "sqlite:///e.db"
    assert load(tmp_path, text, PARTS="8").spec.topics["orders.created"].partitions == 8


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*nothing\.yaml: No such file"):
        load_spec(tmp_path / "nothing.yaml")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Is a directory"):
        load_spec(tmp_path)


def test_an_empty_file_names_what_it_lacks(tmp_path: Path) -> None:
    assert mistakes(tmp_path, "") == [
        "topics.yaml:1:1: the file needs the key 'version'",
        "topics.yaml:1:1: the file needs the key 'topics'",
    ]


WRONG = (
    "''", "[]", "{}", "[a]", "{a: b}", "-1", "1.5", "true", "off", "9" * 40, "x y", "1.0e999",
    "${NOWHERE}", "!!int 1", "&a b", "*a", "~", '"\\0"', "2026-01-02", "1:30", ".nan",
)  # fmt: skip
NOT_OUR_WORDS = re.compile(
    r"Input|valid|Value error|instance|dictionary|pydantic|tag:yaml|None|True|False|\(mapping"
)


@pytest.mark.parametrize("wrong", WRONG)
def test_whatever_stands_anywhere_is_told_in_our_own_words(tmp_path: Path, wrong: str) -> None:
    lines = dedent(FULL).splitlines(keepends=True)
    told = 0
    for number, line in enumerate(lines):
        for value in re.finditer(r"(?<=[a-z_0-9]: )(?![|{\[])[^\n,}]+", line):
            changed = line[: value.start()] + wrong + line[value.end() :]
            try:
                load(tmp_path, "".join([*lines[:number], changed, *lines[number + 1 :]]))
            except SpecError as error:
                told += 1
                for said in str(error).splitlines():
                    assert re.match(r"topics\.yaml:\d+:\d+: .", said), said
                    assert not NOT_OUR_WORDS.search(said), said
    assert told > 40

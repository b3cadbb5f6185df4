"""`topics.yaml`: what is understood, and what is said of mistakes."""

from pathlib import Path
from textwrap import dedent

import pytest

from dagster_bus.core.retry import RetryPolicy
from dagster_bus.errors import SpecError, UsageError
from dagster_bus.opening import store_url
from dagster_bus.spec.configs import group_config
from dagster_bus.spec.load import LoadedSpec, load_spec
from dagster_bus.spec.source import read_source

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


def load(tmp_path: Path, text: str, **environ: str) -> LoadedSpec:
    file = tmp_path / "topics.yaml"
    file.write_text(dedent(text), encoding="utf-8")
    return load_spec(file, environ)


def mistakes(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(SpecError) as found:
        load(tmp_path, text)
    return str(found.value).splitlines()


def test_the_shops_file_is_fine() -> None:
    loaded = load_spec(PROJECT / "topics.yaml", {})
    assert list(loaded.spec.topics) == ["orders.created", "orders.cancelled"]
    assert loaded.topics_of("order-history") == ("orders.created", "orders.cancelled")


def test_a_group_is_put_into_the_cores_terms(tmp_path: Path) -> None:
    config = group_config(load(tmp_path, GOOD), "history")
    assert config.topics == ("orders.created", "orders.cancelled")
    assert config.retry == RetryPolicy(7, 500, 3.0, 3_600_000, "none")
    assert config.max_events == 50_000
    assert config.lease_ms == 20_000
    assert config.filter.equals == {"region": "eu", "express": True, "tier": 1}
    assert config.filter.exists == ("channel",)


def test_types_have_one_spelling(tmp_path: Path) -> None:
    assert load(tmp_path, GOOD).columns_of("history") == {
        "order_id": "string",
        "amount": "decimal(12,2)",
    }


def test_paths_count_from_the_files_folder(tmp_path: Path) -> None:
    loaded = load(tmp_path, GOOD)
    assert store_url(loaded) == f"sqlite:///{tmp_path}/bus.db"
    assert loaded.table_path("history") == str(tmp_path / "data/history")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("partitions: 4", "partitions: 0", "topics.yaml:7: topics.orders.created.partitions: "),
        ("partitions: 4", "partitons: 4", "topics.yaml:7: unknown key 'topics.orders.created.parti"
         "tons'; did you mean 'partitions'?"),
        ("retry: slow", "retry: slo", "topics.yaml:15: no retry policy 'slo' is declared; did you "
         "mean 'slow'?"),
        ("[orders.*]", "[ordres.*]", "topics.yaml:12: no declared topic matches 'ordres.*'"),
        ("max_delay: 1h", "max_delay: 1y", "topics.yaml:4: retry_policies.slow.max_delay: '1y' is "
         "not a duration; write a number and ms, s, m, h or d"),
        ("order_id: string", "order_id: strin", "topics.yaml:8: topics.orders.created.schema.field"
         "s.order_id: 'strin' is not a column type; known are"),
        ("version: 1", "version: 2", "topics.yaml:1: version: Input should be 1 (found 2)"),
        ("orders.cancelled:", "Orders.cancelled:", "topics.yaml:9: topics.Orders.cancelled: "
         "'Orders.cancelled' is not a topic name"),
        ("orders.cancelled:", "bus.audit:", "topics.yaml:9: topics.bus.audit: 'bus.audit' is res"),
        ("pipeline: shop.pipelines:history", "pipeline: history", "topics.yaml:16: groups.history."
         "pipeline: 'history' cannot stand here; write module:function"),
        ("        table: {path: data/history}\n", "", "topics.yaml:11: groups.history needs the "
         "key 'table'"),
        ("partitions: 4", "partitions: 4\n        partitions: 5", "topics.yaml:8: the key "
         "'partitions' stands here a second time"),
        ("jitter: none", "jitter: some", "topics.yaml:4: retry_policies.slow.jitter: Input should"),
        ("      history:", "      My_Group:", "topics.yaml:11: groups.My_Group: 'My_Group' cannot "
         "stand here; a group's name is"),
        ("lease: 20s", "lease: 0s", "topics.yaml:18: groups.history.lease: Input should be gr"),
        ("lease: 20s", "launch_timeout: 0ms", "topics.yaml:18: groups.history.launch_timeout: "),
        ("partitions: 4", "owners: [shop]", "topics.yaml:7: topics.orders.created.owners.0: 'shop' "
         "cannot stand here; an owner is team:NAME or an e-mail address"),
        ("sqlite:///bus.db", "redis://x", "topics.yaml:2: store: 'redis://x' cannot stand here; a "
         "store is sqlite:///path/to/bus.db"),
        ("order_id: string", "order_id: string, ORDER_ID: int", "topics.yaml:8: topics.orders.creat"
         "ed.schema.fields: 'order_id' and 'ORDER_ID' differ in case only"),
        ("tier: 1", "tier: null", "topics.yaml:13: groups.history.filter.equals.tier: None cannot "
         "stand here; attributes are text, numbers, true or false"),
        ("partitions: 4", "partitions: !!int four", "topics.yaml:7: 'four' is not what its tag"),
        ("lease: 20s", "lease: [20s", "topics.yaml:19: not YAML: "),
        ("store: sqlite:///bus.db", "store: ${NOWHERE}", "topics.yaml:2: the environment variable "
         "NOWHERE is not set"),
        ("partitions: 4", "partitions: ${NOWHERE}", "topics.yaml:7: the environment variable NOWH"),
        ("tier: 1", "tier: !!python/name:os.system x", "topics.yaml:13: the tag tag:yaml.org"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_line(
    tmp_path: Path, old: str, new: str, complaint: str
) -> None:
    assert old in GOOD
    assert any(line.startswith(complaint) for line in mistakes(tmp_path, GOOD.replace(old, new)))


def test_a_value_that_cannot_be_read_is_complained_of_once(tmp_path: Path) -> None:
    assert len(mistakes(tmp_path, GOOD.replace("sqlite:///bus.db", "${NOWHERE}"))) == 1


def test_all_mistakes_are_named_at_once_in_the_files_order(tmp_path: Path) -> None:
    broken = GOOD.replace("partitions: 4", "partitions: none").replace("20s", "soon")
    lines = [line.split(":")[1] for line in mistakes(tmp_path, broken)]
    assert lines == ["7", "18"]


def test_a_column_has_one_type_within_a_group(tmp_path: Path) -> None:
    broken = GOOD.replace("cancelled: {}", "cancelled: {schema: {fields: {amount: double}}}")
    (line,) = mistakes(tmp_path, broken)
    assert line.startswith("topics.yaml:12: group 'history' reads column 'amount' as decimal(12,2)")


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*nothing\.yaml: No such file"):
        load_spec(tmp_path / "nothing.yaml")


def test_an_empty_file_names_what_it_lacks(tmp_path: Path) -> None:
    assert mistakes(tmp_path, "") == [
        "topics.yaml:1: the file needs the key 'version'",
        "topics.yaml:1: the file needs the key 'topics'",
    ]


def test_variables_come_from_the_environment_or_their_default(tmp_path: Path) -> None:
    text = GOOD.replace("sqlite:///bus.db", "${STORE:-sqlite:///d.db}").replace(
        "partitions: 4", "partitions: ${PARTS:-3}"
    )
    assert load(tmp_path, text).spec.store == "sqlite:///d.db"
    assert load(tmp_path, text).spec.topics["orders.created"].partitions == 3
    assert load(tmp_path, text, STORE="sqlite:///e.db").spec.store == "sqlite:///e.db"
    assert load(tmp_path, text, PARTS="8").spec.topics["orders.created"].partitions == 8


def test_plain_words_stay_what_they_look_like() -> None:
    source = read_source("{on: yes, at: 1:30, day: 2026-01-02, n: 1_000, f: 1.5, s: '7'}", "x", {})
    assert source.data == {
        "on": "yes",
        "at": "1:30",
        "day": "2026-01-02",
        "n": 1000,
        "f": 1.5,
        "s": "7",
    }


def test_numbers_are_decimal_whatever_they_begin_with() -> None:
    assert read_source("{a: 010, b: 08, c: -1_000, d: 0.50}", "x", {}).data == {
        "a": 10,
        "b": 8,
        "c": -1000,
        "d": 0.5,
    }


def test_a_file_that_is_a_list_is_told_so(tmp_path: Path) -> None:
    (line,) = mistakes(tmp_path, "- a")
    assert line.startswith("topics.yaml:1: the file: Input should be")


def test_an_alias_bomb_does_no_harm() -> None:
    levels = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 30))
    source = read_source(f"l0: &l0 [x]\n{levels}", "x", {})
    assert source.problems

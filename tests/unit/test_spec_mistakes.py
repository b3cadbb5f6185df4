"""Mistakes in `topics.yaml`: what is said of each, and where."""

from pathlib import Path

import pytest

from tests.unit.test_spec import FIELDS as ONE
from tests.unit.test_spec import FULL, GOOD, load, mistakes


def messages(tmp_path: Path, good: str, *changes: tuple[str, str]) -> list[str]:
    for old, new in changes:
        assert good.count(old), old
        good = good.replace(old, new, 1)
    return [line.removeprefix("topics.yaml:") for line in mistakes(tmp_path, good)]


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("version: 1", "version: 2", "1:10: version: 2 is not known here (1)"),
        ("version: 1", "version: true", "1:10: version: 'true' is not known here (1)"),
        ("store: sqlite", "stor: sqlite", "2:1: the file: unknown key 'stor' (did you mean 'store"
         "'?)"),
        ("store: sqlite", "xyz: sqlite", "2:1: the file: unknown key 'xyz' (known are version, stor"
         "e, spark, strict_topics, retry_policies, dagster, system, topics, groups)"),
        ("partitions: 4", "partitons: 4", "7:5: topics.orders.created: unknown key 'partitons' (did"
         " you mean 'partitions'?)"),
        ("retry: slow", "max_events: 5", "15:5: groups.history: unknown key 'max_events' (did you m"
         "ean 'batch.max_events'?)"),
        ("{path: data/history}", "{pth: data/history}", "17:5: groups.history.table needs the key '"
         "path'"),
        ("partitions: 4", "partitions: 0", "7:17: topics.orders.created.partitions: 0 is too small "
         "(at least 1)"),
        ("partitions: 4", "partitions: 1_001", "7:17: topics.orders.created.partitions: 1001 is too"
         " large (at most 1_000)"),
        ("partitions: 4", "partitions: four", "7:17: topics.orders.created.partitions: 'four' is no"
         "t a whole number (digits only, such as 4 or 50_000)"),
        ("partitions: 4", "partitions: 4.0", "7:17: topics.orders.created.partitions: 4.0 is not a "
         "whole number"),
        ("partitions: 4", "partitions: true", "7:17: topics.orders.created.partitions: true is not "
         "a whole number"),
        ("partitions: 4", "partitions: 1:30", "7:17: topics.orders.created.partitions: '1:30' is no"
         "t a whole number"),
        ("partitions: 4", "durable: yes", "7:14: topics.orders.created.durable: 'yes' is not true o"
         "r false (did you mean true?)"),
        ("partitions: 4", "durable: maybe", "7:14: topics.orders.created.durable: 'maybe' is not tr"
         "ue or false"),
        ("partitions: 4", "description: 2026", "7:18: topics.orders.created.description: 2026 is no"
         "t text (put it in quotes)"),
        ("partitions: 4", "description: [a]", "7:5: topics.orders.created.description: a list stand"
         "s where text should"),
        ("partitions: 4", "owners: shop", "7:13: topics.orders.created.owners: 'shop' is not a list"
         " (write [shop])"),
        ("partitions: 4", "owners: {a: b}", "7:5: topics.orders.created.owners: a mapping stands wh"
         "ere a list should"),
        ("partitions: 4", "owners: [team:a, shop]", "7:22: topics.orders.created.owners: 'shop' can"
         "not stand here (an owner is team:NAME or an e-mail address)"),
        ("partitions: 4", "retention: 5d", "7:16: topics.orders.created.retention: '5d' stands wher"
         "e keys and values should (write key: value)"),
        ("cancelled: {}", "cancelled: []", "9:3: topics.orders.cancelled: a list stands where keys "
         "and values should"),
        ("cancelled: {}", "cancelled:", "9:3: topics.orders.cancelled has no value (write one, or r"
         "emove the key; {} is an empty mapping)"),
        ("lease: 20s", "lease: ~", "18:5: groups.history.lease has no value"),
        ("[orders.*]", "[orders.*, ]\n        owners:\n        -", "14:6: groups.history.owners: an"
         " item has no value (remove it)"),
        ("orders.cancelled:", "Orders.cancelled:", "9:3: topics.Orders.cancelled: 'Orders.cancelled"
         "' is not a topic name"),
        ("orders.cancelled:", "bus.audit:", "9:3: topics.bus.audit: 'bus.audit' is reserved"),
        ("[orders.*]", "[orders..*]", "12:14: groups.history.topics: 'orders..*' is not a topic pat"
         "tern"),
        ("[orders.*]", "[]", "12:5: groups.history.topics: a list without anything in it"),
        ("      history:", "      My_Group:", "11:3: groups.My_Group: 'My_Group' cannot stand here "
         "(a group's name is"),
        ("multiplier: 3", "multiplier: fast", "4:58: retry_policies.slow.multiplier: 'fast' is not "
         "a number (such as 2 or 1.5)"),
        ("multiplier: 3", "multiplier: 0.5", "4:58: retry_policies.slow.multiplier: 0.5 is too smal"
         "l (at least 1)"),
        ("multiplier: 3", "multiplier: 1001", "4:58: retry_policies.slow.multiplier: 1001 is too la"
         "rge (at most 1000)"),
        ("multiplier: 3", "multiplier: .inf", "4:58: '.inf' is not a number to work with (in quotes"
         " it is text)"),
        ("jitter: none", "jitter: non", "4:84: retry_policies.slow.jitter: 'non' is not known here "
         "(none, full or equal; did you mean 'none'?)"),
        ("max_delay: 1h", "max_delay: 1y", "4:72: retry_policies.slow.max_delay: '1y' is not a dura"
         "tion (a number and ms, s, m, h or d, such as 90s)"),
        ("max_delay: 1h", "max_delay: 60", "4:72: retry_policies.slow.max_delay: 60 is not a durati"
         "on"),
        ("lease: 20s", "lease: 0s", "18:12: groups.history.lease: '0s' is too small (at least 1s)"),
        ("lease: 20s", "lease: 40000d", "18:12: groups.history.lease: '40000d' is too large (at mos"
         "t 36500d)"),
        ("partitions: 4", "limits: {payload: 1XB}", "7:23: topics.orders.created.limits.payload: '1"
         "XB' is not a size (a number and B, KB, "),
        ("partitions: 4", "limits: {payload: 1TB}", "7:23: topics.orders.created.limits.payload: '1"
         "TB' is too large (at most 512MiB)"),
        ("order_id: string", "order_id: strin", "8:33: topics.orders.created.schema.fields.order_id"
         ": 'strin' is not a column type"),
        ("order_id: string", "order_id: string, ORDER_ID: int", "8:14: topics.orders.created.schema"
         ".fields: 'order_id' and 'ORDER_ID' differ in case only"),
        ("order_id: string", "1st: string", "8:23: topics.orders.created.schema.fields.1st: '1st' c"
         "annot stand here (a column's name is"),
        ("tier: 1", "tier: [1]", "13:50: groups.history.filter.equals.tier: a list cannot stand her"
         "e (text, a number, true or false)"),
        ("pipeline: shop.pipelines:history", "pipeline: history", "16:15: groups.history.pipeline: "
         "'history' cannot stand here (write module:function"),
        ("lease: 20s", "start: last", "18:12: groups.history.start: 'last' is not known here (earli"
         "est, latest or a mapping with offset or timestamp; did you mean 'latest'?)"),
        ("lease: 20s", "start: {ofset: 3}", "18:13: groups.history.start: unknown key 'ofset' (did "
         "you mean 'offset'?)"),
        ("lease: 20s", "start: {offset: 0}", "18:21: groups.history.start.offset: 0 is too small (a"
         "t least 1)"),
        ("lease: 20s", "start: {timestamp: 2026-01-02}", "18:24: groups.history.start.timestamp: '2"
         "026-01-02' is not a point in time (ISO 8601 with its zone, "),
        ("lease: 20s", "window: dayly", "18:13: groups.history.window: 'dayly' is not known here (h"
         "ourly, daily, weekly, monthly or a mapping with cron or timezone or start; did you mea"),
        ("lease: 20s", "window: {cron: '* * * *'}", "18:20: groups.history.window.cron: '* * * *' i"
         "s not a cron schedule: five fields: "),
        ("lease: 20s", "window: {cron: '0 24 * * *'}", "18:20: groups.history.window.cron: '0 24 * "
         "* *' is not a cron schedule: its hour is '24' (0 to 23, "),
        ("lease: 20s", "window: {cron: '0 6 * * *', timezone: Europe/Berln}", "18:43: groups.histor"
         "y.window.timezone: 'Europe/Berln' is not a time zone (did you mean 'Europe/Berlin'?)"),
        ("lease: 20s", "expect: {ok: {condition: a, on_violation: dorp}}", "18:47: groups.history.e"
         "xpect.ok.on_violation: 'dorp' is not known here (dead_letter, drop or fail; did you mean "
         "'drop'?)"),
        ("lease: 20s", "expect: {ok: 5}", "18:18: groups.history.expect.ok: 5 is not text (put it i"
         "n quotes)"),
        ("lease: 20s", "expect: {ok: ' '}", "18:18: groups.history.expect.ok: there is no text here"
         " (write some, or remove the key)"),
        ("lease: 20s", "tags: {'a b': c}", "18:12: groups.history.tags.a b: 'a b' cannot stand here"
         " (a tag's key is"),
        ("lease: 20s", "labels: {dagster/kind: c}", "18:14: groups.history.labels.dagster/kind: 'd"
         "agster/kind' cannot stand here (a label's key is"),
        ("lease: 20s", "labels: {a: b c}", "18:17: groups.history.labels.a: 'b c' cannot stand he"
         "re (a label's value is"),
        ("partitions: 4", "docs: wiki/orders", "7:11: topics.orders.created.docs: 'wiki/orders' ca"
         "nnot stand here (write an address of the web"),
        ("partitions: 4", "acl: {publish: [shop, 'a b']}", "7:27: topics.orders.created.acl.publish"
         ": 'a b' cannot stand here (a caller's name is"),
        ("partitions: 4", "acl: {publish: {alow: [a]}}", "7:21: topics.orders.created.acl.publish: "
         "unknown key 'alow' (did you mean 'allow'?)"),
        ("partitions: 4", "acl: {publish: shop}", "7:20: topics.orders.created.acl.publish: 'shop' "
         "is not a list (write [shop])"),
        ("retry_policies:", "spark: {remote: localhost}\n    retry_policies:", "3:17: spark.remote:"
         " 'localhost' cannot stand here (a Spark Connect server is sc://host:port"),
        ("retry_policies:", "spark: {packages: [delta]}\n    retry_policies:", "3:20: spark.package"
         "s: 'delta' cannot stand here (a package is group:artifact:version"),
        ("sqlite:///bus.db", "redis://x", "2:8: store: this is not the address of a store (sqlite:/"
         "//path/to/bus.db, mongodb://host/bus?replicaSet=rs0 or mongodb+srv://host/bus)"),
        ("sqlite:///bus.db", "sqlite://bus.db", "2:8: store: this is not the address of a store"),
        ("sqlite:///bus.db", "mongodb://h:27017", "2:8: store: the address names no database (it st"
         "ands after the host, such as mongodb://host:27017/bus?replicaSet=rs0)"),
        ("sqlite:///bus.db", "mongodb://h/?replicaSet=rs0", "2:8: store: the address names no datab"
         "ase"),
        ("sqlite:///bus.db", "mongodb+srv://h?x=y", "2:8: store: the address names no database"),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_told_with_its_place(
    tmp_path: Path, old: str, new: str, complaint: str
) -> None:
    (line,) = messages(tmp_path, GOOD, (old, new))[:1]
    assert line.startswith(complaint)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("retry: slow", "retry: slo", "15:12: groups.history.retry: no retry policy 'slo' is declar"
         "ed (did you mean 'slow'?)"),
        ("[orders.*]", "[orders.*, ordres.new]", "12:24: groups.history.topics: no declared topic m"
         "atches 'ordres.new' (did you mean"),
        ("max_delay: 1h", "max_delay: 1ms", "4:72: retry_policies.slow.max_delay: max_delay is shor"
         "ter than base_delay, 1ms than 500ms (raise max_delay)"),
        ("base_delay: 500ms, multiplier: 3, max_delay: 1h", "base_delay: 1m", "4:39: retry_policies"
         ".slow.base_delay: max_delay is shorter than base_delay, 30s than 1m"),
        ("jitter: none", "retry_on: [A, B], dead_letter_on: [C, B]", "4:114: retry_policies.slow.de"
         "ad_letter_on: 'B' stands in retry_on too (remove one)"),
        ("retry_policies:", "spark: {master: yarn, remote: 'sc://h'}\n    retry_policies:", "3:31: "
         "spark.remote: master and remote exclude each other (remove one)"),
        ("retry_policies:", "strict_topics: [order.*]\n    retry_policies:", "3:17: strict_topics: "
         "no declared topic matches 'order.*' (known are orders.created, orders.cancelled)"),
        ("retry_policies:", "strict_topics: [orders.*]\n    retry_policies:", "3:17: strict_topics:"
         " 'orders.*' matches orders.cancelled, without a schema (declare one)"),
        (ONE, "mode: strict", "8:5: topics.orders.created.schema: one of these keys is needed: fiel"
         "ds, json_schema, model"),
        (ONE, "fields: {a: int}, model: 'a:B'", "8:39: topics.orders.created.schema.model: fields a"
         "nd model exclude each other (remove one)"),
        (ONE, "version: 2, fields: {a: int}, versions: {2: {fields: {a: int}}}", "8:55: topics.orde"
         "rs.created.schema.versions.2: version 2 is declared already (remove one)"),
        (ONE, "version: 3, fields: {a: int}, versions: {1: {fields: {a: int}}, 01: {model: 'a:B'}}",
         "8:78: topics.orders.created.schema.versions.01: version 1 is declared already"),
        (ONE, "version: 3, fields: {a: int}, versions: {1: {}}", "8:55: topics.orders.created.schem"
         "a.versions.1: one of these keys is needed"),
        (ONE, "version: 3, fields: {a: int}, versions: {one: {model: 'a:B'}}", "8:55: topics.orders"
         ".created.schema.versions.one: 'one' is not a whole number"),
        (ONE, "json_schema: nowhere.json", "8:27: topics.orders.created.schema.json_schema: cannot "
         "read "),
        ("cancelled: {}", "cancelled: {retention: {}}", "9:22: topics.orders.cancelled.retention: o"
         "ne of these keys is needed: age, size"),
        ("cancelled: {}", "cancelled: {acl: {}}", "9:22: topics.orders.cancelled.acl: one of these "
         "keys is needed: publish, subscribe"),
        ("cancelled: {}", "cancelled: {acl: {publish: {}}}", "9:28: topics.orders.cancelled.acl.pub"
         "lish: one of these keys is needed: allow, deny"),
        ("cancelled: {}", "cancelled: {compaction: {}, retention: {size: 1GB}}", "9:56: topics.orde"
         "rs.cancelled.retention.size: a compacted topic keeps every key"),
        ("topics: [orders.*]", "topics: [orders.created]\n        publish: orders.gone", "13:14: gr"
         "oups.history.publish: no topic 'orders.gone' is declared"),
        ("topics: [orders.*]", "topics: [orders.created]\n        publish: orders.created", "13:14:"
         " groups.history.publish: events would go round for ever: history → orders.created → his"),
        ("        table: {path: data/history}\n", "", "11:3: groups.history: one of these keys is n"
         "eeded: table, publish"),
        ("pipeline: shop.pipelines:history", "pipeline: a:b\n        sql: SELECT 1", "17:10: groups"
         ".history.sql: pipeline and sql exclude each other (remove one)"),
        ("pipeline: shop.pipelines:history", "job: a", "17:5: groups.history.table: only a pipeline"
         " or sql has rows for this (add one, or remove this)"),
        ("        pipeline: shop.pipelines:history\n", "", "16:5: groups.history.table: only a pipe"
         "line or sql has rows for this"),
        ("lease: 20s", "params: {a: 1}", "18:5: groups.history.params: only sql has parameters"),
        ("lease: 20s", "slo: {}", "18:5: groups.history.slo: one of these keys is needed: max_lag, "
         "max_age"),
        ("lease: 20s", "start: {}", "18:5: groups.history.start: one of these keys is needed: offse"
         "t, timestamp"),
        ("lease: 20s", "start: {offset: 1, timestamp: '2026-01-31T00:00Z'}", "18:35: groups.history"
         ".start.timestamp: offset and timestamp exclude each other"),
        ("cancelled: {}", "cancelled: {durable: false}", "12:5: groups.history.topics: no run can r"
         "ead a topic that is not durable: orders.cancelled"),
        ("cancelled: {}", "cancelled: {schema: {fields: {amount: double}}}", "12:5: groups.history."
         "topics: column 'amount' is decimal(12,2) in orders.created and double in orders.cancelle"
         "d (a column has one type)"),
        ("cancelled: {}", "cancelled: {schema: {fields: {Amount: int}}}", "12:5: groups.history.top"
         "ics: column 'amount' of orders.created and 'Amount' of orders.cancelled are the same"),
    ],
)  # fmt: skip
def test_parts_that_do_not_go_together_are_told_with_their_place(
    tmp_path: Path, old: str, new: str, complaint: str
) -> None:
    (line,) = messages(tmp_path, GOOD, (old, new))
    assert line.startswith(complaint)


@pytest.mark.parametrize("key", ["retention: {age: 1d}", "compaction: {}", "dedup: {window: 1m}"])
def test_what_lives_in_memory_keeps_nothing(tmp_path: Path, key: str) -> None:
    (line,) = messages(tmp_path, FULL, ("durable: false", f"durable: false\n        {key}"))
    assert "a topic that is not durable cannot have this (remove it)" in line


def test_a_group_starts_a_job_or_assets(tmp_path: Path) -> None:
    (line,) = messages(tmp_path, FULL, ("job: billing", "job: billing\n        assets: bills"))
    assert "groups.bill.assets: job and assets exclude each other (remove one)" in line


def test_a_run_cannot_publish_into_the_memory_of_another_process(tmp_path: Path) -> None:
    (line,) = messages(tmp_path, FULL, ("publish: load.hourly", "publish: control.pause"))
    assert "groups.load.publish: no run can publish to control.pause, which is not durable" in line


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ("{", "is not JSON: Expecting property name enclosed in double quotes in line 1, column 2"),
        ("[1]", "schema version 1: a JSON Schema is an object"),
        ('{"type": "objekt"}', "schema version 1: not a JSON Schema"),
        ('{"minimum": NaN}', "is not JSON: NaN is not a JSON value"),
        ("[" * 100_000, "is not JSON: nested too deeply"),
        ("é".encode("latin-1"), "is not JSON: not UTF-8 text"),
    ],
)
def test_a_json_schema_that_cannot_be_used_is_told_at_its_place(
    tmp_path: Path, document: str | bytes, complaint: str
) -> None:
    data = document if isinstance(document, bytes) else document.encode()
    (tmp_path / "order.json").write_bytes(data)
    (line,) = messages(tmp_path, GOOD, (ONE, "json_schema: order.json"))
    assert line.startswith("8:27: topics.orders.created.schema.json_schema: ")
    assert complaint in line


def test_a_loop_through_several_groups_is_found_once(tmp_path: Path) -> None:
    text = """\
        version: 1
        topics: {a: {}, b: {}, c: {}, d: {}}
        groups:
          from-d: {topics: [d], sql: SELECT 1, publish: a}
          from-a: {topics: [a], sql: SELECT 1, publish: b}
          from-b: {topics: [b], sql: SELECT 1, publish: c}
          from-c: {topics: [c], sql: SELECT 1, publish: a}
        """
    assert mistakes(tmp_path, text) == [
        "topics.yaml:5:49: groups.from-a.publish: events would go round for ever: from-a → b → "
        "from-b → c → from-c → a → from-a (publish elsewhere, or read less)"
    ]


def test_a_pattern_does_not_mean_the_topic_that_the_group_publishes_to(tmp_path: Path) -> None:
    text = """\
        version: 1
        topics: {a.in: {}, a.out: {}, b.out: {}}
        groups:
          one: {topics: [a.*], sql: SELECT 1, publish: a.out}
          two: {topics: [b.*], sql: SELECT 1, publish: b.out}
        """
    assert mistakes(tmp_path, text) == [
        "topics.yaml:5:48: groups.two.publish: the group would read nothing but b.out, which it "
        "writes (read other topics)"
    ]
    loaded = load(tmp_path, text.replace("[b.*]", "[a.out]"))
    assert loaded.topics_of("one") == ("a.in",)
    assert loaded.topics_of("two") == ("a.out",)


def test_two_groups_do_not_share_a_table(tmp_path: Path) -> None:
    text = """\
        version: 1
        topics: {a: {}}
        groups:
          one: {topics: [a], pipeline: "x:y", table: {path: data/t}}
          two: {topics: [a], pipeline: "x:y", table: {path: data/../data/t}}
        """
    assert mistakes(tmp_path, text) == [
        "topics.yaml:5:53: groups.two.table.path: group 'one' has this table already (each group "
        "has its own)"
    ]


def test_an_address_with_a_password_is_not_repeated(tmp_path: Path) -> None:
    (line,) = messages(tmp_path, GOOD, ("sqlite:///bus.db", "mongodb://me:secret@host"))
    assert "secret" not in line


def test_a_value_that_cannot_be_read_is_complained_of_once(tmp_path: Path) -> None:
    for old in ("sqlite:///bus.db", "shop.pipelines:history", "[orders.*]", "20s", "eu"):
        assert len(messages(tmp_path, GOOD, (old, "${NOWHERE}"))) == 1


def test_two_mistakes_on_one_line_are_both_told(tmp_path: Path) -> None:
    changes = (("max_attempts: 7", "max_attempts: '${NOWHERE}'"), ("jitter: none", "jitter: some"))
    assert [line.split(": ")[1] for line in messages(tmp_path, GOOD, *changes)] == [
        "the environment variable NOWHERE is not set (or write ${NOWHERE:-default})",
        "retry_policies.slow.jitter",
    ]


def test_all_mistakes_are_told_at_once_in_the_files_order(tmp_path: Path) -> None:
    """Those of reading, of single values, and of parts that do not go together."""
    changes = (
        ("sqlite:///bus.db", "${NOWHERE}"),
        ("max_delay: 1h", "max_delay: 1ms"),
        ("partitions: 4", "partitions: none\n        partitions: 5"),
        (ONE, "mode: strikt"),
        ("cancelled: {}", "cancelled: &x {retention: {}}"),
        ("equals: {region", "equal: {region"),
        ("retry: slow", "retry: quick"),
        ("pipeline: shop.pipelines:history", "pipeline: 5\n        job: a"),
        ("20s", "soon"),
    )
    found = [line.split(":")[:2] for line in messages(tmp_path, GOOD, *changes)]
    assert [":".join(place) for place in found] == [
        "2:8", "4:72", "7:17", "8:5", "9:5", "9:20", "10:21", "10:25", "14:14", "16:12", "17:15",
        "18:10", "20:12",
    ]  # fmt: skip


def test_what_a_mistake_leaves_out_is_not_missed(tmp_path: Path) -> None:
    """The table, the policy and the topic are there; only something about them is wrong."""
    changes = (
        ("max_attempts: 7", "max_attempts: 0"),
        ("orders.cancelled", "Sales.new"),
        ("[orders.*]", "[orders.*, sales.new]"),
        ("{path: data/history}", "{path: 5}"),
    )
    places = [line.split(": ")[0] for line in messages(tmp_path, GOOD, *changes)]
    assert places == ["4:24", "9:3", "17:19"]


def test_a_file_that_is_a_list_is_told_so(tmp_path: Path) -> None:
    assert mistakes(tmp_path, "- a") == [
        "topics.yaml:1:1: the file: a list stands where keys and values should (write key: value)"
    ]


def test_a_file_that_is_a_word_is_told_so(tmp_path: Path) -> None:
    (line,) = mistakes(tmp_path, "hello")
    assert line.startswith("topics.yaml:1:1: the file: 'hello' stands where keys and values should")

"""A project folder as a user would have it."""

from pathlib import Path
from textwrap import dedent

TOPICS = """\
    version: 1
    store: sqlite:///bus.db
    spark:
      master: local[2]
      conf: {spark.ui.enabled: false, spark.sql.shuffle.partitions: 2}
    retry_policies:
      quick: {max_attempts: 2, base_delay: 1ms, jitter: none}
    topics:
      orders.created:
        description: Orders.
        owners: [team:shop]
        partitions: 2
        schema: {fields: {n: bigint}}
      stock: {}
      strict: {schema: {mode: strict, fields: {n: bigint}}}
    groups:
      order-table:
        topics: ["orders.*"]
        retry: quick
        pipeline: tests.support.pipelines:keep
        table: {path: data/orders}
        launch_timeout: 60s
        on_exhausted: dead_letter
    """


def write_topics(folder: Path, **replacements: str) -> Path:
    """A `topics.yaml`, with words replaced (their spaces written as underscores)."""
    text = dedent(TOPICS)
    for old, new in replacements.items():
        assert old in text, old
        text = text.replace(old, new)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "topics.yaml"
    file.write_text(text, encoding="utf-8")
    return file

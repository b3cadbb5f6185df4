"""A project with a job and assets of its own, which groups start."""

from pathlib import Path
from textwrap import dedent

from dagster import (
    AssetExecutionContext,
    DagsterInstance,
    DailyPartitionsDefinition,
    Definitions,
    OpExecutionContext,
    asset,
    job,
    op,
)

from dagster_bus import BusResource
from tests.support.dagster_project import Project

TOPICS = """\
    version: 1
    store: STORE
    spark:
      master: local[2]
      conf: {spark.ui.enabled: false, spark.sql.shuffle.partitions: 2}
    retry_policies:
      quick: {max_attempts: 2, base_delay: 1ms, jitter: none, dead_letter_on: [Hopeless]}
    topics:
      orders: {partitions: 2, schema: {fields: {n: bigint}}}
    groups:
      mailer:
        topics: [orders]
        filter: {exists: [mail]}
        job: mail_orders
        retry: quick
        batch: {max_inflight: 1}
        launch_timeout: 60s
        lease: 1s
        tags: {team: shop}
      reports:
        topics: [orders]
        assets: [day_of_orders, summary]
        retry: quick
        tags: {team: shop, dagster/priority: "7"}
    """


class Hopeless(Exception):
    """An error that another attempt does not mend."""


mailed: list[int] = []
"""What the job has seen."""

trouble: list[BaseException] = []
"""What the next runs of the job fail with."""


@op
def mail_each(context: OpExecutionContext, bus: BusResource) -> None:
    with bus.delivery(context) as delivery:
        for event in delivery.events():
            mailed.append(event.payload["n"])
            if event.payload["n"] < 0:
                delivery.refuse(event, "there is no such order")
        if trouble:
            raise trouble.pop()


@job
def mail_orders() -> None:
    mail_each()


@asset(partitions_def=DailyPartitionsDefinition("2026-01-01", end_offset=1))
def day_of_orders(context: AssetExecutionContext, bus: BusResource) -> None:
    with bus.delivery(context) as delivery:
        context.add_output_metadata({"orders": sum(1 for _ in delivery.events())})


@asset(deps=[day_of_orders], partitions_def=DailyPartitionsDefinition("2026-01-01", end_offset=1))
def summary() -> None:
    """Something downstream."""


OWN = Definitions(assets=[day_of_orders, summary], jobs=[mail_orders])


def own_project(
    folder: Path, instance: DagsterInstance, store: str, *own: Definitions, **replacements: str
) -> Project:
    text = dedent(TOPICS).replace("STORE", store)
    for old, new in replacements.items():
        assert old in text, old
        text = text.replace(old, new)
    file = folder / "topics.yaml"
    file.write_text(text, encoding="utf-8")
    mailed.clear()
    trouble.clear()
    return Project(file, instance, *(own or (OWN,)))

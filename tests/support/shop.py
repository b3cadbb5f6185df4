"""A fresh project with a real `dagster dev` in it, shared by the tests that look at it."""

from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from dagster_bus import Bus
from dagster_bus.orchestration.dev import DagsterDev
from tests.support.dagster_dev import group_is_gone, wait_for

TOPICS = """\
    version: 1
    store: sqlite:///bus.db
    spark:
      master: local[1]
      conf: {spark.ui.enabled: false, spark.sql.shuffle.partitions: 1}
    retry_policies:
      once: {max_attempts: 1}
      three: {max_attempts: 3, base_delay: 2s, multiplier: 2, jitter: none}
    topics:
      good: {partitions: 3, schema: {fields: {n: bigint}}}
      bad: {schema: {fields: {n: bigint}}}
      fragile: {partitions: 2, schema: {fields: {n: bigint}}}
      slow: {schema: {fields: {n: bigint}}}
      letters: {partitions: 2}
    groups:
      plain:
        topics: [good]
        retry: three
        pipeline: shop.pipelines:keep
        table: {path: data/plain}
      failing:
        topics: [bad]
        retry: three
        pipeline: shop.pipelines:explode
        table: {path: data/failing}
        on_exhausted: dead_letter
      killed:
        topics: [fragile]
        retry: three
        pipeline: shop.pipelines:hang_once
        table: {path: data/killed}
        lease: 20s
      cancelled:
        topics: [slow]
        retry: once
        pipeline: shop.pipelines:hang_once_more
        table: {path: data/cancelled}
      mailer:
        topics: [letters]
        retry: three
        job: mail_letters
        batch: {max_inflight: 1}
        launch_timeout: 5s
        lease: 2s
    """

PIPELINES = '''\
    import os
    import time
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F


    def keep(events: DataFrame) -> DataFrame:
        return events.select("n", F.col("_event.id").alias("event_id"))


    def explode(events: DataFrame) -> DataFrame:
        return events.select(F.raise_error(F.lit("boom")).cast("bigint").alias("n"))


    def hang_once(events: DataFrame, mark: str = "to-be-killed") -> DataFrame:
        """The first run says who it is, and waits for its end."""
        if not Path(mark).exists():
            Path(mark).write_text(str(os.getpid()))
            time.sleep(300)
        return keep(events)


    def hang_once_more(events: DataFrame) -> DataFrame:
        return hang_once(events, "to-be-cancelled")
    '''

INIT = """\
    from pathlib import Path

    from dagster import Definitions

    from dagster_bus import load_definitions
    from shop.jobs import mail_letters

    defs = Definitions.merge(
        load_definitions(Path(__file__).parent.parent / "topics.yaml"),
        Definitions(jobs=[mail_letters]),
    )
    """

JOBS = '''\
    import os
    import time
    from pathlib import Path

    from dagster import OpExecutionContext, in_process_executor, job, op
    from dagster_bus import BusResource


    @op
    def mail(context: OpExecutionContext, bus: BusResource) -> None:
        with bus.delivery(context) as delivery:
            events = [event.payload for event in delivery.events()]
        for payload in events:
            wait_for_the_end(payload.get("mark"))
        with Path("mailed").open("a") as book:
            book.writelines(f"{payload['n']}\\n" for payload in events)


    def wait_for_the_end(mark: str | None) -> None:
        """The first run that gets here says who it is, and goes on when it is told to."""
        if mark is None or Path(mark).exists():
            return
        Path(mark).write_text(str(os.getpid()))
        while not Path(f"{mark}-go-on").exists():
            time.sleep(0.1)


    @job(executor_def=in_process_executor)
    def mail_letters() -> None:
        mail()
    '''


class Shop:
    """The project, running."""

    def __init__(self, folder: Path, dagster: DagsterDev) -> None:
        self.folder = folder
        self.dagster = dagster
        self.url = dagster.url

    def bus(self) -> Bus:
        return Bus.open(self.folder / "topics.yaml")


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("project")
    (folder / "shop").mkdir()
    for name, text in {
        "topics.yaml": TOPICS,
        "shop/pipelines.py": PIPELINES,
        "shop/__init__.py": INIT,
        "shop/jobs.py": JOBS,
        "workspace.yaml": "load_from: [{python_module: shop}]",
    }.items():
        (folder / name).write_text(dedent(text), encoding="utf-8")
    with DagsterDev(folder, folder / "dagster") as dagster:
        pid = dagster.pid
        yield Shop(folder, dagster)
    wait_for("end of all that Dagster started", lambda: group_is_gone(pid), seconds=10)


@pytest.fixture(scope="session")
def published(shop: Shop) -> dict[str, list[str]]:
    """Events for all groups at once, so that the tests wait together: their ids by topic."""
    with shop.bus() as bus:
        counts = {"good": 500, "bad": 20, "fragile": 200, "slow": 30}
        return {
            topic: [at.id for at in bus.publish_many(topic, [{"n": n} for n in range(count)])]
            for topic, count in counts.items()
        }

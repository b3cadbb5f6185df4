"""Spark sessions of runs: `dagster_pyspark`'s resource, which finds the project's warm server."""

from pathlib import Path

from dagster import InitResourceContext
from dagster_pyspark import PySparkResource
from dagster_pyspark.resources import spark_session_from_config

from dagster_bus.spark.connection import bypass_proxies, close_session, has_session_of_its_own
from dagster_bus.spark.session import REMOTE
from dagster_bus.spark.warm import Choice, ServerFolder, choose


class BusPySparkResource(PySparkResource):
    """A `PySparkResource` that decides when a session is opened, and not when definitions load,
    whether the warm server of the project is there to be used."""

    project: str
    """The folder of topics.yaml."""

    @classmethod
    def _is_dagster_maintained(cls) -> bool:
        return False

    def setup_for_execution(self, context: InitResourceContext) -> None:
        choice = self._choose()
        if choice.note and context.log:
            context.log.info(f"Spark: {choice.note}.")
        if REMOTE in choice.config:
            bypass_proxies()
        self._spark_session = spark_session_from_config(choice.config)  # type: ignore[no-untyped-call]

    def teardown_after_execution(self, context: InitResourceContext) -> None:  # noqa: ARG002
        session, self._spark_session = self._spark_session, None
        close_session(session, ServerFolder.of(Path(self.project)).ended_sessions)

    def _choose(self) -> Choice:
        if has_session_of_its_own():
            return Choice(self.spark_config)
        return choose(self.spark_config, Path(self.project))

"""Spark sessions of runs: `dagster_pyspark`'s resource, which finds the project's warm server."""

from pathlib import Path
from typing import Any

from dagster import DagsterLogManager, InitResourceContext
from dagster_pyspark import PySparkResource
from dagster_pyspark.resources import spark_session_from_config
from pydantic import PrivateAttr

from dagster_bus.core.failure import message_of
from dagster_bus.errors import SparkUnavailable
from dagster_bus.spark.connection import bypass_proxies, close_session, has_session_of_its_own
from dagster_bus.spark.session import REMOTE
from dagster_bus.spark.warm import Choice, ServerFolder, choose


class BusPySparkResource(PySparkResource):
    """A `PySparkResource` that opens a session when one is asked for: by then a run has its events
    on their way, or knows that there is nothing to do. Only then it decides, too, whether the warm
    server of the project is there to be used."""

    project: str
    """The folder of topics.yaml."""
    _log: DagsterLogManager | None = PrivateAttr(default=None)

    @classmethod
    def _is_dagster_maintained(cls) -> bool:
        return False

    def setup_for_execution(self, context: InitResourceContext) -> None:
        self._log = context.log

    @property
    def spark_session(self) -> Any:
        """Raises SparkUnavailable if none can be opened."""
        if self._spark_session is None:
            try:
                self._spark_session = self._open()
            except Exception as error:
                told = f"{type(error).__name__}: {message_of(error)}"
                raise SparkUnavailable(f"no Spark session could be opened: {told}") from error
        return self._spark_session

    def _open(self) -> Any:
        choice = self._choose()
        if choice.note and self._log:
            self._log.info(f"Spark: {choice.note}.")
        if REMOTE in choice.config:
            bypass_proxies()
        return spark_session_from_config(choice.config)  # type: ignore[no-untyped-call]

    def teardown_after_execution(self, context: InitResourceContext) -> None:  # noqa: ARG002
        session, self._spark_session = self._spark_session, None
        close_session(session, ServerFolder.of(Path(self.project)).ended_sessions)

    def _choose(self) -> Choice:
        if has_session_of_its_own():
            return Choice(self.spark_config)
        return choose(self.spark_config, Path(self.project))

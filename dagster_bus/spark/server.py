"""A Spark Connect server that stays warm between runs, for one project on this machine."""

import fcntl
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from dagster_bus.core.clock import system_clock
from dagster_bus.errors import SparkServerError
from dagster_bus.spark import launching, processes
from dagster_bus.spark.warm import (
    ServerFolder,
    ServerState,
    fingerprints,
    pyspark_version,
    write_private,
)

START_TIMEOUT_S = 180.0
LOG_LINES = 12

Say = Callable[[str], None]


class SparkServer:
    """The warm server of a project: at most one, known by its state file."""

    def __init__(self, project: Path, config: Mapping[str, str]) -> None:
        self._project = project.absolute()
        self._config = dict(config)
        self.folder = ServerFolder.of(self._project)

    def running(self) -> ServerState | None:
        """The server, if its process is there."""
        state = self.folder.read()
        return state if state is not None and state.is_alive() else None

    def differences(self, state: ServerState) -> list[str]:
        """In what a server differs from one that would be started now."""
        return state.differences(self._config)

    def start(self, port: int | None = None, say: Say = lambda _: None) -> ServerState:
        """Start it and return when it has answered a query; if one runs already, that one.

        Whatever fails or interrupts this, no process stays behind."""
        with self._alone(say):
            if (state := self.running()) is not None:
                return state
            if (gone := self.folder.read()) is not None:
                say(f"the last server (process {gone.pid}) is gone; starting another")
            self.folder.clear()
            launching.require_java(os.environ)
            process, state = self._launch(launching.usable_port(port))
            try:
                say(f"process {process.pid} started; waiting until it answers …")
                self._wait_until_it_answers(process, state, say)
                state = replace(state, ready=True)
                self.folder.write(state)
            except BaseException:
                processes.end(state.pid, state.birth)
                self.folder.clear()
                raise
            return state

    def stop(self) -> ServerState | None:
        """End it. The server that was ended, or None if none ran."""
        state = self.folder.read()
        ended = state is not None and processes.end(state.pid, state.birth)
        self.folder.clear()
        return state if ended else None

    def _launch(self, port: int) -> tuple[subprocess.Popen[bytes], ServerState]:
        home = launching.spark_home()
        token = secrets.token_urlsafe(24)
        folder = self.folder
        folder.ended_sessions.mkdir(parents=True, exist_ok=True)
        settings = launching.server_settings(self._config, port)
        write_private(folder.settings, launching.as_properties(settings))
        python = os.environ.get("PYSPARK_PYTHON", sys.executable)
        write_private(folder.worker_python, launching.worker_python(python), 0o700)
        with folder.log.open("wb") as log:
            process = subprocess.Popen(  # noqa: S603  (Spark's own command)
                launching.command(home, folder.settings),
                cwd=self._project,
                env=launching.environment(home, self._project, token, folder, os.environ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        state = ServerState(
            pid=process.pid,
            birth=processes.birth_of(process.pid) or "",
            port=port,
            token=token,
            started_ms=system_clock(),
            ready=False,
            settings=fingerprints(self._config),
            python=sys.prefix,
            version=pyspark_version(),
        )
        self.folder.write(state)
        return process, state

    def _wait_until_it_answers(
        self, process: subprocess.Popen[bytes], state: ServerState, say: Say
    ) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not state.accepts():
            self._require_life(process, deadline)
            time.sleep(0.1)
        say("it is there; asking it a first query …")
        probe = subprocess.Popen(
            [sys.executable, "-m", "dagster_bus.spark.probe"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=launching.probe_environment(os.environ),
        )
        try:
            self._require_answer(probe, process, state, deadline)
        finally:
            probe.kill()
            probe.communicate()

    def _require_answer(
        self,
        probe: subprocess.Popen[str],
        process: subprocess.Popen[bytes],
        state: ServerState,
        deadline: float,
    ) -> None:
        assert probe.stdin is not None  # noqa: S101  (it is a pipe)
        probe.stdin.write(f"{state.url_with_token}\n")
        probe.stdin.flush()
        while probe.poll() is None:
            self._require_life(process, deadline)
            time.sleep(0.1)
        if probe.returncode:
            said = (probe.communicate()[1].strip().splitlines() or ["nothing"])[-1]
            raise SparkServerError(f"the Spark server did not answer a query; its client: {said}")

    def _require_life(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        if process.poll() is not None:
            raise SparkServerError(
                "the Spark server ended as soon as it had started; the end of its log, "
                f"{self.folder.log}:\n{last_lines(self.folder.log)}"
            )
        if time.monotonic() > deadline:
            raise SparkServerError(
                f"the Spark server did not answer in {START_TIMEOUT_S:.0f} s and was ended; the "
                f"end of its log, {self.folder.log}:\n{last_lines(self.folder.log)}"
            )

    @contextmanager
    def _alone(self, say: Say) -> Iterator[None]:
        """Two that start at the same time: the second waits, and finds the first one's server."""
        self.folder.path.mkdir(parents=True, exist_ok=True)
        with (self.folder.path / "spark.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("another process is starting it; waiting for that …")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def last_lines(log: Path, count: int = LOG_LINES) -> str:
    """What a log says last, without the places in the code that led there."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    telling = [line for line in lines if line.strip() and not line.lstrip().startswith("at ")]
    return "\n".join(f"  {line}" for line in telling[-count:])

"""Dagster as it is deployed: code server, webserver and daemons, each to be killed alone."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Self

from dagster_bus.core.closing import Closing
from tests.support.dagster_dev import free_ports, wait_for

Process = subprocess.Popen[bytes]

WORKSPACE = ("-w", "workspace.yaml")


class Deployment(Closing):
    """A project's processes. `dagster dev` would end with its daemon; here the others live on."""

    def __init__(self, project: Path, module: str) -> None:
        self._project = project
        self._module = module
        self._code, self._web = free_ports(2)
        self._processes: list[Process] = []
        self._numbers = count()
        self.url = f"http://127.0.0.1:{self._web}"

    def start(self) -> None:
        """Start all but a daemon, and return when they answer."""
        code = ("dagster", "api", "grpc", "-h", "127.0.0.1", "-p", str(self._code))
        self._serve(self._code, *code, "-m", self._module, "-d", str(self._project))
        web = ("dagster_webserver", "-h", "127.0.0.1", "-p", str(self._web))
        self._serve(self._web, *web, *WORKSPACE)

    def start_daemon(self) -> Process:
        return self._start("dagster._daemon", "run", *WORKSPACE)

    def kill(self, process: Process) -> None:
        """End one of them without a warning."""
        process.kill()
        process.wait()
        self._processes.remove(process)

    def close(self) -> None:
        """End all of them, with the runs that the code server has started."""
        processes, self._processes = self._processes, []
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in processes:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
            for process in processes:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(10)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def _start(self, *command: str) -> Process:
        with (self._project / f"process-{next(self._numbers)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=self._project,
                env={
                    **os.environ,
                    "DAGSTER_HOME": str(self._project),
                    "POST_PORT": str(self._code),
                },
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def _serve(self, port: int, *command: str) -> None:
        """Start a process that serves at a port, and return when it does."""
        process = self._start(*command)

        def answers() -> bool:
            assert process.poll() is None, f"{command} has ended; its log is in {self._project}"
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        wait_for("answer", answers, seconds=120)

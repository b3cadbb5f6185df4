"""Processes by their number, without mistaking one for another that got the number later."""

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
GENTLE_S = 15.0
FORCED_S = 10.0


def birth_of(pid: int) -> str | None:
    """A text that no other process with this number has had or will have; None if it is gone.

    A process that has ended and that nobody has asked about yet counts as gone."""
    return _from_proc(pid) if (PROC / "self" / "stat").exists() else _from_ps(pid)


def end(pid: int, birth: str) -> bool:
    """End a process: gently, and then for good. False if it was gone before."""
    if birth_of(pid) != birth:
        return False
    for number, patience_s in ((signal.SIGTERM, GENTLE_S), (signal.SIGKILL, FORCED_S)):
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            if birth_of(pid) != birth:
                _bury(pid)
                return True
            time.sleep(0.05)
    return True


def _bury(pid: int) -> None:
    """If it was a child of this process, the kernel keeps its entry until somebody asks."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _from_proc(pid: int) -> str | None:
    try:
        stat = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        boot = (PROC / "sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()  # the name before may contain anything
    return None if state in "ZX" else f"{boot}:{fields[18]}"


def _from_ps(pid: int) -> str | None:
    said = subprocess.run(  # noqa: S603  (a number is all that is put in)
        ["ps", "-o", "state=,lstart=", "-p", str(pid)],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C", "TZ": "UTC"},
    )
    state, _, started = said.stdout.strip().partition(" ")
    return None if not started or state.startswith("Z") else started.strip()

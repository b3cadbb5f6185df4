"""What forks the Python workers of a warm server, and ends when nobody needs them any more.

For each session a Spark server starts some Python processes, which fork workers, and it never ends
them: a server that lives for hours would fill the memory. Spark lets one name the module they run.
This one does what Spark's own does, and looks once a second whether the session was closed by its
client (a file then has its name), or whether no worker was needed for long (the client died).
Should Spark want a process that is gone, it starts another.
"""

import os
import signal
import time
from pathlib import Path
from types import FrameType

ENDED_SESSIONS = "DAGSTER_BUS_ENDED_SESSIONS"
SESSION = "SPARK_JOB_ARTIFACT_UUID"
IDLE_S = 300.0
LOOK_EVERY_S = 1.0


class Watch:
    """Ends this process when its session is over."""

    def __init__(self, ended: Path | None, idle_s: float = IDLE_S) -> None:
        self._ended = ended
        self._idle_s = idle_s
        self._busy = time.monotonic()

    def begin(self) -> None:
        """A timer, not a thread: a process that forks must have no threads. Forks don't inherit
        it."""
        signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, LOOK_EVERY_S, LOOK_EVERY_S)

    def _look(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_over():
            os.kill(os.getpid(), signal.SIGTERM)  # Spark's own way: the workers end too

    def is_over(self) -> bool:
        if self._ended is not None and self._ended.exists():
            return True
        now = time.monotonic()
        if _has_children():
            self._busy = now
        return now - self._busy > self._idle_s


def _has_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def main() -> None:
    from pyspark.daemon import manager

    folder, session = os.environ.get(ENDED_SESSIONS), os.environ.get(SESSION)
    Watch(Path(folder, session) if folder and session else None).begin()
    manager()


if __name__ == "__main__":
    main()

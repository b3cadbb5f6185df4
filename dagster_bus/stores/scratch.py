"""Folders for files that are needed only while a process works with them.

Each belongs to the process that holds its lock, which the system lets go when the process dies,
however that happens. Whoever makes a folder removes those that nobody holds any more.

    ROOT/lock           held for a moment, while folders are made and removed
    ROOT/NAME.lock      held for as long as the folder is needed
    ROOT/NAME/          the files
"""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO
from uuid import uuid4

LOCK = ".lock"


@contextmanager
def scratch_folder(root: Path) -> Iterator[Path]:
    """An empty folder under a root, which goes with all that is in it when the block ends."""
    root.mkdir(exist_ok=True)
    folder = root / uuid4().hex
    with ExitStack() as held:
        with (root / "lock").open("ab") as alone:
            _lock(alone)
            _sweep(root)
            _lock(held.enter_context(_lock_of(folder).open("ab")))
        try:
            folder.mkdir()
            yield folder
        finally:
            _remove(folder)


def _sweep(root: Path) -> None:
    """Remove the folders of processes that are gone."""
    for file in root.glob(f"*{LOCK}"):
        if _is_free(file):
            _remove(file.with_suffix(""))


def _is_free(file: Path) -> bool:
    with suppress(OSError), file.open("ab") as lock:
        return _lock(lock, wait=False)
    return False


def _remove(folder: Path) -> None:
    """The lock goes last: as long as it is there, the folder is found."""
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        _lock_of(folder).unlink(missing_ok=True)


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}{LOCK}")


def _lock(file: IO[bytes], *, wait: bool = True) -> bool:
    import fcntl  # Windows has none; there nothing is staged

    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

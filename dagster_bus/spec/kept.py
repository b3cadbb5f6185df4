"""The file as it was last read, for those who ask again and again: ticks, runs, a server.

It is read anew as soon as it, a document that it names, or a variable in it has changed.
"""

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dagster_bus.spec.load import LoadedSpec, load_spec

MOST = 8
"""Files that are kept; a process hardly ever has two."""

SETTLED_NS = 2_000_000_000
"""A file that was written more recently than that may change once more without showing it: file
systems count time in steps."""

Stamp = tuple[tuple[int, ...], ...]
"""Of each file its times, its size and its place on the disk; of one that is not there nothing.
Tools may set the time of a file's words, and nobody that of its last change."""


@dataclass(frozen=True, slots=True)
class _Kept:
    loaded: LoadedSpec
    files: tuple[Path, ...]
    stamp: Stamp
    variables: dict[str, str | None]

    def holds(self) -> bool:
        return self.stamp == _stamp(self.files) and all(
            os.environ.get(name) == value for name, value in self.variables.items()
        )


_kept: dict[Path, _Kept] = {}
_reading = threading.Lock()


def kept_spec(path: str | Path) -> LoadedSpec:
    """As `load_spec`, and the same object as the last time if nothing has changed."""
    file = Path(path).absolute()
    with _reading:
        found = _kept.get(file)
        if found is not None and found.holds():
            return found.loaded
        _kept.pop(file, None)
        return _read(file, path)


def _read(file: Path, path: str | Path) -> LoadedSpec:
    """A file, by the name that messages give it."""
    began_ns = time.time_ns()
    before, environ = _stamp([file]), _Environ()
    loaded = load_spec(path, environ)
    documents = tuple(_documents(loaded))
    stamp = before + _stamp(documents)
    if all(began_ns - max(words, change) > SETTLED_NS for words, change, *_ in stamp):
        while len(_kept) >= MOST:
            _kept.pop(next(iter(_kept)))
        _kept[file] = _Kept(loaded, (file, *documents), stamp, environ.asked)
    return loaded


class _Environ(Mapping[str, str]):
    """The environment, and what it was asked for."""

    def __init__(self) -> None:
        self.asked: dict[str, str | None] = {}

    def __getitem__(self, name: str) -> str:
        self.asked[name] = os.environ.get(name)
        return os.environ[name]

    def __iter__(self) -> Iterator[str]:
        return iter(os.environ)

    def __len__(self) -> int:
        return len(os.environ)


def _documents(loaded: LoadedSpec) -> Iterator[Path]:
    """The files that schemas are declared in."""
    for topic in loaded.spec.topics.values():
        if topic.schema_ is not None:
            for each in (topic.schema_, *topic.schema_.versions.values()):
                if each.json_schema is not None:
                    yield loaded.folder / each.json_schema


def _stamp(files: Iterable[Path]) -> Stamp:
    found = []
    for file in files:
        try:
            about = file.stat()
        except OSError:
            continue
        times = (about.st_mtime_ns, about.st_ctime_ns)
        found.append((*times, about.st_size, about.st_ino, about.st_dev))
    return tuple(found)

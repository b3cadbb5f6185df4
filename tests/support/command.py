"""The command line as a shell sees it, without paying for the start of Python each time.

A server has the command's modules loaded and nothing done yet. For every call it forks a process,
which has its own folder, environment, streams and exit code, as one that a shell starts. Tests that
need a terminal, a signal or a pipe start `COMMAND` themselves, and so from scratch.

python -m tests.support.command
    the server: reads calls as lines of JSON, and answers each with its exit code
"""

import gc
import json
import os
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO

from dagster_bus.cli.main import main

COMMAND = Path(sys.executable).parent / "dagster-bus"
PROJECT = Path(__file__).parents[2]
STORES = ("dagster_bus.stores.sqlite.store", "dagster_bus.stores.mongo.store")
STREAMS = ("stdin", "stdout", "stderr")


def call(folder: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Call the command in a folder."""
    with TemporaryDirectory() as streams:
        files = [Path(streams, name) for name in STREAMS]
        files[0].write_text(stdin, encoding="utf-8")
        request = {
            "folder": str(folder),
            "words": words,
            "environ": {**os.environ, "COLUMNS": "160"},
            "streams": [str(file) for file in files],
        }
        code = _ask(json.dumps(request))
        out, err = (file.read_text(encoding="utf-8") for file in files[1:])
    return subprocess.CompletedProcess(words, code, out, err)


def _ask(request: str) -> int:
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(f"{request}\n")
    server.stdin.flush()
    return int(server.stdout.readline())


@cache
def _server() -> "subprocess.Popen[str]":
    """One for all calls of this process. It ends when nobody can call it any more."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.command"],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def close() -> None:
    """End the server, if there is one."""
    if _server.cache_info().currsize:
        _server().communicate()
        _server.cache_clear()


def pytest_sessionfinish() -> None:
    close()


def become_the_command(requests: TextIO, answers: TextIO) -> bool:
    """True in a process that is to run the command; False in the server, at its end."""
    for line in requests:
        if pid := os.fork():
            _, status = os.waitpid(pid, 0)
            print(os.waitstatus_to_exitcode(status), file=answers, flush=True)
            continue
        call = json.loads(line)
        os.close(requests.fileno())
        os.close(answers.fileno())
        for number, file in enumerate(call["streams"]):
            os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), number)
        os.chdir(call["folder"])
        os.environ.clear()
        os.environ.update(call["environ"])
        sys.argv = ["dagster-bus", *call["words"]]
        return True
    return False


if __name__ == "__main__":
    for store in STORES:
        import_module(store)
    gc.freeze()  # what is shared is not looked through in every process
    own = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    if become_the_command(*own):
        main()

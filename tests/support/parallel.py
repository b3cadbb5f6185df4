"""The order of the tests, and how several processes share them.

Processes (`-n 2`, as `make test` has it) take whole files, so that what a file needs is started
once. One process alone begins with what is fast. Several begin with what mostly waits, as for
Dagster's daemon, while the others compute.
"""

import re
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

TESTS = Path(__file__).parents[1]

FAST_FIRST = ["unit", "contract", "simulation", "integration", "acceptance", "browser"]
WAITING_FIRST = ["acceptance", "browser", "integration", "simulation", "contract", "unit"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    order = WAITING_FIRST if hasattr(config, "workerinput") else FAST_FIRST
    items.sort(key=lambda item: order.index(item.path.relative_to(TESTS).parts[0]))


class FileByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives the next file to whoever is free; of the acceptance tests those of a folder, or of a
    file, that share a Dagster on a kind of store."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = nodeid.partition("::")[0]
        store = re.search(r"acceptance/.*\[(\w+)\]$", nodeid)
        if store is None:
            return file
        folder, _, _ = file.rpartition("/")
        shared = file if folder.endswith("acceptance") else folder
        return f"{shared} on {store[1]}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileByFile:
    config.option.loadscopereorder = False  # not the files with the most tests first
    return FileByFile(config, log)

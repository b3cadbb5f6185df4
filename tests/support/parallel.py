"""The order of the tests, and how several processes share them.

Processes (`-n 2`, as `make test` has it) take whole files, so that what a file needs is started
once. One process alone begins with what is fast. Several begin with what mostly waits, as for
Dagster's daemon, while the others compute.
"""

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


BY_STORE = ("tests/acceptance/shop/", "tests/acceptance/test_daemons.py")
"""What starts a Dagster for each kind of store: the tests of one go together."""


class FileByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives the next file to whoever is free."""

    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.partition("::")
        for shared in BY_STORE:
            if nodeid.startswith(shared):
                return f"{shared}[{test.partition('[')[2]}"
        return str(file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileByFile:
    config.option.loadscopereorder = False  # not the files with the most tests first
    return FileByFile(config, log)

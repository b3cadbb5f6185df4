"""The projects of the acceptance tests, as folders that Dagster can run in."""

import shutil
from pathlib import Path

from tests.conftest import new_store_url

PROJECTS = Path(__file__).parents[1] / "projects"


def copy_project(name: str, folder: Path, store: str) -> Path:
    """A project in a folder of its own, on an empty store of a kind; its `topics.yaml`."""
    shutil.copytree(
        PROJECTS / name, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    file = folder / "topics.yaml"
    text = file.read_text(encoding="utf-8")
    url = new_store_url(store, folder, keep=True)
    file.write_text(text.replace("sqlite:///bus.db", f'"{url}"'), encoding="utf-8")
    return file

"""The files of a starter project, and how they get into a folder.

Python files are kept as text, as they are no part of this package."""

import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from dagster_bus.errors import UsageError
from dagster_bus.spec.json_schema import json_schema

TEMPLATES = {
    "topics.yaml": "topics.yaml",
    "definitions/__init__.py": "definitions.py.txt",
    "definitions/pipelines.py": "pipelines.py.txt",
    "workspace.yaml": "workspace.yaml",
    ".gitignore": "gitignore.txt",
}
"""Files of a project, and what they are made from."""

PIPELINES = "definitions.pipelines"
"""The module that the starter's group names."""


def starter() -> dict[str, str]:
    """The files of a starter project by name."""
    files = {name: _template(kept) for name, kept in TEMPLATES.items()}
    return {**files, "topics.schema.json": _schema()}


def folder_starter(module: str) -> dict[str, str]:
    """The files of a single folder, which Python knows by the name of a module."""
    return {
        "topics.yaml": _template("topics.yaml").replace(PIPELINES, f"{module}.pipelines"),
        "pipelines.py": _template("pipelines.py.txt"),
        ".gitignore": _template("gitignore.txt"),
        "topics.schema.json": _schema(),
    }


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """All of the files, or none of them. Raises UsageError if one cannot be written."""
    written: list[Path] = []
    try:
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                written.append(path)
                file.write(text)
    except OSError as error:
        for path in written:
            path.unlink()
        raise UsageError(f"cannot write {error.filename or folder}: {error.strerror}") from None


def _template(name: str) -> str:
    return (resources.files(__name__) / name).read_text("utf-8")


def _schema() -> str:
    return f"{json.dumps(json_schema(), ensure_ascii=False, indent=2)}\n"

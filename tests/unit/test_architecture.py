"""The layers, as they may import each other, and what importing costs."""

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dagster_bus
from dagster_bus import errors

PACKAGE = Path(dagster_bus.__file__).parent

MAY_IMPORT = {
    "errors": set(),
    "core": {"errors"},
    "schemas": {"errors", "core"},
    "stores": {"errors", "core"},
    "spec": {"errors", "core", "schemas"},
    "live": {"errors", "core"},
    "opening": {"errors", "core", "stores", "schemas", "spec", "live"},
    "connectors": {"errors", "core"},
    "templates": {"errors", "core", "schemas", "spec"},
    "spark": {"errors", "core", "stores", "schemas", "spec", "opening"},
    "orchestration": {
        *("errors", "core", "stores", "schemas", "spec", "templates"),
        *("opening", "spark"),
    },
    "cli": {
        *("errors", "core", "stores", "schemas", "spec", "templates"),
        *("opening", "connectors", "live", "spark"),
    },
    "__init__": {"errors", "core", "opening", "orchestration"},
}
ONLY_IN = {
    "dagster": {"orchestration"},
    "dagster_pyspark": {"orchestration"},
    "pyspark": {"spark"},
    "deltalake": {"spark"},
    "pydantic": {"spec", "schemas", "orchestration"},
    "pydantic_core": {"spec", "schemas"},
    "jsonschema_rs": {"schemas"},
    "pymongo": {"stores"},
    "bson": {"stores"},
    "orjson": {"core", "connectors", "stores"},
    "yaml": {"spec"},
    "sqlite3": {"stores"},
    "pyarrow": {"spark", "stores"},
    "click": {"cli"},
    "rich": {"cli"},
}
HEAVY = ["dagster", "pyspark", "pymongo", "pydantic", "starlette", "pyarrow", "sqlite3", "yaml"]


def imports() -> Iterator[tuple[str, Path, str]]:
    """Each import of the package: the layer it stands in, its file, and the module imported."""
    for file in sorted(PACKAGE.rglob("*.py")):
        layer = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from ((layer, file, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{file}: imports are written in full"
                module = node.module or ""
                names = [f"{module}.{alias.name}" for alias in node.names]
                yield from ((layer, file, name) for name in names)


def test_every_layer_imports_only_what_lies_below_it() -> None:
    wrong = []
    for layer, file, module in imports():
        parts = module.split(".")
        if parts[0] != "dagster_bus" or parts[1] == layer:
            continue
        if parts[1] not in MAY_IMPORT[layer]:
            wrong.append(f"{file.relative_to(PACKAGE)} imports {module}")
    assert wrong == []


def test_each_library_is_known_to_its_own_layer_only() -> None:
    wrong = [
        f"{file.relative_to(PACKAGE)} imports {module}"
        for layer, file, module in imports()
        if layer not in ONLY_IN.get(module.split(".")[0], {layer})
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "module",
    ["dagster_bus", "dagster_bus.core.bus", "dagster_bus.core.lease", "dagster_bus.schemas"],
)
def test_importing_the_core_brings_in_no_heavy_library(module: str) -> None:
    code = f"import sys, {module}; print([m for m in {HEAVY} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_command_line_starts_without_dagster_and_spark() -> None:
    code = (
        "import sys, dagster_bus.cli.main; "
        "print([m for m in ('dagster', 'pyspark', 'pyarrow', 'deltalake') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    assert sorted(dagster_bus.__all__) == dagster_bus.__all__
    for name in dagster_bus.__all__:
        assert getattr(dagster_bus, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = dagster_bus.nonsense


@pytest.mark.parametrize("missing", ["dagster", "dagster_pyspark", "pyspark"])
def test_names_that_cannot_be_had_are_not_listed(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    assert set(dagster_bus.__all__) <= set(dir(dagster_bus))
    monkeypatch.setitem(sys.modules, missing, None)
    listed = set(dir(dagster_bus)) & set(dagster_bus.__all__)
    assert listed == {"Bus", "BusError", "Event", "Message", "Published"}


def test_every_error_stands_in_the_tree_and_says_what_it_means() -> None:
    drawn = errors.__doc__ or ""
    for name, kind in inspect.getmembers(errors, inspect.isclass):
        if issubclass(kind, Exception):
            assert issubclass(kind, errors.BusError), name
            assert re.search(rf"\b{name}\b", drawn), f"{name} is missing from the drawing"
            assert kind.__doc__, name


def test_modules_stay_readable() -> None:
    long = [
        f"{file.relative_to(PACKAGE)}: {lines} lines"
        for file in PACKAGE.rglob("*.py")
        if (lines := len(file.read_text(encoding="utf-8").splitlines())) > 400
    ]
    assert long == []

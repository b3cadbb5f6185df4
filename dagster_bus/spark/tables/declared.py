"""The tables that `topics.yaml` declares."""

from collections.abc import Iterator

from deltalake.exceptions import TableNotFoundError

from dagster_bus.errors import UnknownGroup, UsageError
from dagster_bus.spark.session import spelled
from dagster_bus.spark.tables.reading import contents
from dagster_bus.spark.tables.storage import Storage, secrets_kept
from dagster_bus.spark.tables.table import Table
from dagster_bus.spec.loaded import LoadedSpec


def declared_table(loaded: LoadedSpec, group: str) -> Table:
    """A group's table. Raises UsageError if it has none."""
    if group not in loaded.spec.groups:
        known = ", ".join(loaded.spec.groups) or "none"
        raise UnknownGroup(f"group {group!r} is not declared (declared: {known})")
    spec = loaded.spec.groups[group].table
    if spec is None:
        raise UsageError(f"group {group!r} has no table")
    options = {name: spelled(value) for name, value in spec.options.items()}
    return Table(loaded.table_path(group), spec.format, options)


def tables_at(table: Table) -> list[Table]:
    """A table, and those inside its folder that several results of a pipeline have made."""
    named = [each for each in map(table.named, _folders(table)) if _exists(each)]
    return [*([table] if _exists(table) or not named else []), *named]


def _folders(table: Table) -> Iterator[str]:
    try:
        with secrets_kept(table):
            found = Storage(table).folders()
    except TableNotFoundError:
        return
    yield from (name for name in found if name[0] not in "._")


def _exists(table: Table) -> bool:
    return contents(table).columns is not None

"""`dagster-bus tables`: what groups' tables hold, and looking after them

Spark's side of the bus is imported only when one of these commands runs; a Spark session is not
needed.
"""

from collections.abc import Iterator
from dataclasses import asdict
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from dagster_bus.cli.asking import ask, yes_option
from dagster_bus.cli.options import DURATION, json_option
from dagster_bus.cli.output import counted, print_json, print_rows
from dagster_bus.errors import UsageError
from dagster_bus.opening import Bus
from dagster_bus.spec.load import load_spec
from dagster_bus.spec.loaded import LoadedSpec

if TYPE_CHECKING:
    from dagster_bus.spark import tables as spark_tables


class _ListsByDefault(click.Group):
    """Whatever is no command names a group whose table is to be listed."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        known = bool(args) and args[0] in {*self.commands, *context.help_option_names}
        return super().parse_args(context, args if known else ["list", *args])


@click.group(cls=_ListsByDefault)
def tables() -> None:
    """Look at the tables of groups, and look after their files.

    `dagster-bus tables GROUP` is short for `dagster-bus tables list GROUP`."""


@tables.command("list")
@click.argument("groups", nargs=-1, metavar="[GROUP]...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with each window.")
@click.pass_obj
def list_(file: str, groups: tuple[str, ...], as_json: bool) -> None:
    """Show the tables of all groups, or of those named: where they are, and what they take up."""
    loaded = load_spec(file)
    names = groups or [name for name, spec in loaded.spec.groups.items() if spec.table]
    told = [each for name in names for each in _told(loaded, name)]
    if as_json:
        print_json(told)
        return
    rows = [{**each, "windows": len(each["windows"])} for each in told]
    print_rows(rows, empty="no group has a table")


@tables.command()
@click.argument("group")
@click.option("--window", metavar="KEY", help="Join the files of this window only.")
@click.option(
    "--retention",
    type=DURATION,
    default="7d",
    show_default=True,
    help="Keep files that readers may still have in view for so long.",
)
@json_option
@yes_option
@click.pass_obj
def maintain(
    file: str, group: str, window: str | None, retention: int, as_json: bool, yes: bool
) -> None:
    """Join the small files of GROUP's table, and remove those that nobody needs.

    Without --window the files of all windows but the newest are joined. What crashed runs have left
    behind is removed too; runs may be under way meanwhile."""
    loaded = load_spec(file)
    library = _library()
    chosen = library.tables_at(library.declared_table(loaded, group))
    if window is not None:
        _require_window(chosen, window)
    ask(f"Join files of {chosen[0].path}, and remove those that are not needed?", yes)
    with Bus.open(file, create=False) as bus:
        busy = [delivery.id for delivery in bus.group(group).open_deliveries()]
    done = [
        (table, library.maintain(table, window=window, retention_ms=retention, busy=busy))
        for table in chosen
    ]
    if as_json:
        print_json([{"table": table.path, **asdict(each)} for table, each in done])
        return
    for table, each in done:
        click.echo(
            f"{table.path}: {counted(each.files_before, 'file')} became {each.files_after:,} "
            f"({each.bytes:,} bytes); {counted(each.removed, 'unneeded file')} removed"
        )


def _told(loaded: LoadedSpec, group: str) -> Iterator[dict[str, Any]]:
    library = _library()
    for table in library.tables_at(library.declared_table(loaded, group)):
        windows = library.describe_windows(table)
        yield {
            "group": group,
            "format": table.format,
            "windows": [asdict(each) for each in windows],
            "files": sum(each.files for each in windows),
            "bytes": sum(each.bytes for each in windows),
            "path": table.path,
        }


def _require_window(chosen: list["spark_tables.Table"], window: str) -> None:
    found = {each.window for table in chosen for each in _library().describe_windows(table)}
    if window not in found:
        newest = f"; the newest is {max(found)}" if found else ", as it is empty"
        raise UsageError(f"the table {chosen[0].path} has no window {window}{newest}")


def _library() -> ModuleType:
    """The part of the bus that knows tables, if what it needs is installed."""
    try:
        from dagster_bus.spark import tables as found
    except ModuleNotFoundError as missing:
        raise UsageError(
            f"this needs {missing.name}, which is not installed: pip install 'dagster-bus[spark]'"
        ) from None
    return found

"""The entry point: shared options, and errors turned into messages and exit codes.

Exit codes: 0 done, 1 failed, 2 store not found, 3 event not found, 4 bad arguments, 5 dropped as a
duplicate.
"""

import sys
from io import TextIOWrapper

import click

from dagster_bus.cli.dlq import dlq
from dagster_bus.cli.groups import groups, resume
from dagster_bus.cli.init import init
from dagster_bus.cli.lag import lag
from dagster_bus.cli.output import complain, stop_speaking
from dagster_bus.cli.publish import publish
from dagster_bus.cli.queue import ack, ack_all, check, read
from dagster_bus.cli.replay import replay
from dagster_bus.cli.seek import seek
from dagster_bus.cli.spark import spark
from dagster_bus.cli.status import status
from dagster_bus.cli.tables import tables
from dagster_bus.cli.tail import tail
from dagster_bus.cli.topics import prune, topics
from dagster_bus.cli.transfer import export, import_
from dagster_bus.cli.validate import validate
from dagster_bus.cli.work import work
from dagster_bus.errors import BusError, SpecError

BAD_ARGUMENTS = 4


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-f",
    "--file",
    default="topics.yaml",
    show_default=True,
    help="The file that declares topics and groups.",
)
@click.version_option(package_name="dagster-bus")
@click.pass_context
def commands(context: click.Context, file: str) -> None:
    """A durable event bus that starts PySpark runs in Dagster."""
    context.obj = file


for _command in (
    *(init, validate, publish, tail, topics, export, import_, prune),
    *(groups, status, lag, seek, replay, resume, dlq),
    *(check, read, ack, ack_all, work, tables, spark),
):
    commands.add_command(_command)


def main() -> None:
    """Run a command; say what is wrong in one line, and exit with the code that fits."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without Unicode is no reason to fail
    try:
        code = commands.main(prog_name="dagster-bus", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except click.ClickException as error:
        error.show()
        sys.exit(BAD_ARGUMENTS)
    except OSError as error:
        if sys.stdout is not None:
            stop_speaking()
        complain(f"reading or writing failed: {error.strerror}")
        sys.exit(1)
    except click.Abort:
        complain("stopped")
        sys.exit(1)
    except SpecError as error:
        click.echo(str(error), err=True)
        sys.exit(error.exit_code)
    except BusError as error:
        complain(str(error))
        sys.exit(error.exit_code)

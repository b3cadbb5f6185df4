"""`dagster-bus spark`: a Spark server that stays warm while one develops."""

import time
from typing import TYPE_CHECKING

import click

from dagster_bus.cli.options import json_option
from dagster_bus.cli.output import as_age, as_second, print_json
from dagster_bus.core.clock import system_clock
from dagster_bus.errors import UsageError
from dagster_bus.spec.load import load_spec

if TYPE_CHECKING:
    from dagster_bus.spark.server import SparkServer
    from dagster_bus.spark.warm import ServerState


@click.group()
def spark() -> None:
    """Keep a Spark server warm on this machine, so that runs start in a second or two."""


@spark.command()
@click.option("--port", type=click.IntRange(1, 65_535), help="Its port; any free one if left out.")
@click.pass_obj
def start(file: str, port: int | None) -> None:
    """Start the server for this project, and wait until it answers.

    It has the settings of the file's `spark`, listens on loopback only, and is used by every run
    that the file asks for. It stays until it is stopped."""
    server = _server(file)
    if (running := server.running()) is not None:
        click.echo(f"a Spark server runs already: process {running.pid}, {running.url}")
        _say_differences(server, running)
        return
    began = time.monotonic()
    state = server.start(port, lambda line: click.echo(line, err=True))
    took = time.monotonic() - began
    click.echo(f"a Spark server runs at {state.url}, process {state.pid}; it took {took:.1f} s")
    click.echo("runs use it from now on; end it with: dagster-bus spark stop")


@spark.command()
@click.pass_obj
def stop(file: str) -> None:
    """End the server of this project. Runs that use it fail, and are tried again."""
    server = _server(file, any_master=True)
    known = server.folder.read()
    if (ended := server.stop()) is not None:
        click.echo(f"the Spark server, process {ended.pid}, has ended")
    elif known is not None:
        click.echo(f"no Spark server runs: process {known.pid} was gone already")
    else:
        click.echo("no Spark server runs")


@spark.command()
@json_option
@click.pass_obj
def status(file: str, as_json: bool) -> None:
    """Show whether the server of this project runs, where, and since when."""
    server = _server(file, any_master=True)
    state, known = server.running(), server.folder.read()
    if as_json:
        print_json(_as_data(server, state))
    elif state is not None:
        age = as_age(system_clock() - state.started_ms)
        since = f"since {as_second(state.started_ms)} UTC ({age})"
        what = "runs" if state.ready else "is starting"
        click.echo(f"a Spark server {what} at {state.url}: process {state.pid}, {since}")
        click.echo(f"its log: {server.folder.log}")
        _say_differences(server, state)
    elif known is not None:
        click.echo(f"no Spark server runs: process {known.pid} has ended without dagster-bus")
    else:
        click.echo("no Spark server runs; start one with: dagster-bus spark start")


def _as_data(server: "SparkServer", state: "ServerState | None") -> dict[str, object]:
    if state is None:
        return {"running": False}
    return {
        "running": True,
        "ready": state.ready,
        "pid": state.pid,
        "address": state.url,
        "since_ms": state.started_ms,
        "version": state.version,
        "log": str(server.folder.log),
        "differs_in": server.differences(state),
    }


def _say_differences(server: "SparkServer", state: "ServerState") -> None:
    if differing := server.differences(state):
        click.echo(
            f"it is not used, as it was started with other settings: {', '.join(differing)}; "
            "run dagster-bus spark stop and dagster-bus spark start"
        )


def _server(file: str, *, any_master: bool = False) -> "SparkServer":
    from dagster_bus.spark.server import SparkServer
    from dagster_bus.spark.session import MASTER, REMOTE, is_local, session_config

    loaded = load_spec(file)
    config = session_config(loaded.spec.spark)
    if not any_master and not is_local(config):
        raise UsageError(
            f"only a local master can be kept warm here, and {file} asks for "
            f"{config.get(REMOTE) or config[MASTER]}, which runs elsewhere"
        )
    return SparkServer(loaded.folder, config)

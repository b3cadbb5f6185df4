"""`dagster-bus work`"""

import importlib
import signal
import sys
import time
from pathlib import Path
from types import FrameType, ModuleType

import click

from dagster_bus.cli.output import counted
from dagster_bus.errors import BusError, UsageError
from dagster_bus.live.registering import subscribe_marked
from dagster_bus.opening import Bus

REGISTER = "register"

LOOK_EVERY_S = 0.2
"""How often to look whether a signal has come."""


@click.command()
@click.argument("module")
@click.option(
    "--timeout",
    type=click.FloatRange(0),
    default=30.0,
    show_default=True,
    help="Seconds that handlers at work are waited for in the end.",
)
@click.pass_obj
def work(file: str, module: str, timeout: float) -> None:
    """Call the handlers of MODULE as events come, until Ctrl-C or SIGTERM.

    The module marks them with @dagster_bus.live.on("orders.*", group="mailer"), or has a function
    register(bus) that subscribes them."""
    handlers = _imported(module)
    stopped = _stop_signals()
    bus = Bus.open(file)
    try:
        made = _register(bus, handlers)
        click.echo(f"{counted(made, 'subscription')} of {module} at work; Ctrl-C ends")
        while not stopped:
            time.sleep(LOOK_EVERY_S)
    finally:
        bus.close(timeout)


def _imported(name: str) -> ModuleType:
    """A module of the present folder, or of the environment."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name and (name == missing.name or name.startswith(f"{missing.name}.")):
            raise UsageError(f"there is no module {name} here") from None
        raise UsageError(f"{name} cannot be imported: {missing}") from missing
    except Exception as error:
        raise UsageError(f"{name} cannot be imported: {_in_words(error)}") from error


def _register(bus: Bus, module: ModuleType) -> int:
    """Subscribe the handlers of a module; returns how many subscriptions there are."""
    subscribe_marked(bus, module)
    register = getattr(module, REGISTER, None)
    if callable(register):
        try:
            register(bus)
        except BusError:
            raise
        except Exception as error:
            text = f"{module.__name__}.{REGISTER} failed: {_in_words(error)}"
            raise UsageError(text) from error
    made = len(bus.subscriptions)
    if not made:
        raise UsageError(
            f"{module.__name__} has no handlers: mark functions with @dagster_bus.live.on(...), "
            f"or write a function {REGISTER}(bus)"
        )
    return made


def _stop_signals() -> list[int]:
    """Gets the number of the first SIGINT or SIGTERM; a second one ends the process as ever. It is
    no lock of any kind: a signal may come while whoever waits holds that."""
    stopped: list[int] = []

    def hear(number: int, _: FrameType | None) -> None:
        stopped.append(number)
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, hear)
    return stopped


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"

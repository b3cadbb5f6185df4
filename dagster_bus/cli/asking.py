"""Asking before something is deleted or done again."""

import sys

import click

from dagster_bus.errors import UsageError

yes_option = click.option("-y", "--yes", is_flag=True, help="Do it without asking.")


def ask(question: str, yes: bool) -> None:
    """Go on only if somebody agrees, or has done so with --yes."""
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(
            "nothing was changed: this asks first, and there is no terminal to ask on (add --yes)"
        )
    if not click.confirm(question, err=True):
        raise click.Abort

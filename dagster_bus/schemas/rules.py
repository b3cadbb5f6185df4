"""What a version of a schema asks of a payload: a fast answer, and the reasons for a no."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from dagster_bus.schemas.checks import Check, compile_check
from dagster_bus.schemas.explain import problems
from dagster_bus.schemas.tree import Struct


class Rules(NamedTuple):
    fits: Check
    problems: Callable[[Any], Iterator[str]]


def column_rules(columns: Struct) -> Rules:
    """A payload arrives in Spark with all that it says."""
    return Rules(compile_check(columns), lambda payload: problems(columns, payload))


def and_arrives(rules: Rules, columns: Struct) -> Rules:
    """Other rules, and after them those of the columns, if there are any.

    A schema language may be content with what Spark cannot read, such as 3.0 for an integer. A
    payload of null is left to it: that says nothing, and arrives as that."""
    if not columns.columns:
        return rules
    arrives = column_rules(columns)

    def fits(payload: Any) -> bool:
        return rules.fits(payload) and (payload is None or arrives.fits(payload))

    def told(payload: Any) -> Iterator[str]:
        if rules.fits(payload):
            return arrives.problems(payload)
        return rules.problems(payload)

    return Rules(fits, told)

"""What happens to payloads that do not fit their topic's schema: refused, or let pass and told."""

import logging
import threading
from collections.abc import Sequence
from typing import Any

from dagster_bus.core.checking import PayloadSchema
from dagster_bus.core.topic import TopicConfig
from dagster_bus.errors import SchemaMismatch

log = logging.getLogger("dagster_bus")


class SchemaCheck:
    """A topic's schema, and a count of what did not fit it."""

    def __init__(self, topic: TopicConfig, schema: PayloadSchema) -> None:
        self._topic = topic.name
        self._has_tombstones = topic.compacted
        self._schema = schema
        self._lock = threading.Lock()
        self._misfits = 0

    @property
    def current(self) -> int:
        return self._schema.current

    def require(self, payloads: Sequence[Any], versions: Sequence[int]) -> None:
        """Raise SchemaMismatch for the first payload that does not fit, if the topic is strict;
        else warn."""
        problems = self._schema.problems_in(payloads, versions)
        if problems and self._has_tombstones:  # a null payload is no order, it deletes one
            problems = {at: said for at, said in problems.items() if payloads[at] is not None}
        if not problems:
            return
        place, problem = next(iter(sorted(problems.items())))
        if self._schema.strict:
            error = SchemaMismatch(f"the payload does not fit {self._topic}: {problem}")
            raise error.of_message(place, len(payloads)) if len(payloads) > 1 else error
        self._warn(len(problems), problem)

    def _warn(self, count: int, problem: str) -> None:
        """One line for the first misfit, the tenth, the hundredth: enough to be noticed."""
        with self._lock:
            before, self._misfits = self._misfits, self._misfits + count
            now = self._misfits
        if len(str(now)) > len(str(before)) or not before:
            log.warning(
                "%s: %d payloads so far do not fit the schema and were accepted (mode: "
                "permissive); the latest: %s",
                self._topic,
                now,
                problem,
            )

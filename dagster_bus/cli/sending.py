"""Publishing lines of a stream: what stands before a mistake is sent, and said to be."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from dagster_bus.core.event import Message, Published
from dagster_bus.errors import UsageError
from dagster_bus.opening import Bus

T = TypeVar("T")


class Mistake(NamedTuple):
    """A line that cannot be published, and why."""

    line: int
    error: UsageError

    def told(self, more: str) -> UsageError:
        """The error of a whole stream that ends at this line."""
        reason = self.error.reason or str(self.error)
        return type(self.error)(f"line {self.line}: {reason} ({more})")


def understood(
    lines: Iterable[tuple[int, bytes]], parse: Callable[[bytes], T]
) -> tuple[list[tuple[int, T]], Mistake | None]:
    """What numbered lines say, up to the first that cannot be understood."""
    found: list[tuple[int, T]] = []
    for number, text in lines:
        try:
            found.append((number, parse(text)))
        except UsageError as error:
            return found, Mistake(number, error)
    return found, None


def send(
    bus: Bus, topic: str, numbered: Sequence[tuple[int, Message]]
) -> tuple[list[Published], Mistake | None]:
    """Publish messages together, or if one of them is refused those before it."""
    messages = [message for _, message in numbered]
    mistake = None
    while messages or mistake is None:  # the first mistake found need not be the first there is
        try:
            return bus.publish_many(topic, messages), mistake
        except UsageError as error:
            index = error.index or 0
            mistake = Mistake(numbered[index][0], error)
            messages = messages[:index]
    return [], mistake

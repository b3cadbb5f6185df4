"""A text's events by libyaml, which is many times faster than the parser in `syntax`.

The two read nearly every text alike. Where they might not, and where libyaml finds a mistake, the
text is left to the other one. So what a file means, and what is said of it, is the same with and
without libyaml.
"""

import re
from collections.abc import Iterator

import yaml
from yaml.events import CollectionEndEvent, CollectionStartEvent, Event, ScalarEvent

from dagster_bus.spec.syntax import MAX_DEPTH

_READ_OTHERWISE = re.compile("[\t\ufeff]|[|>][-+0-9]*#")
"""What libyaml bears in places where the other parser has something against it."""


class Unsure(Exception):
    """The text is to be read by the other parser."""


def quick_events(text: str) -> Iterator[Event]:
    """The events of a text, one by one. Raises Unsure where it is not for libyaml."""
    if not yaml.__with_libyaml__ or _READ_OTHERWISE.search(text):
        raise Unsure
    depth = in_braces = 0
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            if isinstance(event, CollectionStartEvent):
                depth += 1
                in_braces += bool(in_braces or event.flow_style)
            elif isinstance(event, CollectionEndEvent):
                depth -= 1
                in_braces -= bool(in_braces)
            elif in_braces and isinstance(event, ScalarEvent) and _is_doubtful(event):
                raise Unsure
            if depth > MAX_DEPTH:
                raise Unsure
            yield event
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise Unsure from error


def _is_doubtful(event: ScalarEvent) -> bool:
    """Between braces or brackets, nothing at all, or a word that goes on behind a question mark."""
    return not event.style and (not event.value or "?" in event.value)

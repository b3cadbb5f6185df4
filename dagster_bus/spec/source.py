"""YAML as data with places: what each value is, and on which line and in which column it stands.

Events are read one by one, so that aliases and deep nesting are refused before anything is built
from them. Null has no meaning in the file: a key without a value is a mistake.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from dagster_bus.errors import Problem, SpecError
from dagster_bus.spec.hints import Path, dotted, shown
from dagster_bus.spec.libyaml import Unsure, quick_events
from dagster_bus.spec.scalars import checked_text, has_variables, plain, substituted
from dagster_bus.spec.syntax import events

Place = tuple[int, int]


@dataclass(slots=True)
class Source:
    """The data of a file, the place of every value, and the mistakes found while reading."""

    file: str
    data: Any = None
    places: dict[Path, Place] = field(default_factory=dict)
    """A single value's own place; for a list or a mapping that of its key."""
    keys: dict[Path, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    unreadable: set[Path] = field(default_factory=set)
    """Paths of values that could not be read, as a problem says already."""

    def problem(self, path: Path, message: str) -> Problem:
        """A mistake at a path, or at the nearest place above it that the file has."""
        return self._nearest(self.places, path, message)

    def key_problem(self, path: Path, message: str) -> Problem:
        """A mistake in the last key of a path, whatever its value is."""
        return self._nearest(self.keys, path, message)

    def _nearest(self, places: Mapping[Path, Place], path: Path, message: str) -> Problem:
        while path and path not in places:
            path = path[:-1]
        line, column = places.get(path, (1, 1))
        return Problem(self.file, line, column, message)


def read_source(text: str, file: str, environ: Mapping[str, str] | None = None) -> Source:
    """Parse YAML text. Raises SpecError if it is not YAML, or cannot be read to its end."""
    environ = os.environ if environ is None else environ
    return read_quickly(text, file, environ) or read_with_care(text, file, environ)


def read_quickly(text: str, file: str, environ: Mapping[str, str]) -> Source | None:
    """What a text without mistakes says, if it says something, and libyaml is sure of it."""
    source = Source(file)
    try:
        _Reader(quick_events(text), source, environ).document()
    except Unsure:
        return None
    return source if source.data and not source.problems else None


def read_with_care(text: str, file: str, environ: Mapping[str, str]) -> Source:
    source = Source(file)
    try:
        _Reader(events(text, file), source, environ).document()
    except SpecError as error:
        raise SpecError([*source.problems, *error.problems]) from None
    return source


class _Reader:
    """Turns events into data, noting places and mistakes on the way."""

    def __init__(self, events: Iterator[Event], source: Source, environ: Mapping[str, str]) -> None:
        self._source = source
        self._environ = environ
        self._events = events
        self._aliases: set[str] = set()

    def document(self) -> None:
        """The one document of the file; an empty file is a mapping without keys."""
        next(self._events)  # the stream's start
        if isinstance(next(self._events), StreamEndEvent):
            self._source.data = {}
            return
        root = next(self._events)
        self._source.places[()] = _place(root)
        value = self._value(root, ())
        self._source.data = {} if value is None else value
        next(self._events)  # the document's end
        if isinstance(after := next(self._events), DocumentStartEvent):
            self._complain(after, "a second document begins here (a file holds one; remove '---')")

    def _value(self, event: Event, path: Path) -> Any:
        """A value; None if there is none, or if it cannot be read."""
        if isinstance(event, AliasEvent):
            self._source.unreadable.add(path)
            self._refuse_alias(event)
            return None
        self._refuse_anchor(event)
        if tag := getattr(event, "tag", None):
            short = tag.replace("tag:yaml.org,2002:", "!!")
            self._unreadable(event, path, f"the tag {short} is not understood (remove it)")
            self._pass_over(event)
            return None
        if isinstance(event, ScalarEvent):
            return self._scalar(event, path)
        if isinstance(event, SequenceStartEvent):
            return self._list(path)
        return self._mapping(path)

    def _list(self, path: Path) -> list[Any]:
        data: list[Any] = []
        while not isinstance(event := next(self._events), SequenceEndEvent):
            inside = (*path, len(data))
            self._source.places[inside] = _place(event)
            data.append(self._value(event, inside))
            if data[-1] is None and inside not in self._source.unreadable:
                self._unreadable(event, inside, f"{dotted(path)}: an item has no value (remove it)")
        return data

    def _mapping(self, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        while not isinstance(key_event := next(self._events), MappingEndEvent):
            key = self._key(key_event, data)
            event = next(self._events)
            if key is None:
                self._pass_over(event)
                continue
            inside = (*path, key)
            self._source.keys[inside] = _place(key_event)
            is_single = isinstance(event, ScalarEvent) and event.value != ""
            self._source.places[inside] = _place(event if is_single else key_event)
            data[key] = self._value(event, inside)
            if data[key] is None and inside not in self._source.unreadable:
                advice = "write one, or remove the key; {} is an empty mapping"
                self._unreadable(key_event, inside, f"{dotted(inside)} has no value ({advice})")
        return data

    def _key(self, event: Event, data: Mapping[str, Any]) -> str | None:
        """A key that can be used, or None after saying why not."""
        if isinstance(event, AliasEvent):
            self._refuse_alias(event)
            return None
        self._refuse_anchor(event)
        if not isinstance(event, ScalarEvent):
            self._complain(event, "a key is a word, not a list or a mapping")
            self._pass_over(event)
            return None
        key = event.value
        if event.tag:
            self._complain(event, "tags are not understood (remove it)")
        elif key == "<<" and not event.style:
            self._complain(event, "merge keys (<<) are not understood (write the keys out)")
        elif has_variables(key):
            self._complain(event, f"{shown(key)}: variables stand in values, not in keys")
        elif key in data:
            self._complain(event, f"the key {shown(key)} stands here a second time")
        else:
            return self._checked_key(event)
        return None

    def _checked_key(self, event: ScalarEvent) -> str | None:
        try:
            return checked_text(event.value)
        except ValueError as error:
            self._complain(event, str(error))
            return None

    def _scalar(self, event: ScalarEvent, path: Path) -> Any:
        text = event.value
        try:
            if has_variables(text):
                text = substituted(text, self._environ)
            # Without quotes, what a variable holds is read as if it stood there.
            return plain(checked_text(text)) if not event.style else checked_text(text)
        except ValueError as error:
            self._unreadable(event, path, str(error))
            return None

    def _refuse_alias(self, event: AliasEvent) -> None:
        """Complains of each name once: a file may consist of aliases."""
        name = str(event.anchor)
        if name not in self._aliases:
            self._aliases.add(name)
            self._complain(event, f"the alias *{name} is not understood (write it out)")

    def _refuse_anchor(self, event: Event) -> None:
        if anchor := getattr(event, "anchor", None):
            self._complain(event, f"the anchor &{anchor} is not understood (remove it)")

    def _pass_over(self, event: Event) -> None:
        """Leave out a value that cannot be used, however large it is."""
        depth = 0
        while True:
            depth += isinstance(event, CollectionStartEvent)
            depth -= isinstance(event, CollectionEndEvent)
            if depth == 0:
                return
            event = next(self._events)

    def _unreadable(self, event: Event, path: Path, message: str) -> None:
        self._source.unreadable.add(path)
        self._complain(event, message)

    def _complain(self, event: Event, message: str) -> None:
        line, column = _place(event)
        self._source.problems.append(Problem(self._source.file, line, column, message))


def _place(event: Event) -> Place:
    mark: Any = event.start_mark  # the parser's own events all have one
    return mark.line + 1, mark.column + 1

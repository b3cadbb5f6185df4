"""The dead letters of a group: looking at them, sending them back, letting them go.

It needs only the store: a group's work may be broken, and its dead letters are there to be mended.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dagster_bus.core.clock import Clock
from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.encoding import encode_payload
from dagster_bus.core.event import uuid7
from dagster_bus.core.patching import Patch, patched
from dagster_bus.core.ranges import Place, covering, place_of
from dagster_bus.core.store import (
    Change,
    DeadLetter,
    LetterQuery,
    LetterState,
    Redrive,
    Store,
    Tally,
)
from dagster_bus.core.window import HOURLY, Windows
from dagster_bus.errors import StaleState, UnknownDeadLetter, UsageError

PAGE = 1_000
"""Letters that are read, sent back or deleted in one step."""

CheckPayload = Callable[[str, Any, int], None]
"""Raises SchemaMismatch if a payload does not fit its topic, in a version of its schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Which dead letters are meant: those that fit all that is said."""

    ids: tuple[int, ...] | None = None
    fingerprint: str | None = None
    topic: str | None = None
    died_from_ms: int | None = None
    died_before_ms: int | None = None


def choose(
    *,
    ids: Sequence[int] = (),
    fingerprint: str | None = None,
    topic: str | None = None,
    everything: bool = False,
) -> Chosen:
    """The letters that somebody means, who must say so in exactly one way."""
    by_error_or_topic = fingerprint is not None or topic is not None
    if sum((bool(ids), by_error_or_topic, everything)) != 1:
        raise UsageError("say which letters in one way: by ids, by fingerprint and topic, or all")
    return Chosen(ids=tuple(ids) or None, fingerprint=fingerprint, topic=topic)


class DeadLetters:
    """The inspector of one group's dead letters."""

    def __init__(
        self,
        group: str,
        store: Store,
        clock: Clock,
        *,
        max_events: int = PAGE,
        windows: Windows = HOURLY,
        check_payload: CheckPayload | None = None,
    ) -> None:
        self._group = group
        self._store = store
        self._clock = clock
        self._step = min(max_events, PAGE)
        self._windows = windows
        self._check_payload = check_payload

    def list(
        self,
        chosen: Chosen | None = None,
        *,
        state: LetterState | None = LetterState.DEAD,
        limit: int = 100,
        before: int | None = None,
    ) -> list[DeadLetter]:
        """The newest letters, from below an id on if one is given."""
        return self._store.dead_letters(self._query(chosen, state), limit=limit, before=before)

    def show(self, id: int) -> DeadLetter:
        """One letter, in whatever state. Raises UnknownDeadLetter."""
        found = self.list(Chosen(ids=(id,)), state=None, limit=1)
        if not found:
            raise UnknownDeadLetter(f"group {self._group} has no dead letter {id}")
        return found[0]

    def counts(self) -> dict[str, int]:
        """How many letters are dead, by error fingerprint, most first."""
        return self._store.dead_letter_counts(self._group)

    def number(self, chosen: Chosen, patch: Patch | None = None) -> int:
        """How many dead letters are meant. They are read if a patch is to be tried on them, or if
        it cannot be told without. Raises UsageError if the patch does not fit one of them."""
        if patch is None and chosen == Chosen(fingerprint=chosen.fingerprint):
            counts = self.counts()
            return counts.get(chosen.fingerprint, 0) if chosen.fingerprint else sum(counts.values())
        return sum(map(len, self.redrive(chosen, patch=patch, dry_run=True)))

    def redrive(
        self,
        chosen: Chosen | None = None,
        *,
        patch: Patch | None = None,
        per_second: float | None = None,
        dry_run: bool = False,
    ) -> Iterator[Sequence[DeadLetter]]:
        """Send letters back to the group, and to no other: they start afresh, with no errors.

        A patch changes the payloads, each of which must then fit its topic's schema: if one does
        not, its step is not done. `per_second` spreads the new deliveries over time. Yields the
        letters of each step, which is done as a whole when it is yielded; all that were dead when
        it began are gone through, newest first."""
        if per_second is not None and not per_second > 0:  # which is also true of what is no number
            raise UsageError(f"a rate is more than 0 a second, and not {per_second}")
        self._require_all(chosen)
        before: int | None = None
        sent = 0
        step = min(self._step, math.ceil(per_second)) if per_second else self._step
        while page := self.list(chosen, limit=step, before=before):
            before = page[-1].id
            due_ms = self._clock() + int(sent / per_second * 1_000 if per_second else 0)
            redrives = [self._redrive(letter, patch) for letter in page]
            if not dry_run:
                self._send(page, redrives, due_ms)
            sent += len(page)
            yield page

    def purge(self, older_than_ms: int) -> int:
        """Forget the letters that died so long ago, or longer; returns how many."""
        before_ms = self._clock() - older_than_ms + 1
        purged = 0
        while step := self._store.purge(self._group, before_ms, PAGE):
            purged += step
        return purged

    def _query(self, chosen: Chosen | None, state: LetterState | None) -> LetterQuery:
        chosen = chosen or Chosen()
        return LetterQuery(
            group=self._group,
            state=state,
            fingerprint=chosen.fingerprint,
            topic=chosen.topic,
            died_from_ms=chosen.died_from_ms,
            died_before_ms=chosen.died_before_ms,
            ids=chosen.ids,
        )

    def _require_all(self, chosen: Chosen | None) -> None:
        """Whoever names letters means each of them."""
        if chosen is None or chosen.ids is None:
            return
        found = {letter.id for letter in self.list(chosen, limit=len(chosen.ids))}
        missing = sorted(set(chosen.ids) - found)
        if missing:
            named = ", ".join(map(str, missing))
            raise UnknownDeadLetter(
                f"group {self._group} has no dead letter {named} (or it was sent back already)"
            )

    def _redrive(self, letter: DeadLetter, patch: Patch | None) -> Redrive:
        if patch is None:
            return Redrive(letter.id)
        event = letter.event
        try:
            payload = patched(event.payload, patch)
            text = encode_payload(payload).decode()
            if self._check_payload is not None:
                self._check_payload(event.topic, payload, event.schema_version)
        except UsageError as error:
            raise type(error)(f"dead letter {letter.id}: {error}") from None
        return Redrive(letter.id, text)

    def _send(
        self, letters: Sequence[DeadLetter], redrives: Sequence[Redrive], due_ms: int
    ) -> None:
        now_ms = self._clock()
        deliveries = tuple(
            Delivery(
                id=uuid7(now_ms),
                group=self._group,
                window=window,
                ranges=covering(place_of(letter.event) for letter in some),
                state=State.WAITING,
                due_ms=due_ms,
                created_ms=now_ms,
                redriven=True,
            )
            for window, some in _by_window(letters, self._windows)
        )
        change = Change(
            group=self._group,
            deliveries=deliveries,
            redrives=tuple(redrives),
            done=Tally(dead_lettered=-len(letters)),
        )
        try:
            self._store.commit(change)
        except StaleState:
            raise UnknownDeadLetter(
                "somebody else has sent some of these letters back, or deleted them, at the same "
                "time; nothing was done in this step: look again"
            ) from None


def _by_window(
    letters: Sequence[DeadLetter], windows: Windows
) -> Iterator[tuple[str, list[DeadLetter]]]:
    """Letters that can go back together: of one window, and no two of the same event. One may have
    died twice, if the group was sent back in between."""
    seen: Counter[Place] = Counter()
    apart: dict[tuple[str, int], list[DeadLetter]] = {}
    for letter in letters:
        place = place_of(letter.event)
        apart.setdefault((windows.at(letter.event.ts).key, seen[place]), []).append(letter)
        seen[place] += 1
    for (window, _), some in sorted(apart.items()):
        yield window, some

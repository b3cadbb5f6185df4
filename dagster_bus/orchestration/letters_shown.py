"""Dead letters in Markdown and as records: what errors there were, and which letters died of them.

Nothing that an event or an error says is taken for Markdown or HTML."""

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from dagster import TableRecord

from dagster_bus.core.failure import AttemptError
from dagster_bus.core.store import DeadLetter
from dagster_bus.orchestration.names import REDRIVE

MESSAGE_WIDTH = 120

SHOWN_AT_ONCE = 998
"""Characters of Markdown. If there are more, Dagster hides all of them behind a link."""

HEAD = ("letter", "event", "error", "attempts", "payload", "died at", "run")


def kinds_of(newest: Sequence[DeadLetter], counts: Mapping[str, int]) -> str:
    """The kinds of error, most frequent first; as many as Dagster shows at once."""
    examples = _examples(newest)
    lines = ["| events | fingerprint | last runs | newest error |", "|---:|---|---|---|"]
    room = SHOWN_AT_ONCE - len("\n".join(lines)) - len(_more(len(counts)))
    for shown, (fingerprint, count) in enumerate(counts.items()):
        line = _kind(fingerprint, count, examples.get(fingerprint))
        room -= len(line) + 1
        if room <= 0 and shown:
            return "\n".join([*lines, _more(len(counts) - shown)])
        lines.append(line)
    return "\n".join(lines)


def stories_of(group: str, newest: Sequence[DeadLetter], counts: Mapping[str, int]) -> str:
    """What happened at every attempt, for the newest letter of each kind of error; then the newest
    letters, and how they go back."""
    examples = _examples(newest)
    parts = []
    for fingerprint in counts:
        if letter := examples.get(fingerprint):
            parts += ["", f"#### The newest with error {fingerprint}", ""]
            parts += [_told(error) for error in letter.errors]
    parts += ["", "#### The newest letters", "", *_table(newest)]
    parts += ["", f"#### To send some of them back: the job {REDRIVE}", "", *_launchpad(group)]
    return "\n".join(parts)


def records_of(letters: Sequence[DeadLetter]) -> list[TableRecord]:
    return [TableRecord(_record(letter)) for letter in letters]


def _record(letter: DeadLetter) -> dict[str, str | int]:
    event, last = letter.event, letter.errors[-1]
    return {
        "letter": letter.id,
        "event": f"{event.topic}/{event.partition}:{event.offset}",
        "error": one_line(f"{last.type}: {last.message}"),
        "attempts": len(letter.errors),
        "payload": one_line(json.dumps(event.payload, ensure_ascii=False)),  # breaks into lines
        "died at": _time(letter.died_ms),
        "run": last.worker or "",
    }


def _examples(newest: Sequence[DeadLetter]) -> dict[str, DeadLetter]:
    """By fingerprint, the newest letter of those at hand."""
    return {letter.fingerprint: letter for letter in reversed(newest)}


def _kind(fingerprint: str, count: int, newest: DeadLetter | None) -> str:
    error = _cell(_record(newest)["error"]) if newest else ""
    runs = dict.fromkeys(_link(each) for each in newest.errors[-2:]) if newest else ()
    return f"| {count} | {_cell(fingerprint)} | {' '.join(runs)} | {error} |"


def _more(kinds: int) -> str:
    return f"\n… and {kinds} more"


def _table(letters: Sequence[DeadLetter]) -> Iterator[str]:
    yield f"| {' | '.join(HEAD)} |"
    yield f"|{'---|' * len(HEAD)}"
    for letter in letters:
        cells = {name: _cell(value) for name, value in _record(letter).items()}
        cells["run"] = _link(letter.errors[-1])
        yield f"| {' | '.join(cells.values())} |"


def _launchpad(group: str) -> Iterator[str]:
    yield "```yaml"
    config = f"{{group: {group}, everything: true, dry_run: true}}"
    yield f"ops: {{{REDRIVE}_step: {{config: {config}}}}}"
    yield "```"


def _told(error: AttemptError) -> str:
    """One attempt as an item of a list."""
    run = f", run {_link(error)}" if error.worker else ""
    text = one_line(f"{error.type}: {error.message}").replace("`", "'")
    return f"- attempt {error.attempt}, {_time(error.at_ms)}{run}\n\n  `{text}`"


def _link(error: AttemptError) -> str:
    return f"[{_cell(error.worker[:8])}](/runs/{_cell(error.worker)})" if error.worker else ""


def _cell(value: str | int) -> str:
    """A text in a table, in which no sign means anything."""
    if isinstance(value, int):
        return str(value)
    text = html.escape(value, quote=False)
    return "".join(f"\\{sign}" if sign in "\\`*_{}[]()#+!|~$" else sign for sign in text)


def one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MESSAGE_WIDTH else f"{line[: MESSAGE_WIDTH - 1]}…"


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")

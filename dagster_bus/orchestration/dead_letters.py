"""A group's dead letters as an asset: the newest in a table, and counts by kind of error."""

from collections.abc import Sequence
from datetime import UTC, datetime

from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    AssetsDefinition,
    MaterializeResult,
    MetadataValue,
    TableRecord,
    asset,
)

from dagster_bus.core.bus import Bus
from dagster_bus.core.failure import AttemptError
from dagster_bus.core.store import DeadLetter
from dagster_bus.orchestration.names import dead_letters_key, definition_name, table_key
from dagster_bus.orchestration.resources import BusResource

NEWEST = 50
MESSAGE_WIDTH = 120


def build_dead_letters_asset(
    group: str, upstream: Sequence[AssetKey] | None = None
) -> AssetsDefinition:
    """`upstream` is what the letters come from, if not the group's table."""

    @asset(
        key=dead_letters_key(group),
        deps=[table_key(group)] if upstream is None else upstream,
        description=(
            f"Events that the group {group} gave up on, each with every error on its way. "
            "Brought up to date by the group's sensor; materialize it to look again now."
        ),
        group_name=definition_name(group),
        kinds={"dead_letters"},
    )
    def dead_letters(context: AssetExecutionContext, bus: BusResource) -> MaterializeResult[None]:
        with bus.open() as opened:
            metadata = dead_letter_metadata(opened, group)
        context.log.info("%s dead letters in group %s", metadata["dead letters"].value, group)
        return MaterializeResult(metadata=metadata)

    return dead_letters


def dead_letters_now(bus: Bus, group: str) -> AssetMaterialization:
    """The dead letters as they are, for a sensor that has seen them change."""
    return AssetMaterialization(
        asset_key=dead_letters_key(group), metadata=dead_letter_metadata(bus, group)
    )


def dead_letter_metadata(bus: Bus, group: str) -> dict[str, MetadataValue]:
    counts = bus.dead_letters(group).counts()
    newest = bus.dead_letters(group).list(limit=NEWEST)
    metadata: dict[str, MetadataValue] = {"dead letters": MetadataValue.int(sum(counts.values()))}
    if newest:
        metadata["why"] = MetadataValue.md(_stories(newest, counts))
        metadata["newest"] = MetadataValue.table([_record(letter) for letter in newest])
    return metadata


def _record(letter: DeadLetter) -> TableRecord:
    event, last = letter.event, letter.errors[-1]
    return TableRecord(
        {
            "event": f"{event.topic}/{event.partition}:{event.offset}",
            "error": _one_line(f"{last.type}: {last.message}"),
            "attempts": len(letter.errors),
            "payload": _one_line(event.payload_json),
            "died at": _time(letter.died_ms),
            "run": last.worker or "",
        }
    )


def _stories(newest: list[DeadLetter], counts: dict[str, int]) -> str:
    """The kinds of error, most frequent first, each with what happened at every attempt."""
    examples = {letter.fingerprint: letter for letter in reversed(newest)}
    parts = []
    for fingerprint, count in counts.items():
        parts.append(f"#### {count} events with error {fingerprint}")
        letter = examples.get(fingerprint)
        parts += [_told(error) for error in letter.errors] if letter else []
    return "\n".join(parts)


def _told(error: AttemptError) -> str:
    """One attempt as an item of a Markdown list; the error's own text is never Markdown."""
    run = f", run [{error.worker[:8]}](/runs/{error.worker})" if error.worker else ""
    text = _one_line(f"{error.type}: {error.message}").replace("`", "'")
    return f"- attempt {error.attempt}, {_time(error.at_ms)}{run}\n\n  `{text}`"


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MESSAGE_WIDTH else f"{line[: MESSAGE_WIDTH - 1]}…"


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")

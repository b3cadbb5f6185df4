"""Jobs that send dead letters back, or delete them, with all there is to say in the launchpad.

There is one of each for the whole project: the group is said in the configuration."""

from collections.abc import Iterator
from contextlib import contextmanager

from dagster import (
    Config,
    Failure,
    GraphDefinition,
    JobDefinition,
    OpDefinition,
    OpExecutionContext,
    in_process_executor,
    op,
)
from pydantic import Field

from dagster_bus.core.clock import system_clock
from dagster_bus.core.letters import Chosen, DeadLetters, choose
from dagster_bus.core.patching import Patch, parse_patch
from dagster_bus.errors import BusError
from dagster_bus.orchestration.dead_letters import dead_letters_now
from dagster_bus.orchestration.names import PURGE, REDRIVE
from dagster_bus.orchestration.resources import BusResource
from dagster_bus.spec.units import duration_ms


class RedriveConfig(Config):
    """Which letters go back to their group, and how."""

    group: str = Field(description="The group as topics.yaml calls it. No other gets the events.")
    ids: list[int] = Field(
        default_factory=list, description="Letters by their numbers in the dead-letter table."
    )
    fingerprint: str | None = Field(None, description="Or all that died of this kind of error.")
    topic: str | None = Field(None, description="Or all events of this topic; with or without it.")
    everything: bool = Field(False, description="Or all dead letters of the group.")
    patch: str | None = Field(
        None,
        description="A JSON Patch (RFC 6902) for their payloads, such as "
        '[{"op": "replace", "path": "/amount", "value": 5}]. If it does not fit one of them, none '
        "is sent.",
    )
    rate: float | None = Field(
        None, gt=0, description="Let so many a second become due, and not all of them at once."
    )
    dry_run: bool = Field(
        True, description="Only count them, and try the patch on them. false sends them back."
    )


class PurgeConfig(Config):
    """Which letters are deleted for good."""

    group: str = Field(description="The group as topics.yaml calls it.")
    older_than: str = Field("30d", description="Those that died so long ago, such as 30d or 12h.")
    dry_run: bool = Field(True, description="Change nothing. false deletes them for good.")


def build_letters_jobs() -> list[JobDefinition]:
    return [
        _job(_redrive, REDRIVE, "Send dead letters back to their group: they are tried afresh."),
        _job(_purge, PURGE, "Delete old dead letters for good."),
    ]


def _job(step: OpDefinition, name: str, description: str) -> JobDefinition:
    only = GraphDefinition(name=name, node_defs=[step])
    return only.to_job(description=description, executor_def=in_process_executor)


@op(name=f"{REDRIVE}_step")
def _redrive(context: OpExecutionContext, config: RedriveConfig, bus: BusResource) -> None:
    with bus.open() as opened:
        with _told_plainly("Nothing was changed"):
            chosen = choose(
                ids=config.ids,
                fingerprint=config.fingerprint,
                topic=config.topic,
                everything=config.everything,
            )
            patch = parse_patch(config.patch) if config.patch is not None else None
            letters = opened.dead_letters(config.group)
            found = letters.number(chosen, patch)
        sent = 0
        if not config.dry_run:
            sent = _send(context, letters, chosen, patch, config.rate)
            context.log_event(dead_letters_now(opened, config.group))
    done = f"{sent} sent back" if sent else "nothing was changed"
    context.log.info("%s dead letters of %s found; %s", found, config.group, done)
    context.add_output_metadata({"found": found, "redriven": sent, "dry run": config.dry_run})


def _send(
    context: OpExecutionContext,
    letters: DeadLetters,
    chosen: Chosen,
    patch: Patch | None,
    rate: float | None,
) -> int:
    sent = 0
    try:
        for step in letters.redrive(chosen, patch=patch, per_second=rate):
            sent += len(step)
            context.log.info("%s dead letters sent back", sent)
    except BusError as error:
        message = f"{sent} dead letters were sent back before this: {error}"
        raise Failure(message, allow_retries=False) from None
    return sent


@op(name=f"{PURGE}_step")
def _purge(context: OpExecutionContext, config: PurgeConfig, bus: BusResource) -> None:
    with bus.open() as opened:
        with _told_plainly("Nothing was changed"):
            older_than_ms = duration_ms(config.older_than)
            letters = opened.dead_letters(config.group)
            before_ms = system_clock() - older_than_ms + 1
            found = letters.number(Chosen(died_before_ms=before_ms))
        purged = 0
        if not config.dry_run:
            with _told_plainly("Some of them may be gone"):
                purged = letters.purge(older_than_ms)
            context.log_event(dead_letters_now(opened, config.group))
    done = f"{purged} letters deleted" if purged else "nothing was changed"
    context.log.info("%s dead letters of %s are that old; %s", found, config.group, done)
    context.add_output_metadata({"found": found, "purged": purged, "dry run": config.dry_run})


@contextmanager
def _told_plainly(consequence: str) -> Iterator[None]:
    """What went wrong is said in a sentence, together with what has become of the letters."""
    try:
        yield
    except (BusError, ValueError) as error:
        raise Failure(f"{error}. {consequence}.", allow_retries=False) from None

"""Dead letters in Dagster, with what is done about them; checks, observations and upkeep. The
store is real, and so are the jobs; no Spark is needed."""

import json
from pathlib import Path
from typing import Any

import pytest
from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetKey,
    AssetObservation,
    AssetSelection,
    DagsterInstance,
    DefaultScheduleStatus,
    Definitions,
    SensorResult,
    define_asset_job,
)

from benchmarks.loading import project as many
from dagster_bus import Bus, load_definitions
from dagster_bus.core.store import Tally
from dagster_bus.orchestration import observing
from dagster_bus.orchestration.dead_letters import dead_letters_now
from dagster_bus.orchestration.lots import CHECKED_TOGETHER
from tests.support.dagster_project import DEAD, TABLE, Project
from tests.support.project import write_topics

PROMISES = {
    "stock: {}": "stock: {retention: {age: 1s}}",
    "max_attempts: 2": "max_attempts: 1",
    "launch_timeout: 60s": "slo: {max_lag: 2, max_age: 1h}\n    launch_timeout: 60s",
}
ALL_CHECKS = {"dead_letters", "lag", "oldest_event", "offset_drift"}


@pytest.fixture
def mourning(tmp_path: Path, instance: DagsterInstance) -> Project:
    """A project with four dead letters of two kinds, and three events that wait."""
    project = Project(write_topics(tmp_path, **PROMISES), instance)
    for count, error in ((3, ValueError("`<b>x</b>` | no [rate](x)")), (1, KeyError("amount"))):
        project.publish(count)
        with Bus.open(project.file) as bus:
            group = bus.group("order-table")
            for reserved in group.reserve():
                held = group.lease(reserved.id, reservation=reserved.reservation, worker="run-77")
                group.fail(held, error)
    project.publish(3)
    return project


def run(project: Project, job: str, **config: Any) -> Any:
    ops = {f"{job}_step": {"config": config}}
    return project.defs.resolve_job_def(job).execute_in_process(
        instance=project.instance, run_config={"ops": ops}, raise_on_error=False
    )


def complaint(result: Any, job: str) -> str:
    assert not result.success
    return str(result.failure_data_for_node(f"{job}_step").user_failure_data.description)


def letters(project: Project) -> list[Any]:
    with Bus.open(project.file) as bus:
        return bus.dead_letters("order-table").list()


REDRIVE, PURGE = "redrive_dead_letters", "purge_dead_letters"


def test_letters_are_sent_back_from_the_launchpad_and_only_if_that_is_really_meant(
    mourning: Project,
) -> None:
    everything = letters(mourning)
    assert run(mourning, REDRIVE, group="order-table", everything=True).success
    assert letters(mourning) == everything, "a dry run is what happens if nothing else is said"
    wrong_value = next(each for each in everything if "ValueError" in each.errors[0].type)
    patch = json.dumps([{"op": "replace", "path": "/n", "value": 7}])
    result = run(
        mourning,
        REDRIVE,
        group="order-table",
        fingerprint=wrong_value.fingerprint,
        patch=patch,
        rate=1000.0,
        dry_run=False,
    )
    assert result.success
    (shown,) = result.asset_materializations_for_node(f"{REDRIVE}_step")
    assert (shown.asset_key, shown.metadata["dead letters"].value) == (DEAD, 1)
    (last,) = letters(mourning)
    assert run(mourning, REDRIVE, group="order-table", ids=[last.id], dry_run=False).success
    assert letters(mourning) == []
    with Bus.open(mourning.file) as bus:
        assert bus.group("order-table").progress().tally == Tally()


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "say which letters in one way"),
        ({"everything": True, "ids": [1]}, "say which letters in one way"),
        ({"ids": [1, 999]}, "has no dead letter 999"),
        ({"everything": True, "patch": "{"}, "not JSON"),
        ({"everything": True, "patch": '{"op": 1}'}, "not a JSON Patch"),
        (
            {"everything": True, "patch": '[{"op": "remove", "path": "/gone"}]'},
            "the patch does not fit the payload",
        ),
        ({"group": "order-tabel", "everything": True}, "group 'order-tabel' is not declared"),
    ],
)
def test_what_cannot_be_sent_back_is_said_in_a_sentence_and_nothing_is_changed(
    mourning: Project, config: dict[str, Any], said: str
) -> None:
    before = letters(mourning)
    given = {"group": "order-table", "dry_run": False, **config}
    message = complaint(run(mourning, REDRIVE, **given), REDRIVE)
    assert said in message
    assert message.endswith("Nothing was changed.")
    assert letters(mourning) == before


def test_old_letters_are_deleted_from_the_launchpad(mourning: Project) -> None:
    assert run(mourning, PURGE, group="order-table", older_than="0s").success
    assert len(letters(mourning)) == 4
    assert run(mourning, PURGE, group="order-table", dry_run=False).success
    assert len(letters(mourning)) == 4, "none is thirty days old"
    assert run(mourning, PURGE, group="order-table", older_than="0s", dry_run=False).success
    assert letters(mourning) == []
    said = complaint(run(mourning, PURGE, group="order-table", older_than="soon"), PURGE)
    assert "soon" in said


def test_the_dead_letters_are_a_markdown_table_that_no_payload_can_break(mourning: Project) -> None:
    job = mourning.defs.resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(instance=mourning.instance, asset_selection=[DEAD])
    (shown,) = result.asset_materializations_for_node("all_dead_letters")
    why, text = (str(shown.metadata[name].value) for name in ("why", "in full"))
    assert len(why) < 1_000, "Dagster would hide it"
    rows = [line for line in f"{why}\n{text}".splitlines() if line.startswith("|")]
    assert any("[run-77](/runs/run-77)" in row for row in rows)
    assert not any("<b>" in row for row in rows)
    assert "| 3 |" in why
    head = next(line for line in text.splitlines() if line.startswith("| letter |"))
    body = text[text.index(head) :].splitlines()[2:6]
    assert {line.replace("\\|", "").count("|") for line in body} == {head.count("|")}
    assert "group: order-table" in text


def test_of_many_kinds_of_error_the_most_frequent_are_seen_without_a_click(
    mourning: Project,
) -> None:
    with Bus.open(mourning.file) as bus:
        group = bus.group("order-table")
        for kind in "abcdefghij":
            for reserved in group.reserve():
                held = group.lease(reserved.id, reservation=reserved.reservation, worker="run-78")
                group.fail(held, LookupError(f"{kind} is missing from the | {'price list ' * 9}"))
            bus.publish("orders.created", {"n": 1})
        shown = dead_letters_now(bus, "order-table").metadata["why"].value
    lines = str(shown).splitlines()
    assert len(str(shown)) < 1_000
    assert lines[2].startswith("| 3 |")
    assert lines[-1] == f"… and {12 - (len(lines) - 4)} more"


def test_checks_turn_red_when_executed_and_when_observed(mourning: Project) -> None:
    job = define_asset_job("all_checks", selection=AssetSelection.checks_for_assets(TABLE, DEAD))
    defs = Definitions.merge(mourning.defs, Definitions(jobs=[job]))
    result = defs.resolve_job_def("all_checks").execute_in_process(instance=mourning.instance)
    found = {each.check_name: each for each in result.get_asset_check_evaluations()}
    assert found.keys() == ALL_CHECKS
    passed = {name: each.passed for name, each in found.items()}
    assert passed == {
        "dead_letters": False,
        "lag": False,
        "oldest_event": True,
        "offset_drift": True,
    }
    assert found["dead_letters"].description == "4 dead letters; 0 are accepted"
    assert found["lag"].metadata["lag"].value == 3

    events = observe(mourning).asset_events
    seen = {
        event.check_name: event.passed
        for event in events
        if isinstance(event, AssetCheckEvaluation)
    }
    assert seen == {name: passed[name] for name in ALL_CHECKS - {"offset_drift"}}
    graph = defs.resolve_asset_graph()
    assert AssetCheckKey(DEAD, "dead_letters") in graph.asset_check_keys


def test_one_check_of_many_is_executed_without_the_others(
    tmp_path: Path, instance: DagsterInstance
) -> None:
    defs = load_definitions(many(tmp_path, 2, CHECKED_TOGETHER + 2, "store: sqlite:///bus.db"))
    wanted = AssetCheckKey(AssetKey([f"g{CHECKED_TOGETHER + 1}"]), "lag")
    job = define_asset_job("one_check", selection=AssetSelection.checks(wanted))
    merged = Definitions.merge(defs, Definitions(jobs=[job]))
    result = merged.resolve_job_def("one_check").execute_in_process(instance=instance)
    (found,) = result.get_asset_check_evaluations()
    assert (found.asset_check_key, found.passed) == (wanted, True)
    assert {event.step_key for event in result.all_node_events} == {"group_checks_2"}


def test_so_many_dead_letters_as_are_accepted_keep_the_check_green(
    tmp_path: Path, mourning: Project
) -> None:
    accepted = {**PROMISES, "retry: quick": "retry: quick\n    dead_letters: {limit: 4}"}
    patient = Project(write_topics(tmp_path, **accepted), mourning.instance)
    (check,) = [
        event
        for event in observe(patient).asset_events
        if isinstance(event, AssetCheckEvaluation) and event.check_name == "dead_letters"
    ]
    assert check.passed


def observe(project: Project, cursor: str | None = None) -> SensorResult:
    return project.tick(cursor=cursor, sensor="observe_bus")


def test_topics_and_groups_are_observed_with_numbers(mourning: Project) -> None:
    first = observe(mourning)
    mourning.publish(2)
    second = observe(mourning, first.cursor)
    numbers: dict[AssetKey, dict[str, Any]] = {
        event.asset_key: {name: value.value for name, value in event.metadata.items()}
        for event in second.asset_events
        if isinstance(event, AssetObservation)
    }
    assert numbers.keys() == {
        *(AssetKey(["orders", "created"]), AssetKey(["stock"]), AssetKey(["strict"]), TABLE)
    }
    topic = numbers[AssetKey(["orders", "created"])]
    assert topic["published"] == 9
    assert topic["lag of order-table"] == 5
    assert topic["events per minute"] > 0
    group = numbers[TABLE]
    assert (group["lag"], group["dead letters"], group["processed"]) == (5, 4, 0)
    assert group["oldest event (s)"] >= 0


def test_a_tick_looks_at_so_many_and_the_next_one_goes_on(
    mourning: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observing, "AT_ONCE", 3)
    cursor = None
    seen = []
    for _ in range(2):
        result = observe(mourning, cursor)
        cursor = result.cursor
        seen.append([e.asset_key for e in result.asset_events if isinstance(e, AssetObservation)])
    assert [len(each) for each in seen] == [3, 3]
    assert {*seen[0], *seen[1]} >= {TABLE, AssetKey(["stock"])}


def test_retention_runs_by_itself_if_it_was_asked_for_and_tables_wait_for_a_switch(
    mourning: Project, tmp_path: Path
) -> None:
    prune = mourning.defs.resolve_schedule_def("prune_topics_schedule")
    assert prune.default_status is DefaultScheduleStatus.RUNNING
    maintain = mourning.defs.resolve_schedule_def("maintain_tables_schedule")
    assert maintain.default_status is DefaultScheduleStatus.STOPPED
    plain = load_definitions(write_topics(tmp_path / "plain"))
    quiet = plain.resolve_schedule_def("prune_topics_schedule")
    assert quiet.default_status is DefaultScheduleStatus.STOPPED
    result = run(mourning, "prune_topics", topics=["orders.*"])
    assert result.success
    assert run(mourning, "maintain_tables").success
    assert "topic 'nope'" in complaint(
        run(mourning, "prune_topics", topics=["nope"]), "prune_topics"
    )
    said = complaint(run(mourning, "maintain_tables", retention="1s"), "maintain_tables")
    assert "the retention is too short" in said

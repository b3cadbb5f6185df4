"""Groups that start jobs and assets of the user's own: a run's outcome settles its delivery."""

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from dagster import (
    DagsterEventType,
    DagsterInstance,
    DagsterInvalidDefinitionError,
    DagsterRunStatus,
    DailyPartitionsDefinition,
    Definitions,
    RunRequest,
    StaticPartitionsDefinition,
    asset,
)
from pyspark.sql import SparkSession

from dagster_bus import Bus, Message, load_definitions
from dagster_bus.core.clock import system_clock
from dagster_bus.core.delivery import Delivery, State
from dagster_bus.core.groups import Group
from dagster_bus.core.letters import Chosen
from dagster_bus.core.store import Tally
from dagster_bus.orchestration import rounds
from dagster_bus.orchestration.handed import hand_over
from dagster_bus.orchestration.reconciling import reconcile
from dagster_bus.orchestration.runs import RunBook
from dagster_bus.spec.load import load_spec
from tests.support.dagster_dev import wait_for
from tests.support.dagster_project import Project
from tests.support.own_jobs import OWN, Hopeless, mail_orders, mailed, own_project, trouble

SENSOR = "mailer_sensor"
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path: Path, instance: DagsterInstance, store_url: str) -> Project:
    return own_project(tmp_path, instance, store_url)


def publish(project: Project, count: int = 10, **attributes: bool) -> None:
    with Bus.open(project.file) as bus:
        messages = [
            Message({"n": n}, key=str(n), attributes=attributes or {"mail": True})
            for n in range(count)
        ]
        bus.publish_many("orders", messages)


def in_flight(project: Project) -> Delivery:
    with Bus.open(project.file) as bus:
        (delivery,) = bus.group("mailer").open_deliveries()
    return delivery


def begun(project: Project, status: DagsterRunStatus = DagsterRunStatus.STARTED) -> str:
    """A run of ten events that is in a state; it never does anything by itself."""
    publish(project)
    return project.launch(project.request(SENSOR), status)


def test_a_job_gets_the_events_of_its_delivery_and_its_success_settles_them(
    project: Project,
) -> None:
    publish(project, 8)
    publish(project, 2, letter=True)
    request = project.request(SENSOR)
    assert request.job_name == "mail_orders"
    assert request.tags["team"] == "shop"
    assert request.tags["dagster_bus/ranges"]
    assert project.run(request).success
    assert sorted(mailed) == list(range(8))
    assert project.tally("mailer") == Tally(), "the run itself says nothing"
    assert "Nothing new" in str(project.tick(sensor=SENSOR).skip_reason)
    assert project.tally("mailer") == Tally(processed=8, filtered=2)


def test_a_jobs_failure_is_its_attempts_error_and_backs_off_until_no_attempt_is_left(
    project: Project,
) -> None:
    publish(project)
    trouble.extend([RuntimeError("no route to 10.0.0.2"), RuntimeError("no route to 10.0.0.1")])
    first = project.run(project.request(SENSOR))
    assert not first.success
    (again,) = wait_for("next attempt", lambda: requests_of(project))
    (error,) = in_flight(project).errors
    assert (error.type, error.message) == ("RuntimeError", "no route to 10.0.0.1")
    assert error.worker == first.run_id
    assert "raise trouble.pop()" in error.traceback
    assert again.tags["dagster_bus/attempt"] == "2"
    assert not project.run(again).success
    tick = project.tick(sensor=SENSOR)
    assert project.tally("mailer") == Tally(dead_lettered=10)
    (shown,) = tick.asset_events
    assert shown.metadata["dead letters"].value == 10
    with Bus.open(project.file) as bus:
        letters = bus.dead_letters("mailer")
        assert len({letter.fingerprint for letter in letters.list()}) == 1
        list(letters.redrive(Chosen(ids=(letters.list()[0].id,))))
    assert project.run(project.request(SENSOR)).success
    project.tick(sensor=SENSOR)
    assert project.tally("mailer") == Tally(processed=1, dead_lettered=9)


def requests_of(project: Project) -> list[RunRequest]:
    return [*(project.tick(sensor=SENSOR).run_requests or [])]


def test_rules_for_retries_know_the_name_of_a_jobs_error(project: Project) -> None:
    publish(project)
    trouble.append(Hopeless("never"))
    project.run(project.request(SENSOR))
    project.tick(sensor=SENSOR)
    assert project.tally("mailer") == Tally(dead_lettered=10)


def test_a_job_can_refuse_single_events(project: Project) -> None:
    publish(project, 3)
    with Bus.open(project.file) as bus:
        bus.publish_many("orders", [Message({"n": -1}, attributes={"mail": True})])
    assert project.run(project.request(SENSOR)).success
    project.tick(sensor=SENSOR)
    assert project.tally("mailer") == Tally(processed=3, dead_lettered=1)
    with Bus.open(project.file) as bus:
        (letter,) = bus.dead_letters("mailer").list()
    assert letter.errors[-1].message == "there is no such order"


def test_a_job_of_which_every_event_is_refused_is_done(project: Project) -> None:
    with Bus.open(project.file) as bus:
        bus.publish_many("orders", [Message({"n": -1}, attributes={"mail": True})])
    assert project.run(project.request(SENSOR)).success
    assert not requests_of(project)
    assert project.tally("mailer") == Tally(dead_lettered=1)


@pytest.mark.parametrize(
    ("end", "expected", "errors"),
    [
        (DagsterEventType.RUN_SUCCESS, Tally(processed=10), []),
        (DagsterEventType.RUN_FAILURE, Tally(), ["RunFailed"]),
        (DagsterEventType.RUN_CANCELED, Tally(), []),
    ],
)
def test_an_outcome_counts_however_long_the_daemon_was_away(
    project: Project, end: DagsterEventType, expected: Tally, errors: list[str]
) -> None:
    run_id = begun(project)
    project.tick(sensor=SENSOR)
    held = in_flight(project)
    assert (held.state, held.worker) == (State.RUNNING, run_id)
    wait_for("end of the lease", lambda: in_flight(project).is_due(system_clock()))
    project.tick(sensor=SENSOR)
    assert in_flight(project).worker == run_id, "it is still at work, and nobody else is"
    wait_for("end of the lease", lambda: in_flight(project).is_due(system_clock()))
    project.end(run_id, end)
    project.tick(sensor=SENSOR)
    assert project.tally("mailer") == expected
    if not expected.processed:
        assert [error.type for error in in_flight(project).errors] == errors
        again = wait_for("next run", lambda: [in_flight(project)] if is_reserved(project) else [])
        assert again[0].attempt == 1 + len(errors)


def is_reserved(project: Project) -> bool:
    """Whether a run was asked for, by this tick at the latest."""
    project.tick(sensor=SENSOR)
    return in_flight(project).state is State.RESERVED


def test_a_run_that_came_and_went_between_two_ticks_is_settled(project: Project) -> None:
    run_id = begun(project, DagsterRunStatus.NOT_STARTED)
    project.end(run_id, DagsterEventType.RUN_SUCCESS)
    project.tick(sensor=SENSOR)
    assert project.tally("mailer") == Tally(processed=10)


def test_a_run_that_ends_in_the_middle_of_a_tick_is_left_to_the_next_one(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = begun(project)
    project.tick(sensor=SENSOR)

    def just_before(instance: DagsterInstance, group: Group, book: RunBook) -> None:
        reconcile(instance, group, book)
        project.end(run_id, DagsterEventType.RUN_SUCCESS)

    with monkeypatch.context() as late:
        late.setattr(rounds, "reconcile", just_before)
        assert not requests_of(project)
    assert in_flight(project).worker == run_id
    project.tick(sensor=SENSOR)
    assert project.tally("mailer") == Tally(processed=10)


def test_a_run_that_was_cancelled_in_the_queue_hands_its_events_back_at_once(
    project: Project,
) -> None:
    run_id = begun(project, DagsterRunStatus.NOT_STARTED)
    project.end(run_id, DagsterEventType.RUN_CANCELED)
    again = project.request(SENSOR)
    assert again.tags["dagster_bus/attempt"] == "1"
    assert project.run(again).success
    project.tick(sensor=SENSOR)
    assert project.tally("mailer") == Tally(processed=10)


def test_a_run_that_is_deleted_gives_its_events_up_when_its_lease_ends(project: Project) -> None:
    run_id = begun(project)
    project.tick(sensor=SENSOR)
    project.instance.delete_run(run_id)
    again = wait_for("next run", lambda: requests_of(project))[0]
    assert again.tags["dagster_bus/attempt"] == "2"
    assert project.run(again).success
    project.tick(sensor=SENSOR)
    assert project.tally("mailer") == Tally(processed=10)


@pytest.mark.parametrize("status", [None, DagsterRunStatus.NOT_STARTED, DagsterRunStatus.STARTING])
def test_a_run_that_never_comes_is_asked_for_again_and_refused_if_it_comes_late(
    tmp_path: Path,
    instance: DagsterInstance,
    store_url: str,
    status: DagsterRunStatus | None,
) -> None:
    """It was lost with the daemon, or with its machine, before it began."""
    changes = {"launch_timeout: 60s": "launch_timeout: 1ms"}
    project = own_project(tmp_path, instance, store_url, **changes)
    publish(project)
    late = project.request(SENSOR)
    if status is not None:
        project.launch(late, status)
    again = wait_for("next request", lambda: requests_of(project))[0]
    assert again.run_key != late.run_key
    assert again.tags["dagster_bus/attempt"] == "1"
    assert not project.run(late).success
    assert not mailed
    assert project.run(again).success
    project.tick(sensor=SENSOR)
    assert project.tally("mailer") == Tally(processed=10)


def test_a_run_that_could_not_be_started_is_no_attempt_and_is_asked_for_when_its_time_is_up(
    tmp_path: Path, instance: DagsterInstance, store_url: str
) -> None:
    """Its launcher failed, or its process did not come up: Dagster says that the run has failed."""
    changes = {"launch_timeout: 60s": "launch_timeout: 1s"}
    project = own_project(tmp_path, instance, store_url, **changes)
    publish(project)
    first = project.request(SENSOR)
    run_id = project.launch(first, DagsterRunStatus.STARTING)
    project.end(run_id, DagsterEventType.RUN_FAILURE)
    assert not requests_of(project), "who cannot start runs is not asked for one after the other"
    assert in_flight(project).state is State.RESERVED
    again = wait_for("next request", lambda: requests_of(project))[0]
    assert (again.tags["dagster_bus/attempt"], in_flight(project).errors) == ("1", ())
    assert not project.run(first).success
    assert not mailed
    assert project.run(again).success
    project.tick(sensor=SENSOR)
    assert project.tally("mailer") == Tally(processed=10)


def test_a_run_that_began_and_failed_between_two_ticks_is_an_attempt(project: Project) -> None:
    run_id = begun(project, DagsterRunStatus.STARTING)
    project.end(run_id, DagsterEventType.RUN_START)
    project.end(run_id, DagsterEventType.RUN_FAILURE)
    project.tick(sensor=SENSOR)
    (error,) = in_flight(project).errors
    assert error.worker == run_id


def test_two_daemons_that_tick_at_once_settle_a_run_once(project: Project) -> None:
    run_id = begun(project)
    project.end(run_id, DagsterEventType.RUN_SUCCESS)
    with ThreadPoolExecutor(4) as pool:
        ticks = list(pool.map(lambda _: project.tick(sensor=SENSOR), range(8)))
    assert not any(tick.run_requests for tick in ticks)
    assert project.tally("mailer") == Tally(processed=10)


def test_no_more_runs_are_in_flight_than_may_be(project: Project) -> None:
    begun(project)
    publish(project, 20)
    assert not requests_of(project)
    assert "30 events to go" in str(project.tick(sensor=SENSOR).skip_reason)


def test_a_run_started_by_hand_has_no_events_and_says_so(project: Project) -> None:
    publish(project)
    result = project.run(RunRequest(job_name="mail_orders"))
    failure = result.failure_data_for_node("mail_each").user_failure_data
    assert failure.description.startswith("No sensor of a group has started this run")


def test_a_selection_of_assets_gets_the_partition_that_the_events_are_of(
    project: Project,
) -> None:
    publish(project)
    request = project.request("reports_sensor")
    assert request.tags["dagster/priority"] == "7"
    assert request.partition_key == f"{datetime.now(UTC):%Y-%m-%d}"
    result = project.run(request)
    assert result.success
    (event,) = result.asset_materializations_for_node("day_of_orders")
    assert event.metadata["orders"].value == 10
    project.tick(sensor="reports_sensor")
    assert project.tally("reports") == Tally(processed=10)


@pytest.mark.parametrize(
    ("partitions", "complaint"),
    [
        (DailyPartitionsDefinition("2026-01-01"), "leave out the time window that is still open"),
        (StaticPartitionsDefinition(["a"]), "partitioned by something else than time"),
        (DailyPartitionsDefinition("2999-01-01", end_offset=1), "let them begin earlier"),
    ],
)
def test_partitions_that_events_have_no_place_in_are_named_on_the_tick(
    tmp_path: Path, instance: DagsterInstance, partitions: Any, complaint: str
) -> None:
    @asset(partitions_def=partitions)
    def day_of_orders() -> None: ...

    @asset(partitions_def=partitions)
    def summary() -> None: ...

    own = Definitions(assets=[day_of_orders, summary], jobs=[mail_orders])
    project = own_project(tmp_path, instance, "sqlite:///bus.db", own)
    publish(project)
    assert complaint in project.skipped("reports_sensor")


def test_a_job_that_is_not_there_is_named_when_definitions_load(
    tmp_path: Path, instance: DagsterInstance
) -> None:
    project = own_project(tmp_path, instance, "sqlite:///bus.db", Definitions(assets=OWN.assets))
    with pytest.raises(DagsterInvalidDefinitionError, match='job "mail_orders" which was not fo'):
        Definitions.validate_loadable(project.defs)


def test_a_delivery_comes_as_a_dataframe_too(
    tmp_path: Path, instance: DagsterInstance, spark: SparkSession
) -> None:
    project = own_project(tmp_path, instance, "sqlite:///bus.db")
    publish(project, 6)
    publish(project, 4, letter=True)
    tags = project.request(SENSOR).tags
    run = instance.create_run_for_job(mail_orders, tags=dict(tags))
    loaded = load_spec(project.file)
    with Bus.declared(loaded) as bus:
        frame = hand_over(loaded, bus, run).frame(spark)
        assert sorted(row["n"] for row in frame.collect()) == list(range(6))
        assert "_event" in frame.columns
        group = bus.group("mailer")
        held = group.keep(group.delivery(tags["dagster_bus/delivery"]))
        group.fail(held, Hopeless())
        list(bus.dead_letters("mailer").redrive())
    tags = project.request(SENSOR).tags
    run = instance.create_run_for_job(mail_orders, tags=dict(tags))
    with Bus.declared(loaded) as bus:
        frame = hand_over(loaded, bus, run).frame(spark)
        assert sorted(row["n"] for row in frame.collect()) == list(range(6))


def test_the_guides_job_mails_what_it_is_given(
    tmp_path: Path, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = (REPOSITORY / "docs" / "guide.md").read_text(encoding="utf-8")
    section = guide.split("## Jobs and assets of your own")[1].split("\n## ")[0]
    (groups,) = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    file = tmp_path / "topics.yaml"
    head = "version: 1\nstore: sqlite:///bus.db\ntopics: {orders.created: {}}\n"
    file.write_text(head + groups.split("  daily-report")[0], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code, names)
    project = Project(file, instance)
    project.defs = names["defs"]
    Definitions.validate_loadable(project.defs)
    with Bus.open(file) as bus:
        people = [{"customer": "ada@example.org"}, {"customer": "nobody"}]
        bus.publish_many("orders.created", people)
    assert project.run(project.request(SENSOR)).success
    project.tick(sensor=SENSOR)
    assert project.tally("mailer") == Tally(processed=1, dead_lettered=1)


def test_the_guides_groups_are_understood(tmp_path: Path) -> None:
    guide = (REPOSITORY / "docs" / "guide.md").read_text(encoding="utf-8")
    section = guide.split("## Jobs and assets of your own")[1].split("\n## ")[0]
    (groups,) = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    file = tmp_path / "topics.yaml"
    file.write_text("version: 1\ntopics: {orders.created: {}}\n" + groups, encoding="utf-8")
    defs = load_definitions(file)
    own = Definitions(assets=[report, summary_of_orders], jobs=[mail_orders])
    merged = Definitions.merge(defs, own)
    Definitions.validate_loadable(merged)
    selected = merged.resolve_job_def("daily_report_job").asset_layer.selected_asset_keys
    assert {key.to_user_string() for key in selected} == {"report", "summary_of_orders"}


@asset
def report() -> None: ...


@asset
def summary_of_orders() -> None: ...

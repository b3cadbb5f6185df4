"""What people do in Dagster's UI, by the same GraphQL."""

import json
import time
import urllib.request
from collections.abc import Mapping
from typing import Any

from tests.support.dagster_dev import wait_for


def ask(url: str, query: str, **variables: Any) -> Any:
    """The data that a GraphQL query gives."""
    body = json.dumps({"query": query, "variables": variables}).encode()
    request = urllib.request.Request(
        f"{url}/graphql", body, {"content-type": "application/json"}, method="POST"
    )
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request, timeout=30) as answer:
        found = json.load(answer)
    assert "errors" not in found, found
    return found["data"]


def runs_of(url: str, group: str) -> list[dict[str, str]]:
    """Runs of a group, newest first."""
    return [
        {name: run[name] for name in ("runId", "status")}
        for run in _tagged(url, "dagster_bus/group", group)
    ]


def attempts_of(url: str, group: str) -> list[int]:
    """Which attempt each of a group's runs was, the newest first."""
    tag = "dagster_bus/attempt"
    return [
        int(each["value"])
        for run in _tagged(url, "dagster_bus/group", group)
        for each in run["tags"]
        if each["key"] == tag
    ]


def _tagged(url: str, key: str, value: str) -> list[dict[str, Any]]:
    found = ask(
        url,
        """query ($tags: [ExecutionTag!]) { runsOrError(filter: {tags: $tags}) {
             ... on Runs { results { runId status tags { key value } } } } }""",
        tags=[{"key": key, "value": value}],
    )
    results: list[dict[str, Any]] = found["runsOrError"]["results"]
    return results


def materializations(url: str, *path: str) -> list[dict[str, Any]]:
    """An asset's materializations, newest first, each with its metadata by label."""
    found = ask(
        url,
        """query ($path: [String!]!) {
             assetOrError(assetKey: {path: $path}) { ... on Asset { assetMaterializations {
               runId partition metadataEntries { label
                 ... on IntMetadataEntry { intValue }
                 ... on JsonMetadataEntry { jsonString }
                 ... on MarkdownMetadataEntry { mdStr }
                 ... on TableMetadataEntry { table { records } } } } } } }""",
        path=list(path),
    )
    return [
        {**each, "metadata": {entry["label"]: entry for entry in each["metadataEntries"]}}
        for each in found["assetOrError"].get("assetMaterializations", [])
    ]


SELECTOR = {"repositoryLocationName": "project", "repositoryName": "__repository__"}
"""Where the definitions of all projects of the tests are."""


ENDS = ("SUCCESS", "FAILURE", "CANCELED")
"""Statuses of runs that have ended."""

SWITCHES = 20
HOLDS_S = 1.0


def switch_sensor(url: str, name: str, *, on: bool) -> None:
    """What the switch of a sensor does in the UI, and the end of the tick that it came into. A tick
    that begins at the same moment may write over it what it has read before: then it is switched
    again, as people would."""
    for _ in range(SWITCHES):
        flip_switch(url, name, on=on)
        time.sleep(HOLDS_S)
        if not on:
            wait_for("end of the tick", lambda: not _is_ticking(url, name))
        if _sensor(url, name)["sensorState"]["status"] == ("RUNNING" if on else "STOPPED"):
            return
    raise AssertionError(f"the switch of {name} does not hold")


def _is_ticking(url: str, name: str) -> bool:
    newest = _sensor(url, name)["sensorState"]["ticks"]
    return any(tick["status"] == "STARTED" for tick in newest)


def flip_switch(url: str, name: str, *, on: bool) -> None:
    """One click on the switch of a sensor."""
    if on:
        ask(
            url,
            """mutation ($selector: SensorSelector!) {
                 startSensor(sensorSelector: $selector) { __typename } }""",
            selector={**SELECTOR, "sensorName": name},
        )
        return
    query = "mutation ($id: String!) { stopSensor(id: $id) { __typename } }"
    ask(url, query, id=_sensor(url, name)["id"])


def _sensor(url: str, name: str) -> Any:
    found = ask(
        url,
        """query ($selector: SensorSelector!) {
             sensorOrError(sensorSelector: $selector) {
               ... on Sensor { id sensorState { status ticks(limit: 1) { status } } } } }""",
        selector={**SELECTOR, "sensorName": name},
    )
    return found["sensorOrError"]


def preview(url: str, name: str) -> list[dict[str, str]]:
    """The runs that a preview of a sensor in the UI would ask for."""
    found = ask(
        url,
        """mutation ($selector: SensorSelector!) {
             sensorDryRun(selectorData: $selector, cursor: null) {
               ... on DryRunInstigationTick { evaluationResult { runRequests { runKey } } } } }""",
        selector={**SELECTOR, "sensorName": name},
    )
    requests: list[dict[str, str]] = found["sensorDryRun"]["evaluationResult"]["runRequests"]
    return requests


def reload_location(url: str) -> None:
    ask(
        url,
        """mutation ($name: String!) {
             reloadRepositoryLocation(repositoryLocationName: $name) { __typename } }""",
        name=SELECTOR["repositoryLocationName"],
    )


def terminate(url: str, run_id: str) -> None:
    query = "mutation ($id: String!) { terminateRun(runId: $id) { __typename } }"
    ask(url, query, id=run_id)


def launch(url: str, job: str, ops: Mapping[str, Mapping[str, Any]]) -> str:
    """Start a job from the launchpad, with the configuration of each step; the run's id, when it
    has ended well."""
    found = ask(
        url,
        """mutation ($params: ExecutionParams!) {
             launchRun(executionParams: $params) { __typename
               ... on LaunchRunSuccess { run { runId } }
               ... on PythonError { message }
               ... on RunConfigValidationInvalid { errors { message } } } }""",
        params={
            "selector": {**SELECTOR, "jobName": job},
            "runConfigData": {"ops": {op: {"config": config} for op, config in ops.items()}},
        },
    )["launchRun"]
    assert found["__typename"] == "LaunchRunSuccess", found
    run_id: str = found["run"]["runId"]
    _wait_for_success(url, run_id)
    return run_id


def backfill(url: str, path: list[str], partition: str) -> str:
    """Materialize a partition of an asset as the UI does with several; the run that does it, when
    it has ended well."""
    found = ask(
        url,
        """mutation ($params: LaunchBackfillParams!) {
             launchPartitionBackfill(backfillParams: $params) { __typename
               ... on LaunchBackfillSuccess { backfillId }
               ... on PythonError { message } } }""",
        params={"assetSelection": [{"path": path}], "partitionNames": [partition]},
    )["launchPartitionBackfill"]
    assert found["__typename"] == "LaunchBackfillSuccess", found
    tag = ("dagster/backfill", found["backfillId"])
    run_id: str = wait_for("run of the backfill", lambda: _tagged(url, *tag))[0]["runId"]
    _wait_for_success(url, run_id)
    return run_id


def _wait_for_success(url: str, run_id: str) -> None:
    """Until a run has ended, which must be well."""

    def end() -> str | None:
        query = "query ($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"
        status: str = ask(url, query, id=run_id)["runOrError"]["status"]
        return status if status in ENDS else None

    assert wait_for("end of the run", end) == "SUCCESS"

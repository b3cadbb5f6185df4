"""What the demo tells people to type can be typed."""

import io
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from dagster import validate_run_config
from rich.console import Console
from rich.text import Text

from dagster_bus import Bus
from dagster_bus.cli.main import commands
from dagster_bus.core.patching import parse_patch, patched
from dagster_bus.core.reporting import Failed, Report
from dagster_bus.errors import EventRefused
from dagster_bus.orchestration.dev import DagsterDev
from dagster_bus.schemas.schema import compile_schema
from dagster_bus.spec.load import load_spec
from definitions import defs
from definitions.demo import publish
from definitions.guide import EXPORTED, Watcher, patch_for, where_to_look
from definitions.pipelines import EURO_RATES
from definitions.shop import NO_CURRENCY, Kind, Shop
from definitions.stage import PROJECT, TOPICS


@pytest.fixture
def guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for name in EXPORTED:
        monkeypatch.setenv(name, f"{tmp_path}/{name}")
    text = where_to_look(DagsterDev(PROJECT, tmp_path, port=3000))
    return Text.from_markup(text).plain.replace("\\\n", "")


def typed(text: str, program: str) -> Iterator[list[str]]:
    """The arguments of a program in the lines that call it."""
    for line in text.splitlines():
        if line.strip().startswith(f".venv/bin/{program} "):
            yield shlex.split(line, comments=True)[1:]


def parse(words: list[str]) -> None:
    """Raises click's own errors for what the command line would refuse."""
    command: click.Command = commands
    while isinstance(command, click.Group):
        name, *words = words
        command = command.commands[name]
    command.make_context(name, words)


def test_commands_of_the_bus_are_understood(guide: str) -> None:
    found = [*typed(guide, "dagster-bus")]
    assert len(found) == len(re.findall(r"bin/dagster-bus ", guide)) == 4
    for words in found:
        parse(words)


def test_commands_of_dagster_name_what_is_there(guide: str) -> None:
    found = [*typed(guide, "dagster")]
    assert [words[:2] for words in found] == [
        ["sensor", "stop"],
        ["sensor", "start"],
        ["job", "launch"],
    ]
    for _, _, name, *_ in found[:2]:
        assert defs.resolve_sensor_def(name).name == "revenue_sensor"
    job, config = (found[2][found[2].index(option) + 1] for option in ("-j", "--config-json"))
    assert validate_run_config(defs.resolve_job_def(job), json.loads(config))
    assert (PROJECT / found[0][found[0].index("-w") + 1]).exists()


def test_assets_that_are_to_be_looked_at_exist(guide: str) -> None:
    shown = re.findall(r"/assets/([\w/]+)", guide)
    known = {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()}
    assert len(shown) == 3
    assert set(shown) <= known


@pytest.mark.parametrize("kind", [Kind.WRONG_TYPE, Kind.MISSING_FIELD, Kind.NOTHING_PAID])
def test_a_garbled_payment_is_mended_by_the_patch_that_is_shown(kind: Kind) -> None:
    shop = Shop(7)
    happened = {each.kind: each.message for each in [*shop.pass_time(500), *shop.close()]}
    garbled = happened[kind].payload
    mended = patched(garbled, parse_patch(json.dumps(patch_for(garbled))))
    schema = compile_schema(load_spec(TOPICS, {}).schemas["payments.received"])
    assert mended != garbled
    assert schema.problem(mended, 1) is None
    assert float(mended["amount"]) > 0
    assert mended["order_id"] == happened[kind].key
    assert patch_for(happened[Kind.NO_OBJECT].payload) is None


def test_commands_for_the_first_dead_letters_are_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUS_STORE", f"sqlite:///{tmp_path}/bus.db")
    with Bus.open(TOPICS) as bus:
        publish(bus, Shop(7).poison(1))
        group = bus.group("order-history")
        (delivery,) = group.reserve()
        held = group.lease(delivery.id, reservation=delivery.reservation, worker="by hand")
        group.report(held, Report(refused=(Failed(held.ranges, EventRefused("no [rate]")),)))
        out = Console(file=io.StringIO(), record=True, soft_wrap=True)
        watcher = Watcher(bus, ["order-history", "payments"], out)
        watcher.point_to_letters()
        watcher.point_to_letters()
    said = out.export_text()
    assert said.count("order-history has dead letters: no [rate]") == 1
    assert "payments" not in said
    counts, show, redrive = typed(said, "dagster-bus")
    assert [counts[1], show[1], redrive[1]] == ["counts", "show", "redrive"]
    for words in (counts, show, redrive):
        parse(words)
    patch = parse_patch(redrive[redrive.index("--patch") + 1])
    assert patched({"currency": NO_CURRENCY}, patch)["currency"] in EURO_RATES

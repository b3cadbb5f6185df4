"""What `topics.yaml` may say and this version does not act on yet."""

from pathlib import Path

from dagster_bus.spec.load import load_spec
from dagster_bus.spec.shapes import known_keys
from dagster_bus.spec.unsupported import UNSUPPORTED, not_yet
from tests.unit.test_spec import FULL, GOOD, PROJECT, load


def test_what_works_gets_no_note(tmp_path: Path) -> None:
    assert list(not_yet(load(tmp_path, GOOD))) == []
    assert list(not_yet(load_spec(PROJECT / "topics.yaml", {}))) == []


def test_defaults_that_are_written_out_get_no_note(tmp_path: Path) -> None:
    defaults = ("start: earliest", "order: none", "on_exhausted: isolate", "window: hourly")
    text = GOOD.replace("lease: 20s", "\n        ".join(defaults))
    text = text.replace("{path: data/history}", "{path: data/history, format: delta}")
    assert list(not_yet(load(tmp_path, text))) == []


def test_everything_else_is_noted_at_its_place(tmp_path: Path) -> None:
    notes = [str(problem) for problem in not_yet(load(tmp_path, FULL))]
    assert notes[0] == (
        "topics.yaml:39:5: topics.meters.read.acl: "
        "understood, but this version does not act on it yet"
    )
    noted = {note.split(": ")[1] for note in notes}
    assert noted == {"topics.meters.read.acl"}


def test_only_keys_of_the_grammar_are_listed() -> None:
    for start, keys in UNSUPPORTED.items():
        for key in keys:
            *above, last = f"{start}.{key}".split(".")
            assert last in known_keys(tuple(above)), f"{start}.{key}"

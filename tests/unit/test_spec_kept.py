"""The file is read anew when something in it has changed, and not before."""

import json
import os
import time
from pathlib import Path

import pytest

from dagster_bus import Bus
from dagster_bus.errors import SpecError, UsageError
from dagster_bus.spec import kept
from dagster_bus.spec.kept import kept_spec

TEXT = """\
version: 1
store: sqlite:///bus.db
topics:
  orders: {description: "${WHAT:-orders}", schema: {json_schema: order.json}}
"""


TICK_S = 0.02
"""File systems count time in steps, which are shorter than this."""

JUST_NOW_NS = kept.SETTLED_NS


@pytest.fixture(autouse=True)
def files_count_as_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though they were written a moment ago: nobody can set the time of a file's last change."""
    monkeypatch.setattr(kept, "SETTLED_NS", 0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write(tmp_path / "order.json", json.dumps({"type": "object"}))
    return write(tmp_path / "topics.yaml", TEXT)


def write(file: Path, text: str) -> Path:
    file.write_text(text, encoding="utf-8")
    time.sleep(TICK_S)
    return file


def test_what_has_not_changed_is_the_same_object(file: Path) -> None:
    assert kept_spec(file) is kept_spec(str(file))


def test_a_change_of_the_file_counts_at_once(file: Path) -> None:
    assert list(kept_spec(file).topics) == ["orders"]
    write(file, TEXT.replace("orders:", "others:"))
    assert list(kept_spec(file).topics) == ["others"]


def test_a_file_that_takes_the_place_of_another_is_read(file: Path) -> None:
    first, about = kept_spec(file), file.stat()
    other = write(file.with_name("other.yaml"), TEXT.replace("orders:", "others:"))
    os.utime(other, ns=(about.st_atime_ns, about.st_mtime_ns))
    other.replace(file)
    assert file.stat().st_size == about.st_size
    assert kept_spec(file) is not first


def test_a_file_whose_time_was_set_is_read(file: Path) -> None:
    """As tools do that give all files the same time."""
    os.utime(file, (1, 1))
    first = kept_spec(file)
    write(file, TEXT.replace("orders:", "others:"))
    os.utime(file, (1, 1))
    assert list(kept_spec(file).topics) == ["others"] != list(first.topics)


def test_a_variable_that_changes_counts_at_once(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = kept_spec(file)
    assert first.topics["orders"].description == "orders"
    monkeypatch.setenv("WHAT", "sales")
    assert kept_spec(file).topics["orders"].description == "sales"
    monkeypatch.setenv("SOMETHING_ELSE", "1")
    assert kept_spec(file) is kept_spec(file)


def test_a_change_of_a_document_counts_at_once(file: Path) -> None:
    first = kept_spec(file)
    write(file.with_name("order.json"), json.dumps({"type": "object", "title": "Order"}))
    assert kept_spec(file) is not first


def test_what_was_written_just_now_is_read_again(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "SETTLED_NS", JUST_NOW_NS)
    assert kept_spec(file) is not kept_spec(file)


def test_a_mistake_is_told_each_time_and_so_is_a_file_that_is_gone(file: Path) -> None:
    kept_spec(file)
    write(file, TEXT.replace("version: 1", "version: 2"))
    for _ in range(2):
        with pytest.raises(SpecError, match="version"):
            kept_spec(file)
    file.unlink()
    with pytest.raises(UsageError, match="cannot read"):
        kept_spec(file)


def test_only_so_many_files_are_kept(tmp_path: Path) -> None:
    text = "version: 1\ntopics: {orders: {}}\n"
    files = [write(tmp_path / f"{number}.yaml", text) for number in range(kept.MOST + 3)]
    first = [kept_spec(file) for file in files]
    assert kept_spec(files[-1]) is first[-1]
    assert kept_spec(files[0]) is not first[0]


def test_a_bus_that_is_opened_again_reads_nothing_again(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Bus.open(file).close()
    monkeypatch.setattr(kept, "load_spec", None)
    with Bus.open(file) as bus:
        assert [topic.name for topic in bus.topics] == ["orders"]

"""libyaml reads what the parser in Python reads, and what is said of mistakes is the same."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dagster_bus.errors import SpecError
from dagster_bus.spec.load import load_spec
from dagster_bus.spec.source import read_quickly, read_source, read_with_care

HERE = Path(__file__).parent
ENVIRON = {"A": "1", "NAME": "x: y"}
with_libyaml = pytest.mark.skipif(not yaml.__with_libyaml__, reason="libyaml is not installed")


def texts() -> Iterator[str]:
    """All that the tests of the file give it to read, and a good deal that is no YAML."""
    yield (HERE.parents[1] / "topics.yaml").read_text(encoding="utf-8")
    for file in sorted(HERE.glob("test_spec*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


TEXTS = sorted(set(texts()))
SIGNS = ["\n", " ", "  ", "- ", ": ", ":", "?", "{", "}", "[", "]", ",", "'", '"', "#", "&a", "*a",
         "!t", "%", "|", ">", "\\", "---", "...", "<<", "~", "${A}", "é", "\u2028", "\x85", "\xa0",
         "\t", "\ufeff", "\r", "\r\n", "@", "`", "1", "😀"]  # fmt: skip


def is_read_alike(text: str) -> bool:
    """Whether libyaml reads a text; if so, just as the other parser does, without a complaint."""
    quick = read_quickly(text, "x", ENVIRON)
    if quick is None:
        return False
    careful = read_with_care(text, "x", ENVIRON)
    assert (quick.data, quick.places, quick.keys) == (careful.data, careful.places, careful.keys)
    assert not careful.problems
    return True


@with_libyaml
def test_libyaml_reads_what_the_tests_have_to_read() -> None:
    read = [text for text in TEXTS if is_read_alike(text)]
    assert len(read) > len(TEXTS) / 2, "else this would not tell much"
    assert max(map(len, TEXTS)) == max(map(len, read)), "the longest is a whole file"


@with_libyaml
@settings(max_examples=400)
@given(st.data())
def test_libyaml_reads_no_text_otherwise(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(TEXTS))[: data.draw(st.integers(20, 300))]
    for sign in data.draw(st.lists(st.sampled_from(SIGNS), max_size=4)):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + sign + text[at:]
    is_read_alike(text)


@with_libyaml
@pytest.mark.parametrize(
    "text",
    [
        *(
            "a:\tb",
            "\ufeffa: b\n\ufeffc: d",
            "{a?: 1}",
            "a: >#b",
            "[what?]",
            "[a, {b: c? d}]",
            "{? : x}",
        ),
        *("a: ${UNSET}", "a: !!str b", "a: &b c", "{a: b", "a: 'b", "a: \0"),
        "[" * 60,
    ],
)
def test_what_needs_care_is_left_to_the_other_parser(text: str) -> None:
    assert read_quickly(text, "x", ENVIRON) is None


@with_libyaml
def test_question_marks_in_running_text_need_no_care() -> None:
    assert is_read_alike("description: Late? Look here.\nnotes: {a: 'what?', b: \"now?\"}")


@pytest.mark.parametrize("has_libyaml", [True, False])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1, 2", "x:1:9: not YAML: a ',' or ']' is missing"),
        ("a: b\n  c: d", "x:2:4: not YAML: a ':' too many"),
        ("a: 'b\nc: d", "x:1:4: not YAML: the quotation mark is never closed"),
        ("a: ${UNSET}\nb: [", "x:1:4: the environment variable UNSET is not set"),
    ],
)
def test_mistakes_are_told_the_same_way(
    monkeypatch: pytest.MonkeyPatch, text: str, said: str, has_libyaml: bool
) -> None:
    monkeypatch.setattr(yaml, "__with_libyaml__", has_libyaml and yaml.__with_libyaml__)
    with pytest.raises(SpecError) as found:
        read_source(text, "x", ENVIRON)
    assert str(found.value.problems[0]).startswith(said)


def test_a_file_is_the_same_without_libyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    file = HERE.parents[1] / "topics.yaml"

    def read() -> tuple[Any, ...]:
        loaded = load_spec(file, ENVIRON)
        places = [loaded.problem(("topics", name), "") for name in loaded.topics]
        return loaded.spec, places

    usual = read()
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    assert read() == usual

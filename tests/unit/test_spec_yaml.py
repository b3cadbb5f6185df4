"""YAML's own traps, and files that are no YAML: nothing is misread, and nothing does harm."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagster_bus.errors import SpecError, UsageError
from dagster_bus.spec.files import MAX_BYTES
from dagster_bus.spec.load import load_spec
from dagster_bus.spec.source import read_source


def data(text: str, **environ: str) -> Any:
    source = read_source(text, "x", environ)
    assert source.problems == []
    return source.data


def told(text: str, **environ: str) -> list[str]:
    """What is said of a text, whether it can be read to its end or not."""
    try:
        return [str(problem) for problem in read_source(text, "x", environ).problems]
    except SpecError as error:
        return [str(problem) for problem in error.problems]


def loading(tmp_path: Path, content: bytes) -> str:
    """What is said of a file with just these bytes."""
    file = tmp_path / "topics.yaml"
    file.write_bytes(content)
    with pytest.raises(UsageError) as found:
        load_spec(file, {})
    return str(found.value)


def test_plain_words_stay_what_they_look_like() -> None:
    text = "{on: yes, at: 1:30, day: 2026-01-02, hex: 0x1F, e: 1e3, v: 1.2.3, s: '7', off: No}"
    assert data(text) == {
        "on": "yes",
        "at": "1:30",
        "day": "2026-01-02",
        "hex": "0x1F",
        "e": "1e3",
        "v": "1.2.3",
        "s": "7",
        "off": "No",
    }


def test_numbers_are_decimal_whatever_they_begin_with() -> None:
    assert data("{a: 010, b: 08, c: -1_000, d: 0.50, e: 1.5e3, f: +7}") == {
        "a": 10,
        "b": 8,
        "c": -1000,
        "d": 0.5,
        "e": 1500.0,
        "f": 7,
    }


def test_true_and_false_may_have_capitals() -> None:
    assert data("[true, True, TRUE, false, False, FALSE]") == [True] * 3 + [False] * 3


def test_keys_are_always_text() -> None:
    assert list(data("{1: a, true: a, null: a, 1.5: a, on: a, '': a}")) == [
        "1",
        "true",
        "null",
        "1.5",
        "on",
        "",
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: 1\nb: 2\na: 3", "x:3:1: the key 'a' stands here a second time"),
        ("a: {b: 1, b: 2}", "x:1:11: the key 'b' stands here a second time"),
        ("a: &one 1", "x:1:4: the anchor &one is not understood (remove it)"),
        ("a: &one {b: 1}", "x:1:4: the anchor &one is not understood (remove it)"),
        ("&one a: 1", "x:1:1: the anchor &one is not understood (remove it)"),
        ("a: *one", "x:1:4: the alias *one is not understood (write it out)"),
        ("a: [*one]", "x:1:5: the alias *one is not understood (write it out)"),
        ("*one : 1", "x:1:1: the alias *one is not understood (write it out)"),
        ("<<: {a: 1}", "x:1:1: merge keys (<<) are not understood (write the keys out)"),
        ("a: !!int 4", "x:1:4: the tag !!int is not understood (remove it)"),
        ("a: !!str 4", "x:1:4: the tag !!str is not understood (remove it)"),
        ("a: !mine 4", "x:1:4: the tag !mine is not understood (remove it)"),
        ("a: ! 4", "x:1:4: the tag ! is not understood (remove it)"),
        ("a: !!set {b, c}", "x:1:4: the tag !!set is not understood (remove it)"),
        ("a: !!python/name:os.system x", "x:1:4: the tag !!python/name:os.system is not und"),
        ("!!str a: 1", "x:1:1: tags are not understood (remove it)"),
        ("[a, b]: 1", "x:1:1: a key is a word, not a list or a mapping"),
        ("? {a: 1}\n: 2", "x:1:3: a key is a word, not a list or a mapping"),
        ("a: 1\n---\nb: 2", "x:2:1: a second document begins here (a file holds one; remove '-"),
        ("a: .inf", "x:1:4: '.inf' is not a number to work with (in quotes it is text)"),
        ("a: -.INF", "x:1:4: '-.INF' is not a number to work with (in quotes it is text)"),
        ("a: .NaN", "x:1:4: '.NaN' is not a number to work with (in quotes it is text)"),
        ("a: 1.0e999", "x:1:4: '1.0e999' is too large a number"),
        (f"a: {'9' * 5000}", "x:1:4: '9999999999"),
        ('a: "\\0"', "x:1:4: the character U+0000 cannot stand in text (remove it)"),
        ('a: "\\ud800"', "x:1:4: the character U+D800 cannot stand in text (remove it)"),
        ('"\\0": a', "x:1:1: the character U+0000 cannot stand in text (remove it)"),
        ("a: \x00", "x:1:4: the character U+0000 cannot stand in YAML (remove it)"),
        ("a: 1\nb: \x1b[31m", "x:2:4: the character U+001B cannot stand in YAML (remove it)"),
        ("a:", "x:1:1: a has no value (write one, or remove the key; {} is an empty mapping)"),
        ("a: {b: ~}", "x:1:5: a.b has no value"),
        ("a: [1, null]", "x:1:8: a: an item has no value (remove it)"),
        ("${A}: 1", "x:1:1: '${A}': variables stand in values, not in keys"),
    ],
)
def test_what_is_not_plain_data_is_refused(text: str, complaint: str) -> None:
    assert told(text)[0].startswith(complaint)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: [1, 2", "x:1:9: not YAML: a ',' or ']' is missing"),
        ("a: {b: 1", "x:1:9: not YAML: a ',' or '}' is missing"),
        ("a:\n\tb: 1", "x:2:1: not YAML: a tab stands here (indent with spaces)"),
        ("a: 1\n  b: 2", "x:2:4: not YAML: a ':' too many, or the line is not indented as it sh"),
        ("a:\n  b: 1\n c: 2", "x:3:2: not YAML: the line is not indented like those it belongs"),
        ("a: b: c", "x:1:5: not YAML: a ':' too many"),
        ("a: @b", "x:1:4: not YAML: no word begins with '@' (put it in quotes)"),
        ("a: `b`", "x:1:4: not YAML: no word begins with '`' (put it in quotes)"),
        ("a: %b", "x:1:4: not YAML: no word begins with '%' (put it in quotes)"),
        ("x: 1\na: 'b", "x:2:4: not YAML: the quotation mark is never closed"),
        ('a: "\\q"', "x:1:6: not YAML: no escape begins with a backslash and 'q' (double the ba"),
        ('a: "\\x1"', "x:1:7: not YAML: an escape with too few digits"),
        ('a: "\\UFFFFFFFF"', "x:1:7: not YAML: an escape or a directive with a number that is "),
        ("a: 1\nb\nc: 2", "x:3:1: not YAML: a key without a ':'"),
        ("a: - b", "x:1:4: not YAML: a list or a mapping cannot begin here"),
        ("a: | b", "x:1:6: not YAML: after '|' or '>' the text begins on the next line"),
        ("a: *", "x:1:5: not YAML: a '&', '*' or '%' without a name (put the text in quotes)"),
        ("a: ]", "x:1:4: not YAML: "),
        ("%YAML 9.0\n---\na: 1", "x:1:1: not YAML: this directive is not understood"),
        ("a: !x!y z", "x:1:4: not YAML: tags are not understood"),
        ("{a: ${B}, c: d}", "x:1:6: not YAML: a ',' or '}' is missing; inside braces, put ${…} "),
    ],
)
def test_what_is_not_yaml_is_told_in_plain_words(text: str, complaint: str) -> None:
    (line,) = told(text)
    assert line.startswith(complaint)


def test_what_was_found_before_the_text_breaks_is_told_too() -> None:
    assert [line[:6] for line in told("a: 1\na: 2\nb: [")] == ["x:2:1:", "x:3:5:"]


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_very_deep_nesting_is_refused_at_once(opening: str) -> None:
    assert "nested more than 50 levels deep" in told(opening * 100_000)[-1]


def test_nesting_that_is_passed_over_is_refused_as_well() -> None:
    assert "nested more than 50 levels deep" in told("a: 1\na: " + "[" * 100_000)[-1]


def test_an_alias_bomb_does_no_harm() -> None:
    levels = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 40))
    lines = told(f"l0: &l0 [x]\n{levels}")
    assert len(lines) == 40 + 39  # each anchor, and each alias once


def test_a_bomb_of_a_hundred_megabytes_is_not_even_read(tmp_path: Path) -> None:
    bomb = b"a: &a [x]\nb: [" + b"*a, " * 25_000_000 + b"]"
    assert loading(tmp_path, bomb).endswith("topics.yaml is larger than 4 MiB, and is not read")


def test_a_file_at_the_limit_is_read(tmp_path: Path) -> None:
    start = b"version: 1\ntopics: {a: {}}\n"
    file = tmp_path / "topics.yaml"
    file.write_bytes(start + b"#" * (MAX_BYTES - len(start)))
    assert list(load_spec(file).spec.topics) == ["a"]
    assert "larger than" in loading(tmp_path, start + b"#" * (MAX_BYTES - len(start) + 1))


def test_a_byte_order_mark_is_passed_over_and_counts_as_no_column(tmp_path: Path) -> None:
    file = tmp_path / "topics.yaml"
    file.write_bytes(b"\xef\xbb\xbfversion: 1\ntopics: {a: {}}\n")
    assert load_spec(file).spec.version == 1
    said = loading(tmp_path, b"\xef\xbb\xbfversion: 2\ntopics: {a: {}}\n")
    assert said.startswith("topics.yaml:1:10: version: 2")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"a: 1\nb\xc3\xa4: \xff", "topics.yaml:2:5: not UTF-8 text (save it as UTF-8)"),
        ("a: 1".encode("utf-16"), "topics.yaml:1:1: not UTF-8 text (it looks like UTF-16; save it "
         "as UTF-8)"),
        (b"\xef\xbb\xbf\xff", "topics.yaml:1:1: not UTF-8 text (save it as UTF-8)"),
    ],
)  # fmt: skip
def test_other_encodings_are_refused_at_their_place(
    tmp_path: Path, content: bytes, complaint: str
) -> None:
    assert loading(tmp_path, content) == complaint


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "---\n...\n", "~", "\n\n", "--- # a"])
def test_an_empty_file_is_a_mapping_without_keys(text: str) -> None:
    assert data(text) == {}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${A}", "1 2"),
        ("${N}", 7),
        ("'${N}'", "7"),
        ('"${N}"', "7"),
        ("|\n  ${N}", "7"),
        ("a${N}b${A}", "a7b1 2"),
        ("${NONE:-5m}", "5m"),
        ("${NONE:-3}", 3),
        ("${NONE:-}x", "x"),
        ("${EMPTY:-none}", "none"),
        ("${B}", True),
        ("$${N}", "${N}"),
        ("$$${N}", "$${N}"),
        ("$${N} is ${N}", "${N} is 7"),
        ("$N $ $$ {N}", "$N $ $$ {N}"),
        ("${INJECTION}", "{a: [*b]}\n!!x"),
    ],
)
def test_variables_are_put_in_as_single_values(text: str, value: object) -> None:
    environ = {"A": "1 2", "N": "7", "B": "true", "EMPTY": "", "INJECTION": "{a: [*b]}\n!!x"}
    found = data(f"a: {text}", **environ)["a"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("${NONE}", "the environment variable NONE is not set (or write ${NONE:-default})"),
        ("${EMPTY}", "the environment variable EMPTY is empty (or write ${EMPTY:-default})"),
        ("${A", "'${A' has a '${' that begins no variable (write ${NAME} or ${NAME:-default}, and"),
        ("${A:=b}", "'${A:=b}' has a '${' that begins no variable"),
        ("${1}", "'${1}' has a '${' that begins no variable"),
        ("${}", "'${}' has a '${' that begins no variable"),
        ("${A:-${B}}", "'${A:-${B}}' has a '${' that begins no variable"),
        ("${NUL}", "the character U+0000 cannot stand in text (remove it)"),
        ("${NONE:-}", "a has no value"),
    ],
)
def test_variables_that_cannot_be_put_in_are_told_of(text: str, complaint: str) -> None:
    (line,) = told(f"a: {text}", EMPTY="", NUL="\0")
    assert line.split(": ", 1)[1].startswith(complaint)


@settings(max_examples=500)
@given(st.text(alphabet=st.sampled_from("ab01:-?,[]{}&*!|>'\"%@`#\n\t \\~$\x00é.<"), max_size=60))
def test_any_text_is_read_or_refused_with_places(text: str) -> None:
    for line in told(text):
        file, number, column, _ = line.split(":", 3)
        assert file == "x"
        assert int(number) >= 1
        assert int(column) >= 1

"""Column types: what may be declared, its one spelling, and what is said of mistakes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_bus.schemas.tree import (
    Array,
    Column,
    ColumnType,
    Decimals,
    Map,
    Simple,
    Struct,
    quoted,
    spelled,
    spelled_column,
)
from dagster_bus.schemas.types import MAX_DEPTH, normal_type, parse

SIMPLE = [
    "string", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "date",
    "timestamp", "timestamp_ntz", "binary",
]  # fmt: skip

names = st.one_of(
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True),
    st.sampled_from(
        ["select", "not", "null", "struct", "array", "1", "odd name", "a`b", "``", "é"]
    ),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=5),
)
leaves = st.one_of(
    st.sampled_from(SIMPLE).map(Simple),
    st.integers(1, 38).flatmap(lambda p: st.builds(Decimals, st.just(p), st.integers(0, p))),
)


def structs(types: st.SearchStrategy[ColumnType]) -> st.SearchStrategy[Struct]:
    columns = st.tuples(names, st.builds(Column, types, st.booleans()))
    return st.lists(
        columns, min_size=1, max_size=4, unique_by=lambda column: column[0].lower()
    ).map(lambda found: Struct(tuple(found)))


column_types: st.SearchStrategy[ColumnType] = st.recursive(
    leaves,
    lambda types: st.one_of(types.map(Array), types.map(Map), structs(types)),
    max_leaves=8,
)


@st.composite
def written(draw: st.DrawFn, type_: ColumnType) -> str:
    """A type as somebody might write it: any case, blanks, other words, no colons."""
    blank = draw(st.sampled_from(["", " ", "\n\t "]))
    match type_:
        case Simple(name):
            words = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long",
                     "float": "real"}  # fmt: skip
            text = draw(st.sampled_from([name, words.get(name, name)]))
            return draw(st.sampled_from([text, text.upper(), text.title()]))
        case Decimals(10, 0):
            return draw(st.sampled_from(["decimal", "DECIMAL(10)", "decimal(10,0)"]))
        case Decimals(precision, scale):
            return f"Decimal{blank}({blank}{precision},{blank}{scale}{blank})"
        case Array(element):
            return f"array{blank}<{blank}{draw(written(element))}{blank}>"
        case Map(value):
            return f"MAP<{blank}String{blank},{draw(written(value))}{blank}>"
        case Struct(columns):
            fields = []
            for name, column in columns:
                colon = draw(st.sampled_from([":", " ", f"{blank}: "]))
                end = f" NOT {blank}Null" if column.required else ""
                fields.append(f"{quoted(name)}{colon}{draw(written(column.type))}{end}{blank}")
            return f"struct<{blank}{','.join(fields)}>"
    raise AssertionError(type_)


@given(column_types, st.booleans())
def test_a_type_is_read_from_its_spelling(type_: ColumnType, required: bool) -> None:
    column = Column(type_, required)
    assert parse(spelled_column(column)) == column
    assert normal_type(spelled_column(column)) == spelled_column(column)


@given(column_types.flatmap(lambda type_: st.tuples(st.just(type_), written(type_))))
def test_however_it_is_written_a_type_has_one_spelling(case: tuple[ColumnType, str]) -> None:
    type_, text = case
    assert normal_type(text) == spelled(type_)


@given(st.text("abcdefint<>(),: `0123456789notulsrgy", max_size=30))
def test_any_text_is_a_type_or_a_mistake_that_is_told(text: str) -> None:
    try:
        spelling = normal_type(text)
    except ValueError as error:
        spelling = str(error)
    told = "is not a column type" in spelling
    assert told or normal_type(spelling) == spelling


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ("string", "string"),
        (" BIGINT ", "bigint"),
        ("Long", "bigint"),
        ("byte", "tinyint"),
        ("short", "smallint"),
        ("integer", "int"),
        ("real", "float"),
        ("decimal", "decimal(10,0)"),
        ("decimal(5)", "decimal(5,0)"),
        ("decimal ( 12 , 2 )", "decimal(12,2)"),
        ("int NOT NULL", "int not null"),
        ("array<array<int>>", "array<array<int>>"),
        ("map<string, double>", "map<string,double>"),
        (
            "struct<id: long, note string not null, `odd name`: date>",
            "struct<id:bigint,note:string not null,`odd name`:date>",
        ),
        ("struct<`plain`: int>", "struct<plain:int>"),
        ("struct<not: int not null>", "struct<not:int not null>"),
    ],
)
def test_types_have_the_spelling_of_spark(text: str, spelling: str) -> None:
    assert normal_type(text) == spelling


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("strin", "'strin' is not a column type; known are string, boolean, tinyint, smallint, int,"
         " bigint, float, double, date, timestamp, timestamp_ntz, binary, decimal(p,s), array<type>"
         ", map<string,type> and struct<name: type, …>; did you mean 'string'?"),
        ("array<strng>", "'strng' is not a column type (in 'array<strng>'); known are string"),
        ("array<strng>", "did you mean 'string'?"),
        ("Timestampp", "did you mean 'timestamp'?"),
        ("varchar(10)", "'varchar' is not a column type (in 'varchar(10)'); known are"),
        ("", "'' is not a column type: a type is missing at its end"),
        ("array<>", "'array<>' is not a column type: a type is missing before '>'"),
        ("array", "'array' is not a column type: write array<type>"),
        ("array<int", "'array<int' is not a column type: '>' is missing; write array<type>"),
        ("int>", "'int>' is not a column type: it should end before '>'"),
        ("int int", "it should end before 'int'"),
        ("int not", "after 'not' comes 'null'"),
        ("array<int not null>", "'not null' stands after a field's type only"),
        ("map<int,int>", "the keys of a map are string, as JSON has no others"),
        ("map<string>", "write map<string,type>"),
        ("struct<>", "write struct<name: type, …>"),
        ("struct<a: int,>", "write struct<name: type, …>"),
        ("struct<a:>", "a type is missing before '>'"),
        ("struct<a-b: int>", "'-' cannot stand in it; put odd names into backticks: `a-b`"),
        ("struct<id: int, ID: int>", "'id' and 'ID' differ in case only; Spark takes them for one"),
        ("struct<id: int, id: int>", "'id' stands there twice"),
        ("decimal(39,0)", "a decimal has 1 to 38 digits, at most all of them after the point"),
        ("decimal(5,6)", "a decimal has 1 to 38 digits, at most all of them after the point"),
        ("decimal(0)", "a decimal has 1 to 38 digits"),
        ("decimal()", "write decimal(p,s), such as decimal(12,2)"),
        ("decimal(5,-1)", "'-' cannot stand in it"),
        ("decimal(5,2,1)", "write decimal(p,s), such as decimal(12,2)"),
        ("decimal(99999999999)", "write decimal(p,s), such as decimal(12,2)"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_what_is_allowed(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match="is not a column type") as found:
        normal_type(text)
    assert complaint in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("form", ["array<", "map<string,", "struct<a:"])
def test_depth_is_bounded(form: str) -> None:
    deepest = form * (MAX_DEPTH - 1) + "int" + ">" * (MAX_DEPTH - 1)
    assert normal_type(deepest) == deepest
    with pytest.raises(ValueError, match=f"it is nested more than {MAX_DEPTH} deep"):
        normal_type(form * 100_000 + "int")

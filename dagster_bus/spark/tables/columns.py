"""How a table's columns change: what a pipeline gives now, against what the table has.

Pure. A column that is new is added, one that is missing becomes null, a type that fits into the
table's is widened as it is written. Everything else is refused before anything is written: a table
whose files disagree about a type can be read by nobody.
"""

from collections.abc import Iterator

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from dagster_bus.errors import TableError

WINDOW = "_window"
"""The column that says which window a row belongs to; the table is partitioned by it."""

PLAIN = {
    *("string", "boolean", "binary", "date", "timestamp", "timestamp_ntz", "float", "double"),
    *("tinyint", "smallint", "int", "bigint", "decimal"),
}
NOT_IN_CSV = {"binary"}
WHOLE_NUMBERS: list[type[DataType]] = [ByteType, ShortType, IntegerType, LongType]
DIGITS = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 19}
EXACT_IN_DOUBLE: tuple[type[DataType], ...] = (FloatType, ByteType, ShortType, IntegerType)


def usable(columns: StructType, format: str = "delta") -> StructType:
    """A pipeline's columns as a table keeps them: all may be null, and none has notes of Spark's.

    Raises TableError for columns that no table of this format can have."""
    problems = [*_clashes(columns), *_impossible(columns, "", format)]
    if problems:
        raise TableError(f"the pipeline's columns cannot be kept: {'; '.join(problems)}")
    return _nullable(columns)


def evolved(table: StructType, pipeline: StructType) -> StructType:
    """The table's columns once it takes these rows. Both are `usable`.

    Raises TableError, which names every column that does not fit, both types and what to do."""
    problems: list[str] = []
    merged = _merged(table, pipeline, "", problems)
    if problems:
        raise TableError(f"the pipeline's columns do not fit the table: {'; '.join(problems)}")
    return merged


def without_window(columns: StructType) -> StructType:
    return StructType([field for field in columns.fields if field.name != WINDOW])


def with_window(columns: StructType) -> StructType:
    return StructType([*columns.fields, StructField(WINDOW, StringType())])


def _merged(
    table: StructType, pipeline: StructType, prefix: str, problems: list[str]
) -> StructType:
    given = {field.name.lower(): field for field in pipeline.fields}
    fields = []
    for field in table.fields:
        new = given.pop(field.name.lower(), None)
        if new is not None and new.name != field.name:
            problems.append(
                f"column {prefix}{new.name} is {field.name} in the table, which readers take for "
                f"the same; name it {field.name} in the pipeline"
            )
        elif new is not None:
            path = f"{prefix}{field.name}"
            type_ = _merged_type(field.dataType, new.dataType, path, problems)
            field = StructField(field.name, type_)
        fields.append(field)
    return StructType([*fields, *given.values()])


def _merged_type(table: DataType, pipeline: DataType, path: str, problems: list[str]) -> DataType:
    if isinstance(table, StructType) and isinstance(pipeline, StructType):
        return _merged(table, pipeline, f"{path}.", problems)
    if isinstance(table, ArrayType) and isinstance(pipeline, ArrayType):
        element = f"{path}.element"
        return ArrayType(_merged_type(table.elementType, pipeline.elementType, element, problems))
    if isinstance(table, MapType) and isinstance(pipeline, MapType):
        return MapType(
            _merged_type(table.keyType, pipeline.keyType, f"{path}.key", problems),
            _merged_type(table.valueType, pipeline.valueType, f"{path}.value", problems),
        )
    if table != pipeline and not _fits(pipeline, table):
        problems.append(_mismatch(path, table, pipeline))
    return table


def _mismatch(path: str, table: DataType, pipeline: DataType) -> str:
    there, here = table.simpleString(), pipeline.simpleString()
    cure = f"cast it to {there} in the pipeline, or give it another name"
    if _fits(table, pipeline):
        cure += f"; to make the column wider, begin a new table with {here}"
    return f"column {path} is {there} in the table and {here} in the pipeline ({cure})"


def _fits(narrow: DataType, wide: DataType) -> bool:
    """Whether every value of one type is a value of the other."""
    kind = type(narrow)
    if isinstance(wide, DoubleType):
        return kind in EXACT_IN_DOUBLE
    if isinstance(wide, DecimalType):
        before = wide.precision - wide.scale
        if isinstance(narrow, DecimalType):
            return narrow.scale <= wide.scale and narrow.precision - narrow.scale <= before
        return kind in DIGITS and DIGITS[kind] <= before
    if kind in WHOLE_NUMBERS and type(wide) in WHOLE_NUMBERS:
        return WHOLE_NUMBERS.index(kind) <= WHOLE_NUMBERS.index(type(wide))
    return False


def _clashes(columns: StructType) -> Iterator[str]:
    seen: dict[str, str] = {WINDOW: WINDOW}
    for name in columns.names:
        other = seen.setdefault(name.lower(), name)
        if name.lower() == WINDOW:
            yield f"column {name!r} is the table's own; rename it"
        elif other != name or columns.names.count(name) > 1:
            yield f"columns {other!r} and {name!r} are the same to readers; rename one"


def _impossible(type_: DataType, path: str, format: str) -> Iterator[str]:
    if isinstance(type_, NullType):
        yield f"column {path} has no type (it is always null); cast it to the type it is to have"
    elif format == "csv" and path and (_is_nested(type_) or type_.typeName() in NOT_IN_CSV):
        yield (
            f"column {path} is {type_.simpleString()}, which csv cannot hold; turn it into text "
            "in the pipeline (to_json, base64), or choose another format"
        )
    elif isinstance(type_, StructType):
        for field in type_.fields:
            yield from _impossible(field.dataType, f"{path}.{field.name}".lstrip("."), format)
    elif isinstance(type_, ArrayType):
        yield from _impossible(type_.elementType, f"{path}.element", format)
    elif isinstance(type_, MapType):
        yield from _impossible(type_.keyType, f"{path}.key", format)
        yield from _impossible(type_.valueType, f"{path}.value", format)
    elif type_.simpleString().partition("(")[0] not in PLAIN:
        yield (
            f"column {path} is {type_.simpleString()}, which tables cannot hold; cast it to a "
            "string, a number or a timestamp"
        )


def _is_nested(type_: DataType) -> bool:
    return isinstance(type_, StructType | ArrayType | MapType)


def _nullable(columns: StructType) -> StructType:
    return StructType([StructField(f.name, _nullable_type(f.dataType)) for f in columns.fields])


def _nullable_type(type_: DataType) -> DataType:
    if isinstance(type_, StructType):
        return _nullable(type_)
    if isinstance(type_, ArrayType):
        return ArrayType(_nullable_type(type_.elementType))
    if isinstance(type_, MapType):
        return MapType(_nullable_type(type_.keyType), _nullable_type(type_.valueType))
    return type_

"""Payloads against pydantic models, and the columns that the models amount to."""

import subprocess
import sys
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, field_validator

from dagster_bus.core.topic import SchemaConfig, SchemaVersion
from dagster_bus.errors import UsageError
from dagster_bus.schemas import PayloadSchema, columns, compile_schema


class Colour(Enum):
    RED = "red"


class Item(BaseModel):
    model_config = ConfigDict(extra="forbid")

    sku: str
    count: int | None = None
    parts: list["Item"] = []


class Order(BaseModel):
    model_config = ConfigDict(populate_by_name=True, extra="forbid")

    order_id: UUID
    number: int = Field(1, alias="orderNumber")
    amount: Annotated[Decimal, Field(max_digits=12, decimal_places=2)] = Decimal(0)
    rate: Decimal | None = None
    placed_at: datetime | None = None
    day: date | None = None
    hour: time | None = None
    took: timedelta | None = None
    colour: Colour = Colour.RED
    size: Literal[1, 2] = 1
    weight: float = 0
    express: bool = False
    items: list[Item] = []
    prices: dict[str, float] = {}
    tags: set[str] = set()
    free: dict[str, Any] = {}
    pair: tuple[int, str] | None = None
    any_of: int | str = 1
    call: Callable[[], int] | None = None

    @field_validator("size")
    @classmethod
    def break_down(cls, size: int) -> int:
        if size == 2:
            raise KeyError("a bug of the model")
        return size


class Amounts(BaseModel):
    free: Decimal
    digits: Annotated[Decimal, Field(max_digits=10)]
    many_digits: Annotated[Decimal, Field(max_digits=30)]
    places: Annotated[Decimal, Field(decimal_places=4)]
    too_many: Annotated[Decimal, Field(max_digits=60, decimal_places=50)]


class Numbers(RootModel[list[int]]):
    pass


NOT_A_MODEL = 7
ID = "12345678-1234-5678-1234-567812345678"


def version(name: str) -> SchemaVersion:
    return SchemaVersion("model", f"{__name__}:{name}")


def schema(name: str) -> PayloadSchema:
    return compile_schema(SchemaConfig({1: version(name)}, 1))


def test_a_model_amounts_to_columns() -> None:
    assert columns(version("Order")) == {
        "order_id": "string",
        "orderNumber": "bigint",
        "amount": "decimal(12,2)",
        "rate": "decimal(38,18)",
        "placed_at": "timestamp",
        "day": "date",
        "hour": "string",
        "took": "string",
        "colour": "string",
        "size": "bigint",
        "weight": "double",
        "express": "boolean",
        "items": "array<struct<sku:string,count:bigint,parts:array<string>>>",
        "prices": "map<string,double>",
        "tags": "array<string>",
        "free": "string",
        "pair": "string",
        "any_of": "string",
        "call": "string",
    }


def test_decimals_get_the_room_that_they_ask_for() -> None:
    assert columns(version("Amounts")) == {
        "free": "decimal(38,18)",
        "digits": "decimal(20,10)",
        "many_digits": "decimal(38,18)",
        "places": "decimal(38,4)",
        "too_many": "decimal(38,38)",
    }


def test_a_payload_that_fits_has_no_problem() -> None:
    payload = {
        "order_id": ID,
        "orderNumber": 7,
        "amount": "12.50",
        "rate": 0.5,
        "placed_at": "2026-11-18T01:02:03.5+02:00",
        "day": "2026-11-18",
        "hour": "01:02:03",
        "took": "PT1S",
        "colour": "red",
        "weight": 3,
        "items": [{"sku": "a", "count": 1, "parts": [{"sku": "b"}]}],
        "prices": {"eu": 1.5},
        "tags": ("x",),
        "free": {"a": [1]},
        "pair": [1, "a"],
        "any_of": "x",
    }
    assert schema("Order").problem(payload, 1) is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"order_id": "x"}, "order_id: Input should be a valid UUID"),
        ({"orderNumber": "7"}, 'orderNumber: Input should be a valid integer (found "7")'),
        ({"orderNumber": 7.0}, "orderNumber: Input should be a valid integer (found 7.0)"),
        ({"ordernumber": 7}, "unknown field 'ordernumber'; did you mean 'orderNumber'?"),
        ({"number": 7}, "unknown field 'number'"),
        ({"amount": "12.345"}, "amount: Decimal input should have no more than 2 decimal places "
         '(found "12.345")'),
        ({"items": [{"sku": "a"}, {}]}, "items[1].sku: missing"),
        ({"items": [{"sku": "a", "x": 1}]}, "items[0]: unknown field 'x'"),
        ({"express": 1}, "express: Input should be a valid boolean (found 1)"),
        ({"size": 2}, "payload: tests.unit.test_schemas_model:Order failed with KeyError: 'a bug"),
    ],
)  # fmt: skip
def test_a_problem_says_where_and_why(change: dict[str, Any], told: str) -> None:
    found = schema("Order").problem({"order_id": ID, **change}, 1)
    assert found is not None
    assert found.startswith(told)
    assert "\n" not in found


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"placed_at": "2026-11-18T01:02Z"}, 'placed_at: "2026-11-18T01:02Z" is not a timestamp;'),
        ({"placed_at": "1700000000"}, 'placed_at: "1700000000" is not a timestamp;'),
        ({"orderNumber": 1 << 70}, "orderNumber: 1180591620717411303424 is out of range"),
        (
            {"rate": "0.1234567890123456789"},
            'rate: "0.1234567890123456789" has more than 18 digits',
        ),
        ({"weight": float("nan")}, "weight: nan is not a number (double)"),
    ],
)
def test_what_pydantic_takes_and_spark_cannot_read_is_a_problem(
    change: dict[str, Any], told: str
) -> None:
    found = schema("Order").problem({"order_id": ID, **change}, 1)
    assert found is not None
    assert found.startswith(told)


@pytest.mark.parametrize("payload", [None, 7, [], {"order_id": object()}, {"order_id": "\ud800"}])
def test_what_is_no_object_of_json_is_a_problem_and_no_traceback(payload: Any) -> None:
    found = schema("Order").problem(payload, 1)
    assert found is not None
    assert "\n" not in found


def test_a_model_of_something_else_has_no_columns() -> None:
    assert columns(version("Numbers")) == {}
    assert schema("Numbers").problem([1, 2], 1) is None
    assert schema("Numbers").problem([1, "2"], 1) == (
        '[1]: Input should be a valid integer (found "2")'
    )


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        (
            "nowhere:Order",
            "model nowhere:Order: No module named 'nowhere'; is its folder on PYTHON",
        ),
        (f"{__name__}:Nothing", "has no pydantic model 'Nothing'"),
        (f"{__name__}:NOT_A_MODEL", "has no pydantic model 'NOT_A_MODEL'"),
        ("Order", "model 'Order' cannot be imported: write module:Class"),
        ("broken_model:Order", "importing broken_model failed with RuntimeError: out of order"),
    ],
)
def test_a_model_that_is_not_there_is_told_with_its_path(
    path: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_model.py").write_text("raise RuntimeError('out of order')")
    monkeypatch.syspath_prepend(tmp_path)
    wrong = SchemaVersion("model", path)
    for use in (columns, lambda each: compile_schema(SchemaConfig({1: each}, 1))):
        with pytest.raises(UsageError) as found:
            use(wrong)
        assert complaint in str(found.value)


def test_importing_the_schemas_brings_in_no_heavy_library() -> None:
    heavy = ["pydantic", "jsonschema_rs", "pyspark", "yaml", "dagster"]
    code = f"import sys, dagster_bus.schemas; print([m for m in {heavy} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"

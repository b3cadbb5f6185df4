"""Payloads checked by a pydantic model, and by what Spark makes of them.

The model sees a payload as the JSON text that it becomes, strictly: text in ISO 8601 is a date,
and "12" is not a number. Spark reads the same text and is no more lenient.
"""

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dagster_bus.errors import UsageError
from dagster_bus.schemas.document import COLUMN_TYPE, document_columns
from dagster_bus.schemas.rules import Rules, and_arrives
from dagster_bus.schemas.tree import Decimals, Struct, spelled
from dagster_bus.schemas.types import MAX_PRECISION
from dagster_bus.schemas.words import path_of, shown, unknown_field

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

USUAL_SCALE = 18
"""Digits after the point of a Decimal that declares none."""


def model_rules(path: str) -> Rules:
    """Raises UsageError if there is no pydantic model at an import path, module:Class."""
    from pydantic import ValidationError
    from pydantic_core import PydanticSerializationError, to_json

    model = _load(path)

    def check(payload: Any) -> list[str]:
        try:
            model.model_validate_json(to_json(payload), strict=True, by_alias=True, by_name=False)
        except ValidationError as error:
            return [_told(each, model) for each in error.errors(include_url=False)]
        except (PydanticSerializationError, ValueError) as error:
            return [f"payload: {error}"]
        except Exception as error:  # noqa: BLE001  (a model's own validators may raise anything)
            return [f"payload: {path} failed with {type(error).__name__}: {error}"]
        return []

    def fits(payload: Any) -> bool:
        return not check(payload)

    def problems(payload: Any) -> Iterator[str]:
        return iter(check(payload))

    return and_arrives(Rules(fits, problems), _columns(model))


def model_columns(path: str) -> Struct:
    """The columns of a model's payloads. Raises UsageError if there is no such model."""
    return _columns(_load(path))


def _load(path: str) -> "type[BaseModel]":
    from pydantic import BaseModel

    module_name, _, class_name = str(path).partition(":")
    if not module_name or not class_name:
        raise UsageError(f"model {path!r} cannot be imported: write module:Class")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise UsageError(f"model {path}: {error}; is its folder on PYTHONPATH?") from error
    except Exception as error:
        raise UsageError(
            f"model {path}: importing {module_name} failed with {type(error).__name__}: {error}"
        ) from error
    model = getattr(module, class_name, None)
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise UsageError(f"model {path}: {module_name} has no pydantic model {class_name!r}")
    return model


def _columns(model: "type[BaseModel]") -> Struct:
    from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

    class WithDecimals(GenerateJsonSchema):
        """Names what JSON Schema cannot say, and passes over what it has no word for."""

        ignored_warning_kinds: set[JsonSchemaWarningKind] = {  # noqa: RUF012  (pydantic's own)
            "skipped-choice",
            "non-serializable-default",
        }

        def decimal_schema(self, schema: Any) -> dict[str, Any]:
            type_ = _decimals(schema.get("max_digits"), schema.get("decimal_places"))
            return {COLUMN_TYPE: spelled(type_)}

        def handle_invalid_for_json_schema(
            self,
            schema: Any,  # noqa: ARG002
            error_info: str,  # noqa: ARG002
        ) -> dict[str, Any]:
            return {}

    document = model.model_json_schema(mode="validation", schema_generator=WithDecimals)
    return document_columns(document)


def _decimals(digits: int | None, places: int | None) -> Decimals:
    """The type that holds what a field of type Decimal may hold, as far as Spark can."""
    if digits is None:
        return Decimals(
            MAX_PRECISION, min(MAX_PRECISION, USUAL_SCALE if places is None else places)
        )
    if places is None:  # all digits may stand on either side of the point
        scale = min(digits, USUAL_SCALE)
        return Decimals(min(MAX_PRECISION, digits + scale), scale)
    precision = min(MAX_PRECISION, max(digits, places))
    return Decimals(precision, min(places, precision))


def _told(error: "ErrorDetails", model: "type[BaseModel]") -> str:
    """An error of pydantic in the words of this package."""
    *above, last = error["loc"] or ("",)
    if error["type"] == "extra_forbidden":
        known = [] if above else [field.alias or name for name, field in model.model_fields.items()]
        return unknown_field(path_of(above), last, known)
    path = path_of(error["loc"]) or "payload"
    if error["type"] == "missing":
        return f"{path}: missing"
    return f"{path}: {error['msg']} (found {shown(error['input'])})"

"""What the models of the file have in common."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Tag,
)
from pydantic_core import CoreSchema, core_schema

from dagster_bus.core.event import Attribute
from dagster_bus.spec.hints import shown


class Spec(BaseModel):
    """Frozen, and strict about what it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def fields_by_key(model: type[BaseModel]) -> dict[str, Any]:
    """A model's fields by the key they have in the file."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


@dataclass(frozen=True, slots=True)
class Word:
    """Marks a text as checked by a function, and tells editors its pattern."""

    check: Callable[[str], str]
    """Returns the text as it counts, or raises ValueError saying what is allowed."""
    pattern: str | None = None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        pattern = {} if self.pattern is None else {"pattern": f"^(?:{self.pattern})$"}
        return {**handler(schema), **pattern}


def _single(value: Any) -> Attribute:
    if not isinstance(value, str | int | float):
        raise ValueError(f"{shown(value)} cannot stand here (text, a number, true or false)")
    return value


@dataclass(frozen=True, slots=True)
class _SingleValue:
    """Text, a number, true or false."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return AfterValidator(_single).__get_pydantic_core_schema__(source, handler)

    def __get_pydantic_json_schema__(
        self,
        schema: CoreSchema,
        handler: GetJsonSchemaHandler,
    ) -> dict[str, Any]:
        return {"type": ["string", "number", "boolean"]}


SingleValue = Annotated[Any, _SingleValue()]

# A value may have a short form. What was written says which one is meant, so that mistakes are
# told of that one only. The names of the forms are no keys: paths of mistakes pass over them.
TEXT, LIST, MAPPING = Tag("(text)"), Tag("(list)"), Tag("(mapping)")


def _mapping_or(other: str) -> Discriminator:
    return Discriminator(lambda value: "(mapping)" if isinstance(value, dict | Spec) else other)


TEXT_OR_MAPPING = _mapping_or("(text)")
LIST_OR_MAPPING = _mapping_or("(list)")
TEXT_OR_LIST = Discriminator(lambda value: "(list)" if isinstance(value, list) else "(text)")

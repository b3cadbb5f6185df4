"""The grammar as a JSON Schema, for editors that complete and check while one types.

It fits what people write: durations as text, a variable in place of any single value. What one part
asks of another it does not say; `dagster-bus validate` does.
"""

from typing import Any

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from dagster_bus.spec.models import BusSpec

DIALECT = "https://json-schema.org/draft/2020-12/schema"
VARIABLE = {"type": "string", "pattern": r"\$\{"}


def json_schema() -> dict[str, Any]:
    """The schema of the whole file."""
    made = BusSpec.model_json_schema(schema_generator=_Generator)
    return {"$schema": DIALECT, "title": "topics.yaml of dagster-bus", **_as_written(made)}


class _Generator(GenerateJsonSchema):
    """Leaves out null, which the file does not know, and defaults, which are not in its units."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> dict[str, Any]:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
        return self.generate_inner(schema["schema"])


def _as_written(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema, and all inside it, with variables allowed and without names of classes."""
    made = {key: value for key, value in schema.items() if key != "title"}
    if "description" in made:
        made["description"] = " ".join(made["description"].split())
    for key in ("properties", "patternProperties", "$defs"):
        if key in made:
            made[key] = {name: _as_written(inner) for name, inner in made[key].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(made.get(key), dict):
            made[key] = _as_written(made[key])
    if "patternProperties" in made:
        made["additionalProperties"] = False
    return _with_variable(made)


def _with_variable(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema that lets a variable pass wherever it asks for a single value."""
    if _is_single(schema):
        description = {"description": schema["description"]} if "description" in schema else {}
        form = {key: value for key, value in schema.items() if key != "description"}
        return {**description, "anyOf": [form, VARIABLE]}
    forms = schema.get("oneOf") or schema.get("anyOf")
    if forms is None:
        return schema
    rest = {key: value for key, value in schema.items() if key not in ("oneOf", "anyOf")}
    inner = [form if _is_single(form) else _as_written(form) for form in forms]
    return {**rest, "anyOf": [*inner, VARIABLE] if any(map(_is_single, forms)) else inner}


def _is_single(schema: dict[str, Any]) -> bool:
    """Whether a schema is of a single value, and of more than any text."""
    checked = {"enum", "const", "pattern"} & schema.keys()
    return bool(checked) or schema.get("type") in ("integer", "number", "boolean")

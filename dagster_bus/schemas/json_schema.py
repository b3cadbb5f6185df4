"""Payloads checked by a JSON Schema document, and by what Spark makes of them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from dagster_bus.errors import UsageError
from dagster_bus.schemas.document import document_columns, find
from dagster_bus.schemas.rules import Rules, and_arrives
from dagster_bus.schemas.words import field_path, path_of, shortened, shown, unknown_field

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

LONGEST_MESSAGE = 200

_VALUE = "\ufffc"
"""Stands for the value in the library's messages, which repeat it in full."""


def json_schema_rules(document: Any) -> Rules:
    """Raises ValueError for what is not a JSON Schema, UsageError if the library is missing."""
    validator = _validator(document)

    def fits(payload: Any) -> bool:
        try:
            return validator.is_valid(payload)
        except ValueError:  # a Python value that JSON does not have
            return False

    def problems(payload: Any) -> Iterator[str]:
        try:
            for error in validator.iter_errors(payload):
                yield from _told(error, document)
        except ValueError as error:
            yield f"payload: {error}"

    return and_arrives(Rules(fits, problems), document_columns(document))


def _validator(document: Any) -> "Validator":
    try:
        import jsonschema_rs
    except ImportError as error:
        raise UsageError(
            f"JSON Schemas need a library that cannot be imported ({error}): "
            "pip install 'dagster-bus[jsonschema]'"
        ) from None
    if not isinstance(document, dict | bool):
        raise ValueError(f"a JSON Schema is an object, and not {type(document).__name__}")
    try:
        return jsonschema_rs.validator_for(
            document, validate_formats=True, retriever=_refuse, mask=_VALUE
        )
    except jsonschema_rs.ValidationError as error:
        place = path_of(error.instance_path)
        raise ValueError(
            f"not a JSON Schema: {place}{': ' if place else ''}{_message(error)}"
        ) from None
    except ValueError as error:
        raise ValueError(f"not a JSON Schema: {shortened(str(error), LONGEST_MESSAGE)}") from None


def _refuse(uri: str) -> NoReturn:
    """A schema that changes with a server's answers is none, and publishing waits for nobody."""
    raise ValueError(f"{uri} is not fetched; put its definitions into $defs")


def _told(error: "ValidationError", document: Any) -> Iterator[str]:
    """An error of the library in the words of this package."""
    path = path_of(error.instance_path)
    match error.kind.name, error.kind.value:
        case "additionalProperties" | "unevaluatedProperties", list(names):
            known = find(document, [*error.schema_path[:-1], "properties"])
            fields = list(known) if isinstance(known, dict) else []
            yield from (unknown_field(path, name, fields) for name in names)
        case "required", str(name):
            yield f"{field_path(path, name)}: missing"
        case _:
            yield f"{path or 'payload'}: {_message(error)}"


def _message(error: "ValidationError") -> str:
    return shortened(error.message.replace(_VALUE, shown(error.instance)), LONGEST_MESSAGE)

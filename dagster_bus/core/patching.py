"""Changes to payloads, as JSON Patch (RFC 6902)."""

from collections.abc import Mapping, Sequence
from typing import Any

from dagster_bus.core.encoding import parse_json
from dagster_bus.errors import InvalidPayloadError, UsageError

Patch = Sequence[Mapping[str, Any]]
"""The operations, one after the other: {"op": "replace", "path": "/amount", "value": 5}"""


def require_patch(patch: Any) -> Patch:
    """Refuse what is no patch at all, before any payload is looked at."""
    import jsonpatch

    try:
        jsonpatch.JsonPatch(patch)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError) as error:
        raise UsageError(
            f"this is not a JSON Patch: {error}. Write a list of operations, such as "
            '[{"op": "replace", "path": "/amount", "value": 5}]'
        ) from None
    checked: Patch = patch
    return checked


def parse_patch(text: str) -> Patch:
    """A patch from its JSON text."""
    return require_patch(parse_json(text))


def patched(payload: Any, patch: Patch) -> Any:
    """A payload with a patch applied; the given one is left as it is."""
    import jsonpatch

    try:
        return jsonpatch.apply_patch(payload, [dict(step) for step in patch])
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError) as error:
        raise InvalidPayloadError(f"the patch does not fit the payload: {error}") from None

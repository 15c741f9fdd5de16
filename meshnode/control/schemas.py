"""Schemas of the control API's values: those of its structs, with what comments say of their fields, and row values."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any, Final, get_args

import msgspec

from meshnode.node.jsonvalues import BYTES_NAME, INTEGER_HIGH, INTEGER_LOW

_FIELD: Final = re.compile(r"    (\w+): .*?  # (?!noqa)(.+)")

VALUES: Final[dict[str, Any]] = {
    "Value": {
        "title": "Value",
        "description": "A value of a row (profile §4). A number without point and exponent is an integer.",
        "anyOf": [
            {"type": ["null", "boolean", "string"]},
            {"type": "integer", "minimum": INTEGER_LOW, "maximum": INTEGER_HIGH},
            {"type": "number"},
            {"$ref": "#/components/schemas/Bytes"},
        ],
    },
    "Bytes": {
        "title": "Bytes",
        "description": "A byte string: JSON has none.",
        "type": "object",
        "properties": {BYTES_NAME: {"type": "string", "pattern": "^([0-9a-f]{2})*$"}},
        "required": [BYTES_NAME],
        "additionalProperties": False,
    },
}
"""What `meshnode.node.views.Value` refers to, and what is in it."""


def described(schemas: dict[str, Any], kinds: Iterable[Any]) -> dict[str, Any]:
    """The schemas with what is said of each struct and field."""
    found: dict[str, type[msgspec.Struct]] = {}
    for kind in kinds:
        _gather(kind, found)
    for name, struct in found.items():
        schema = schemas[name]
        schema["description"] = paragraphs(schema.get("description", ""))
        for field, said in _comments(struct).items():
            if field in schema["properties"]:
                schema["properties"][field]["description"] = f"{said[0].upper()}{said[1:]}."
    return schemas


def paragraphs(text: str) -> str:
    """A docstring without the line breaks inside of its paragraphs."""
    return "\n\n".join(" ".join(each.split()) for each in inspect.cleandoc(text).split("\n\n"))


def _gather(kind: Any, found: dict[str, type[msgspec.Struct]]) -> None:
    """The structs in a type, and those in their fields."""
    for inside in get_args(kind):
        _gather(inside, found)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__name__ not in found:
        found[kind.__name__] = kind
        for field in msgspec.structs.fields(kind):
            _gather(field.type, found)


def _comments(struct: type[msgspec.Struct]) -> dict[str, str]:
    matches = [_FIELD.fullmatch(line) for line in inspect.getsource(struct).splitlines()]
    return {match[1]: match[2] for match in matches if match is not None}

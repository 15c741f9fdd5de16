"""Views and row values in JSON: the one form that the CLI prints and reads and that the control API speaks.

JSON has every value of profile §4 but byte strings: those are `{"$bytes": "<lowercase hex>"}`. Booleans are kept as
JSON's own. An object of any other shape is no value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

import msgspec

from meshnode.errors import UsageError
from meshnode.model.wording import quoted

BYTES_NAME = "$bytes"
INTEGER_LOW, INTEGER_HIGH = -(2**63), 2**63 - 1  # profile §4

T = TypeVar("T")


def to_json_builtins(value: Any) -> Any:
    """A view, or anything made of views and row values, as what `json` can write."""
    return _wrapped(msgspec.to_builtins(value, builtin_types=(bytes,)))


def to_json(value: Any) -> str:
    """One line of JSON."""
    return json.dumps(to_json_builtins(value), ensure_ascii=False, separators=(",", ":"))


def from_json_builtins(raw: Any, kind: type[T]) -> T:
    """What `json` read, as the given type; raises UsageError that says where it does not fit."""
    try:
        return msgspec.convert(_unwrapped(raw), kind)
    except msgspec.ValidationError as error:
        raise UsageError(str(error)) from error
    except RecursionError as error:
        raise UsageError("nested too deep") from error


def parse_json(text: str | bytes) -> Any:
    """Strict JSON with byte strings unwrapped: no NaN, no name twice in an object. Raises UsageError."""
    try:
        return _unwrapped(json.loads(text, parse_constant=_no_constant, object_pairs_hook=_object))
    except RecursionError as error:
        raise UsageError("not JSON: nested too deep") from error
    except ValueError as error:
        raise UsageError(f"not JSON: {error}") from error


def parse_value(text: str | bytes) -> Any:
    """One column value written in JSON; raises UsageError."""
    return checked_value(parse_json(text))


def checked_value(value: Any) -> Any:
    """The value, if it exists in the profile (§4); raises UsageError."""
    if value is None or isinstance(value, bool | bytes):
        return value
    if isinstance(value, int):
        if not INTEGER_LOW <= value <= INTEGER_HIGH:
            raise UsageError(f"{value} does not fit a signed 64-bit integer: write it as text")
        return value
    if isinstance(value, float):
        if math.isnan(value):
            raise UsageError("NaN is no number that can be kept (SSP/1 §2): use null where there is none")
        if math.isinf(value):
            raise UsageError("infinity, or a number too large for a 64-bit float: write it as text")
        return value
    if isinstance(value, str):
        _check_text(value)
        return value
    kind = "an array" if isinstance(value, list) else "an object"
    if not isinstance(value, list | dict):
        raise UsageError(
            f"a value of type {type(value).__name__} is none of a column: rows of `node.table(…)` may have datetime "
            "and Decimal, all else is written as text"
        )
    raise UsageError(f'{kind} is no column value: write it as text, and bytes as {{"{BYTES_NAME}": "<hex>"}}')


def checked_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Columns with their values, each checked; raises UsageError."""
    if not isinstance(values, Mapping):
        raise UsageError(f"columns are given as a mapping of names to values, not as {type(values).__name__}")
    checked = {}
    for name, value in values.items():
        try:
            checked[name] = checked_value(value)
        except UsageError as error:
            raise UsageError(f"column {name!r}: {error}") from error
    return checked


def _check_text(value: str) -> None:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError("text that is not Unicode: bytes that are no UTF-8, or half a surrogate pair") from error


def _wrapped(value: Any) -> Any:
    if isinstance(value, bytes):
        return {BYTES_NAME: value.hex()}
    if isinstance(value, dict):
        return {name: _wrapped(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_wrapped(item) for item in value]
    return value


def _unwrapped(raw: Any) -> Any:
    if isinstance(raw, dict):
        if BYTES_NAME in raw and len(raw) == 1:
            return _bytes(raw[BYTES_NAME])
        return {name: _unwrapped(item) for name, item in raw.items()}
    if isinstance(raw, list):
        return [_unwrapped(item) for item in raw]
    return raw


def _bytes(text: Any) -> bytes:
    try:
        return bytes.fromhex(text)
    except (TypeError, ValueError) as error:
        raise UsageError(f'"{BYTES_NAME}" takes an even number of hex digits') from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the name {quoted(name)} comes twice in one object")
        found[name] = value
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")

"""Python values as columns keep them, and back: what a typed row may hold (SSP/1 §2, profile §4).

SSP/1 §2 names the logical types beside CBOR's own: a timestamp is ISO-8601 text in UTC with a Z, a decimal is text,
binary is a byte string. There are no others: a date, a UUID or an enumeration is what its program makes of it, text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from meshnode.model.event import Scalar
from meshnode.node.jsonvalues import INTEGER_HIGH, INTEGER_LOW
from meshnode.store.affinity import Affinity

_DECIMAL: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_SHOWN_CHARACTERS: Final = 60  # of a value that does not fit


@dataclass(frozen=True, slots=True)
class Kind:
    """One type of a field: how its values are kept. Both ways raise ValueError that says what is wrong."""

    name: str  # as a program writes it
    sql: str  # the type of a column that is made for it
    keeps: frozenset[Affinity]  # the affinities that give back what was written
    write: Callable[[Any], Scalar]
    read: Callable[[Any], Any]


def kept(value: Any) -> Scalar:
    """Any value that a column can hold, by its own type; ValueError says why there is none."""
    if value is None:
        return None
    for kind in KINDS:
        if isinstance(value, kind):
            return KINDS[kind].write(value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise ValueError(f"{shown(value)} is a {type(value).__name__}, and a column holds {NAMES}")


def shown(value: Any) -> str:
    """A value as a message has it."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _write_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _no("bool", value)
    return value


def _read_bool(value: Any) -> bool:
    if not isinstance(value, int) or value not in (0, 1):
        raise _no("bool", value)
    return bool(value)


def _write_int(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _no("int", value)
    if not INTEGER_LOW <= value <= INTEGER_HIGH:
        raise ValueError(f"an int of {value.bit_length()} bits does not fit a signed 64-bit integer: keep it as text")
    return int(value)


def _read_int(value: Any) -> int:
    if not isinstance(value, int):
        raise _no("int", value)
    return int(value)


def _write_float(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _no("float", value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value!r} is no number that can be kept (SSP/1 §2): use None where there is none")
    exact = _float(value)
    if exact != value:
        raise ValueError(f"{shown(value)} is no 64-bit float: keep it as text, or as an int")
    return exact


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ValueError("a number too large for a 64-bit float: keep it as text") from None


def _read_float(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _no("float", value)
    return float(value)


def _write_str(value: Any) -> str:
    if not isinstance(value, str):
        raise _no("str", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("text that is not Unicode: it holds half of a surrogate pair") from None
    return str.__str__(value)


def _read_str(value: Any) -> str:
    if not isinstance(value, str):
        raise _no("str", value)
    return value


def _write_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _no("bytes", value)
    return bytes(value)


def _read_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise _no("bytes", value)
    return value


def _write_datetime(value: Any) -> str:
    """Always six digits of a fraction: so the order of the texts is that of the times."""
    if not isinstance(value, datetime):
        raise _no("datetime", value)
    if value.utcoffset() is None:
        raise ValueError(f"{value!r} has no time zone: give it one, as by datetime.now(UTC) or .astimezone()")
    try:
        moment = value.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{value!r} has no year in UTC that can be written") from None
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _read_datetime(value: Any) -> datetime:
    if not isinstance(value, str):
        raise _no("datetime", value)
    try:
        moment = datetime.fromisoformat(value)
        if moment.utcoffset() is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{shown(value)} is no ISO-8601 time with its zone")


def _write_decimal(value: Any) -> str:
    if not isinstance(value, Decimal):
        raise _no("Decimal", value)
    if not value.is_finite():
        raise ValueError(f"{value!r} is no number that can be kept (SSP/1 §2): use None where there is none")
    return str(value)


def _read_decimal(value: Any) -> Decimal:
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    if not isinstance(value, str) or not _DECIMAL.fullmatch(value):
        raise _no("Decimal", value)
    try:
        return Decimal(value)
    except InvalidOperation:
        raise _no("Decimal", value) from None


def _as_it_is(value: Any) -> Any:
    return value


def _no(name: str, value: Any) -> ValueError:
    return ValueError(f"{shown(value)} is no {name}")


_ANY: Final = frozenset(Affinity)
_WHOLE: Final = frozenset({Affinity.INTEGER, Affinity.NUMERIC, Affinity.BLOB})  # where an integer stays one
_NUMBER: Final = _ANY - {Affinity.TEXT}
_TEXT: Final = frozenset({Affinity.TEXT, Affinity.BLOB})  # where "007" stays what it is

ANYTHING: Final = Kind("Any", "BLOB", _ANY, kept, _as_it_is)
"""Of a field that has no type: whatever is written, and what SQL shows of it."""

KINDS: Final[Mapping[type, Kind]] = {  # bool before int, of which it is a kind
    bool: Kind("bool", "INTEGER", _WHOLE, _write_bool, _read_bool),
    int: Kind("int", "INTEGER", _WHOLE, _write_int, _read_int),
    float: Kind("float", "REAL", _NUMBER, _write_float, _read_float),
    str: Kind("str", "TEXT", _TEXT, _write_str, _read_str),
    bytes: Kind("bytes", "BLOB", _ANY, _write_bytes, _read_bytes),
    datetime: Kind("datetime", "TEXT", _ANY, _write_datetime, _read_datetime),
    Decimal: Kind("Decimal", "TEXT", _TEXT, _write_decimal, _read_decimal),
}
NAMES: Final = ", ".join(kind.name for kind in KINDS.values()) + " or None"

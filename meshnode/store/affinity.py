"""What SQLite makes of a value in a column: affinity and STRICT types, decided before anything is written (profile §5).

https://www.sqlite.org/datatype3.html §3 and https://www.sqlite.org/stricttables.html are the rules; the tests compare
with SQLite itself.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from meshnode.model.event import KeyValue, Scalar


class Affinity(StrEnum):
    """The five column affinities."""

    INTEGER = "INTEGER"
    TEXT = "TEXT"
    BLOB = "BLOB"
    REAL = "REAL"
    NUMERIC = "NUMERIC"


_RULES: Final = (
    (("INT",), Affinity.INTEGER),
    (("CHAR", "CLOB", "TEXT"), Affinity.TEXT),
    (("BLOB",), Affinity.BLOB),
    (("REAL", "FLOA", "DOUB"), Affinity.REAL),
)
# What SQLite reads as a number: ASCII digits, its own six spaces around, no hexadecimal, no underscores.
_NUMBER: Final = re.compile(r"[ \t\n\v\f\r]*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t\n\v\f\r]*\Z")
_STRICT_TYPES: Final = ("INTEGER", "REAL", "TEXT", "BLOB")
_INT_MIN: Final = -(2**63)
_INT_MAX: Final = 2**63 - 1


def affinity_of(declared: str, *, strict: bool) -> Affinity:
    """The affinity of a declared type; STRICT's ANY keeps values as they are."""
    if not declared or (strict and declared.upper() == "ANY"):
        return Affinity.BLOB
    folded = declared.upper()
    for parts, affinity in _RULES:
        if any(part in folded for part in parts):
            return affinity
    return Affinity.NUMERIC


def reads_as_number(text: str) -> bool:
    """Whether a numeric affinity would turn this text into a number."""
    return _NUMBER.match(text) is not None


def key_survives(value: KeyValue, affinity: Affinity, *, strict: str | None, rowid: bool) -> bool:
    """Whether a key value comes back from the column with its type and value unchanged.

    `strict` is the STRICT type, None in an ordinary table; an alias of the `rowid` takes integers only.
    """
    if type(value) is int:
        return affinity in (Affinity.INTEGER, Affinity.NUMERIC) or (affinity is Affinity.BLOB and strict != "BLOB")
    if rowid:
        return False
    if type(value) is bytes:
        return strict in (None, "BLOB", "ANY")
    if affinity is Affinity.TEXT:
        return True
    if affinity is Affinity.BLOB:
        return strict != "BLOB"
    return strict is None and not reads_as_number(str(value))


def strict_accepts(value: Scalar, strict: str) -> bool:
    """Whether a column of this STRICT type stores the value, after its affinity was applied."""
    if value is None or strict == "ANY":
        return True
    if isinstance(value, bytes):
        return strict == "BLOB"
    if strict == "TEXT":
        return True
    if strict == "BLOB":
        return False
    if isinstance(value, str):
        if not reads_as_number(value):
            return False
        return strict == "REAL" or _reads_as_integer(value)
    return strict == "REAL" or isinstance(value, int) or _is_integral(value)


def acceptance(value: Scalar) -> int:
    """Which STRICT types store the value, a bit each; an ordinary column and ANY store everything."""
    return sum(1 << at for at, strict in enumerate(_STRICT_TYPES) if strict_accepts(value, strict))


def _reads_as_integer(text: str) -> bool:
    try:
        return _INT_MIN <= int(text) <= _INT_MAX or _is_integral(float(text))
    except ValueError:
        return _is_integral(float(text))


def _is_integral(value: float) -> bool:
    """SQLite stores a float as an integer only strictly between the extremes."""
    return value == value // 1 and _INT_MIN < value < _INT_MAX

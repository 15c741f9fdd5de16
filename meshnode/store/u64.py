"""Unsigned 64-bit clock parts in SQLite's signed integers, keeping their order.

Below 2^63 a value is an INTEGER; from there on it is its 8 big-endian bytes. SQLite sorts every INTEGER before every
BLOB, so columns without affinity compare as the unsigned numbers do, and common values stay short.
"""

from __future__ import annotations

_SIGNED_END = 2**63


def to_sql(value: int) -> int | bytes:
    """The stored form of an unsigned 64-bit integer."""
    return value if value < _SIGNED_END else value.to_bytes(8, "big")


def from_sql(stored: int | bytes) -> int:
    """The unsigned 64-bit integer behind a stored form."""
    return stored if isinstance(stored, int) else int.from_bytes(stored, "big")

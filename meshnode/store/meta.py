"""Single values by name in `meshnode_meta`: what the mesh is, who this node is, the clock and the counters."""

from __future__ import annotations

import struct
from typing import Any, Final

from meshnode.errors import CorruptStateError
from meshnode.model.hlc import ZERO, Hlc
from meshnode.store.database import Tx

MESH_ID: Final = "mesh_id"
FOUNDER: Final = "founder"  # public key
SITE: Final = "site"
INCARNATION: Final = "incarnation"
CLOCK: Final = "clock"
NEXT_POSITION: Final = "next_position"
NEXT_CHANGE: Final = "next_change"
NEXT_CONFLICT_CHANGE: Final = "next_conflict_change"
BUNDLED_TO: Final = "bundled_to"
PROJECTION: Final = "projection"  # of an attached app's database: what it is a copy of

_PAIR: Final = struct.Struct(">QQ")


def read(tx: Tx, name: str) -> Any:
    """The value of `name`, None where there is none."""
    row = tx.execute("SELECT value FROM meshnode_meta WHERE name = ?", (name,)).fetchone()
    return row[0] if row else None


def read_bytes(tx: Tx, name: str) -> bytes:
    """A value that must be there as a byte string."""
    value = read(tx, name)
    if not isinstance(value, bytes):
        raise CorruptStateError(f"the database holds no usable {name}: restore it from a backup or join the mesh again")
    return value


def write(tx: Tx, name: str, value: int | str | bytes) -> None:
    """Set the value of `name`."""
    tx.execute("INSERT OR REPLACE INTO meshnode_meta (name, value) VALUES (?, ?)", (name, value))


def remove(tx: Tx, name: str) -> None:
    """There is no `name` any more."""
    tx.execute("DELETE FROM meshnode_meta WHERE name = ?", (name,))


def read_counter(tx: Tx, name: str) -> int:
    """The next number of a counter that never goes back; the first is 1."""
    value = read(tx, name)
    if value is None:
        return 1
    if not isinstance(value, int):
        raise CorruptStateError(f"the counter {name} in the database cannot be read")
    return value


def read_clock(tx: Tx) -> Hlc:
    """The saved HLC."""
    value = read(tx, CLOCK)
    if value is None:
        return ZERO
    if not isinstance(value, bytes) or len(value) != _PAIR.size:
        raise CorruptStateError("the clock in the database cannot be read")
    return Hlc(*_PAIR.unpack(value))


def write_clock(tx: Tx, clock: Hlc) -> None:
    """Save the HLC in the transaction that used it (SSP/1 §13.5, clock durability)."""
    write(tx, CLOCK, _PAIR.pack(*clock))

"""The durable change sequence: what changed in which row, written in the transaction that changed it.

`watch` and every later subscription read it by number: no gap, resumable, bounded.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from meshnode.limits import CHANGES_KEPT
from meshnode.store.database import Tx

UPSERT: Final = "upsert"
DELETE: Final = "delete"
RESURRECT: Final = "resurrect"  # a row that had been deleted exists again (SSP/1 §13.2)
WITHHOLD: Final = "withhold"  # the row exists and its table does not allow it (profile §5)
SHOW: Final = "show"  # the table allows a row that was withheld
TAKEN_BACK: Final = "taken-back"  # the row was rebuilt without events that are not acceptable any more (profile §9)
FORGET: Final = "forget"  # a row of the table was forgotten here; which one is not kept

HIDES: Final = frozenset((DELETE, WITHHOLD, FORGET))
"""Operations after which no reader sees the row."""

OLD_BYTES: Final = 4096  # of one old value that is kept with a change: it bounds what changes add to the disk
_TRIM_EVERY: Final = 1024  # changes between two trims

ChangeRow: TypeAlias = tuple[int, int, bytes]


class RowChange(NamedTuple):
    """What one batch did to one row; the newest event that touched it is named by its site and clock.

    A row that no reader saw before is told whole, so who applies the changes in order has what the table shows. What
    has a default came later: changes that were kept before are read without it.
    """

    op: str
    key_bytes: bytes  # deterministic CBOR of the row key
    values: dict[str, Any]  # columns that got a value, null included
    cleared: list[str]  # columns that a delete cleared
    site: bytes
    physical: int
    logical: int
    partial: bool = False  # possibly without values from below the horizon (SSP/1 §13.4)
    gone: bool = False  # taken back, and no reader sees the row any more
    unmaterialized: tuple[str, ...] = ()  # columns that lost their value as if nobody had ever written it
    old: dict[str, Any] = {}  # noqa: RUF012 - what the columns held before, but for what is longer than `OLD_BYTES`

    @property
    def exists(self) -> bool:
        """Whether a reader sees the row after this."""
        return self.op not in HIDES and not self.gone


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RowChange).decode


def row(seq: int, table_no: int, change: RowChange) -> ChangeRow:
    """The row of one change."""
    return seq, table_no, _encode(change)


def append(tx: Tx, rows: list[ChangeRow]) -> None:
    """Write the changes of one batch and forget those that are too old."""
    if not rows:
        return
    tx.executemany("INSERT INTO meshnode_changes VALUES (?, ?, ?)", rows)
    first, last = rows[0][0], rows[-1][0]
    if first // _TRIM_EVERY != (last + 1) // _TRIM_EVERY:
        tx.execute("DELETE FROM meshnode_changes WHERE seq <= ?", (last - CHANGES_KEPT,))


def unpack(data: bytes) -> RowChange:
    """The change behind a stored row."""
    return _decode(data)

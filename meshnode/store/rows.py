"""Row states by (table, key): the clocks that decide what a row becomes (profile §5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import msgspec

from meshnode.errors import CorruptStateError
from meshnode.merge.rows import RowState
from meshnode.store.database import Tx

StoredRow: TypeAlias = tuple[int, bytes, bytes, str | None]

_SIZES: Final = (1, 8, 64, 512)  # keys per query: few shapes, so that the prepared statements are reused


def load(tx: Tx, table_no: int, keys: Sequence[bytes]) -> dict[bytes, tuple[RowState, str | None]]:
    """State and the reason for withholding, for those of `keys` that have a state."""
    found: dict[bytes, tuple[RowState, str | None]] = {}
    for chunk in _chunks(keys):
        rows = tx.execute(
            "SELECT key, state, reason FROM meshnode_rows "  # noqa: S608
            f"WHERE table_no = ? AND key IN ({','.join('?' * len(chunk))})",
            (table_no, *chunk),
        )
        for key, state, reason in rows:
            found[key] = (unpack_state(state), reason)
    return found


def unpack_state(stored: bytes) -> RowState:
    """The state behind a stored form; CorruptStateError where it cannot be read."""
    try:
        return RowState.unpack(stored)
    except msgspec.DecodeError as error:
        raise CorruptStateError(f"the clocks of a row in the database cannot be read: {error}") from error


def save(tx: Tx, rows: Iterable[StoredRow]) -> None:
    """Write `(table, key, state, reason)` of one batch."""
    tx.executemany("INSERT OR REPLACE INTO meshnode_rows VALUES (?, ?, ?, ?)", rows)


def page(tx: Tx, table_no: int, after: bytes, limit: int) -> list[tuple[bytes, RowState, str | None]]:
    """The next rows beyond the key bytes `after`, in their order."""
    found = tx.execute(
        "SELECT key, state, reason FROM meshnode_rows WHERE table_no = ? AND key > ? ORDER BY key LIMIT ?",
        (table_no, after, limit),
    ).fetchall()
    return [(key, unpack_state(state), reason) for key, state, reason in found]


def keys_after(tx: Tx, table_no: int, after: bytes, limit: int) -> list[bytes]:
    """The next keys beyond the key bytes `after`, in their order."""
    found = tx.execute(
        "SELECT key FROM meshnode_rows WHERE table_no = ? AND key > ? ORDER BY key LIMIT ?", (table_no, after, limit)
    )
    return [key for (key,) in found]


def remove(tx: Tx, table_no: int, keys: Iterable[bytes]) -> None:
    """Forget everything about these rows."""
    tx.executemany("DELETE FROM meshnode_rows WHERE table_no = ? AND key = ?", [(table_no, key) for key in keys])


def withheld(tx: Tx, table_no: int) -> list[bytes]:
    """The keys of the rows that the table does not allow as they stand."""
    found = tx.execute(
        "SELECT key FROM meshnode_rows WHERE table_no = ? AND reason IS NOT NULL ORDER BY key", (table_no,)
    )
    return [key for (key,) in found]


def any_withheld(tx: Tx, table_no: int) -> bool:
    """Whether there is a row that the table does not allow as it stands."""
    found = tx.execute("SELECT 1 FROM meshnode_rows WHERE table_no = ? AND reason IS NOT NULL LIMIT 1", (table_no,))
    return found.fetchone() is not None


def withheld_because(tx: Tx, table_no: int, reason: str, limit: int) -> list[bytes]:
    """The first keys of the rows that are withheld for a reason that begins so."""
    found = tx.execute(
        "SELECT key FROM meshnode_rows INDEXED BY meshnode_rows_withheld WHERE table_no = ? AND reason IS NOT NULL"
        " AND substr(reason, 1, ?) = ? LIMIT ?",
        (table_no, len(reason), reason, limit),
    )
    return [key for (key,) in found]


def _chunks(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Cut `keys` into sizes of the few shapes, the last one filled up with repeats of its last key."""
    start = 0
    while start < len(keys):
        left = len(keys) - start
        size = next((size for size in _SIZES if size >= left), _SIZES[-1])
        chunk = keys[start : start + size]
        yield [*chunk, *([chunk[-1]] * (size - len(chunk)))]
        start += size

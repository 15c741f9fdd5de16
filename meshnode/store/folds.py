"""Rows that are being recomputed, folded as far as the log was read, in a temporary table: bounded in memory, and lost
with the process, as what it was made from is not.

It lives on the writing connection, outside the database file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from meshnode.merge.rows import RowFold, RowState
from meshnode.store.database import Tx

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[bytes, dict[str, Any]]).decode


class Folds:
    """One temporary table of rows by key bytes."""

    def __init__(self, name: str) -> None:
        self._table = f'temp."meshnode_folds_{name}"'

    def create(self, tx: Tx) -> None:
        """Make it, empty."""
        self.drop(tx)
        tx.execute(f"CREATE TABLE {self._table} (key BLOB PRIMARY KEY, fold BLOB) WITHOUT ROWID")

    def drop(self, tx: Tx) -> None:
        """Take it away."""
        tx.execute(f"DROP TABLE IF EXISTS {self._table}")

    def expect(self, tx: Tx, keys: Iterable[bytes]) -> None:
        """These rows are to be recomputed; nothing is folded yet."""
        tx.executemany(f"INSERT OR IGNORE INTO {self._table} (key) VALUES (?)", [(key,) for key in keys])  # noqa: S608

    def find(self, tx: Tx, key: bytes) -> RowFold | None:
        """One row, as far as it is folded; None where it is not here."""
        found = tx.execute(f"SELECT fold FROM {self._table} WHERE key = ?", (key,)).fetchone()  # noqa: S608
        return None if found is None else _unpacked(found[0])

    def save(self, tx: Tx, key: bytes, fold: RowFold) -> None:
        """Keep what was folded."""
        stored = _encode((fold.state.pack(), fold.values))
        tx.execute(f"INSERT OR REPLACE INTO {self._table} VALUES (?, ?)", (key, stored))  # noqa: S608

    def page(self, tx: Tx, after: bytes, rows: int, size: int) -> list[tuple[bytes, RowFold]]:
        """The next rows beyond the key bytes `after`, at most `rows`; no more than it takes to fill `size` bytes."""
        found = tx.execute(
            f"SELECT key, fold FROM {self._table} WHERE key > ? ORDER BY key LIMIT ?",  # noqa: S608
            (after, rows),
        )
        page: list[tuple[bytes, RowFold]] = []
        for key, fold in found:
            page.append((key, _unpacked(fold)))
            size -= 0 if fold is None else len(fold)
            if size <= 0:
                found.close()
                break
        return page


def _unpacked(stored: bytes | None) -> RowFold:
    if stored is None:
        return RowFold(None)
    state, values = _decode(stored)
    fold = RowFold(RowState.unpack(state))
    fold.values = values
    return fold

"""A temporary table that brings the log's events together by row: the log itself is in order of arrival.

It lives on the writing connection, outside the database file, and holds hashes and ranks only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from meshnode.codec.digest import blake3_256
from meshnode.model.event import Event
from meshnode.store.database import Tx

_ROW_BYTES = 16  # of the hash that brings the events of a row together; rows are told apart by their keys all the same


_TURNED = bytes(255 - each for each in range(256))  # of each byte


class Placed(NamedTuple):
    """Where an event is in the order by row, from the highest rank down."""

    row: bytes
    rank: bytes  # with every bit turned, so that the highest comes first
    position: int


FIRST = Placed(b"", b"", 0)


class Gathered:
    """One temporary table."""

    def __init__(self, name: str) -> None:
        self._table = f'temp."meshnode_gathered_{name}"'

    def create(self, tx: Tx) -> None:
        """Make it."""
        columns = "row BLOB, rank BLOB, position INTEGER, PRIMARY KEY (row, rank, position)"
        tx.execute(f"CREATE TABLE {self._table} ({columns}) WITHOUT ROWID")

    def drop(self, tx: Tx) -> None:
        """Take it away."""
        tx.execute(f"DROP TABLE IF EXISTS {self._table}")

    def add(self, tx: Tx, events: Iterable[tuple[int, int, Event]]) -> None:
        """Place events of tables, by number, by their positions."""
        tx.executemany(
            f"INSERT OR IGNORE INTO {self._table} VALUES (?, ?, ?)",  # noqa: S608  # the name is our own
            [
                (_row_of(table_no, event.key_bytes), event.rank.translate(_TURNED), position)
                for position, table_no, event in events
            ],
        )

    def after(self, tx: Tx, placed: Placed, limit: int) -> list[Placed]:
        """The next places beyond `placed`, in order."""
        found = tx.execute(
            f"SELECT row, rank, position FROM {self._table} WHERE (row, rank, position) > (?, ?, ?)"  # noqa: S608
            " ORDER BY row, rank, position LIMIT ?",
            (*placed, limit),
        )
        return [Placed(*each) for each in found.fetchall()]


def _row_of(table_no: int, key_bytes: bytes) -> bytes:
    return blake3_256(table_no.to_bytes(8, "big") + key_bytes)[:_ROW_BYTES]

"""What can be read: rows, digests, changes, notices, tables; over any snapshot, never writing (profile §5).

A column that no write ever reached is *unmaterialized* and absent here, whatever its SQL cell shows; a cleared one is
null (SSP/1 §13.6). Rows that do not exist or are withheld are absent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from meshnode.codec import cbor
from meshnode.codec.digest import blake3_256
from meshnode.errors import NotFoundError, UsageError
from meshnode.merge.rows import RowState
from meshnode.model.event import KeyValue
from meshnode.store import changes, logcounts, rows
from meshnode.store.changes import RowChange
from meshnode.store.database import Tx, UnreadableText
from meshnode.store.destinations import open_destination
from meshnode.store.names import SiteNumbers, TableEntry, TableNumbers
from meshnode.store.recall import recall
from meshnode.store.rows import unpack_state
from meshnode.store.tables import Destination, quote

_PAGE: Final = 1000
ROWS_COUNTED: Final = 10_000  # of all tables together: what nobody keeps count of is counted up to here


class Row(NamedTuple):
    """One live row."""

    key: dict[str, Any]
    columns: dict[str, Any]  # those that have a value, and null for the cleared ones
    key_bytes: bytes
    cleared: list[str]  # columns that a delete cleared
    unmaterialized: list[str]  # columns that no write ever reached


class Stored(NamedTuple):
    """One row that there ever was: its clocks, why it is withheld, and what a reader sees of it."""

    key_bytes: bytes
    state: RowState
    reason: str | None
    row: Row | None


class Change(NamedTuple):
    """One entry of the change sequence."""

    seq: int
    schema: str
    table: str
    key: dict[str, Any]
    change: RowChange


class Table:
    """One registered table as a reader sees it, for one snapshot."""

    def __init__(self, tx: Tx, schema: str, name: str) -> None:
        entry = TableNumbers().entry(tx, schema, name)
        if not entry.registered:
            raise NotFoundError(f"table {entry.text!r} is not registered: add it first")
        destination = open_destination(tx, entry)
        if isinstance(destination, str):
            raise NotFoundError(f"table {entry.text!r} cannot be used as it stands: {destination}")
        self._tx = tx
        self.entry = entry
        self.destination: Destination = destination
        where = " AND ".join(f"{quote(column.name)} = ?" for column in destination.key)
        names = ", ".join(map(quote, destination.columns)) or "1"
        self._select = f"SELECT {names} FROM {destination.quoted} WHERE {where}"  # noqa: S608

    def get(self, key: Mapping[str, KeyValue]) -> Row | None:
        """One live row; UsageError for what is no key of this table."""
        found = self.find(key)
        return None if found is None else found.row

    def find(self, key: Mapping[str, KeyValue]) -> Stored | None:
        """One row, live or not; UsageError for what is no key of this table."""
        if not self.destination.resolves(key):
            named = ", ".join(column.name for column in self.destination.key)
            raise UsageError(f"a key of table {self.entry.text!r} has exactly the columns {named}")
        key_bytes = cbor.encode(dict(key))
        found = rows.load(self._tx, self.destination.no, [key_bytes]).get(key_bytes)
        return None if found is None else self._stored(key_bytes, *found)

    def every(self, after: bytes = b"", at_once: int = _PAGE) -> Iterator[Stored]:
        """Every row that there ever was, in key-bytes order, from beyond the key bytes `after` on."""
        while page := rows.page(self._tx, self.destination.no, after, at_once):
            for key_bytes, state, reason in page:
                yield self._stored(key_bytes, state, reason)
            after = page[-1][0]

    def recalled(self, state: RowState) -> dict[str, Any]:
        """What the log says of a row that SQL does not show; a column whose event is not in it any more is absent."""
        known = {name: rank for name, rank in state.columns.items() if name in self.destination.columns}
        return {name: presentable(value) for name, value in recall(self._tx, SiteNumbers(), known).items()}

    def rows(self, after: bytes = b"") -> Iterator[Row]:
        """Live rows in key-bytes order, from beyond the key bytes `after` on."""
        found = self._tx.execute(
            "SELECT key, state FROM meshnode_rows WHERE table_no = ? AND key > ? AND reason IS NULL ORDER BY key",
            (self.destination.no, after),
        )
        return self._live(found)

    def rows_back(self, before: bytes) -> Iterator[Row]:
        """Live rows against key-bytes order, from below the key bytes `before` on."""
        found = self._tx.execute(
            "SELECT key, state FROM meshnode_rows WHERE table_no = ? AND key < ? AND reason IS NULL ORDER BY key DESC",
            (self.destination.no, before),
        )
        return self._live(found)

    def _live(self, found: Iterable[tuple[bytes, bytes]]) -> Iterator[Row]:
        """One at a time: a key alone may be a megabyte."""
        for key_bytes, state in found:
            row = self._row(key_bytes, unpack_state(state))
            if row is not None:
                yield row

    def digest(self) -> tuple[bytes, int]:
        """BLAKE3-256 of the deterministic CBOR array of `[key, columns]` of the live rows, and their number."""
        encoded = [cbor.encode([row.key, row.columns]) for row in self.rows()]
        return blake3_256(_array_head(len(encoded)) + b"".join(encoded)), len(encoded)

    def _stored(self, key_bytes: bytes, state: RowState, reason: str | None) -> Stored:
        return Stored(key_bytes, state, reason, self._row(key_bytes, state) if reason is None else None)

    def _row(self, key_bytes: bytes, state: RowState) -> Row | None:
        if not state.exists:
            return None
        key = key_of(key_bytes)
        if not self.destination.resolves(key):
            return None  # of an earlier primary key
        found = self._tx.execute(self._select, [key[column.name] for column in self.destination.key]).fetchone()
        if found is None:
            return None
        shown = {name: presentable(value) for name, value in zip(self.destination.columns, found, strict=False)}
        cleared, unmaterialized = state.cleared(shown), state.unmaterialized(shown)
        shown.update(dict.fromkeys(cleared))
        for name in unmaterialized:  # whatever SQL shows: null, or its default
            del shown[name]
        return Row(key, shown, key_bytes, cleared, unmaterialized)


def key_of(key_bytes: bytes) -> dict[str, Any]:
    """The row key behind its bytes."""
    key: Any = cbor.decode_untrusted(key_bytes)
    return key  # type: ignore[no-any-return]


def presentable(value: Any) -> Any:
    """A value as SQLite holds it; what has no CBOR becomes what has: the infinities text, text that is not UTF-8 bytes.

    An affinity can make infinities of text, and a trigger of the application any text of bytes.
    """
    if isinstance(value, UnreadableText):
        return bytes(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "Infinity" if value > 0 else "-Infinity"
    return int(value) if isinstance(value, bool) else value


def _array_head(length: int) -> bytes:
    """The head of a CBOR array, so that the items need not be in memory as values."""
    if length < 24:
        return bytes((0x80 | length,))
    size = 1 if length < 0x100 else 2 if length < 0x1_0000 else 4 if length < 0x1_0000_0000 else 8
    return bytes((0x80 | 24 + size.bit_length() - 1,)) + length.to_bytes(size, "big")


def registered_tables(tx: Tx) -> list[tuple[TableEntry, Destination | str]]:
    """Every registered table with its destination, or with why there is none."""
    return [(entry, open_destination(tx, entry)) for entry in TableNumbers().registered(tx)]


def row_counts(tx: Tx, destination: Destination, most: int = ROWS_COUNTED) -> tuple[int, int]:
    """How many rows a table shows, and how many exist beside them and are withheld; none of both beyond `most`."""
    # An index may need a collation or a function that only the application has.
    shown = tx.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM {destination.quoted} NOT INDEXED LIMIT ?)",  # noqa: S608
        (most,),
    ).fetchone()[0]
    withheld = tx.execute(
        "SELECT state FROM meshnode_rows WHERE table_no = ? AND reason IS NOT NULL LIMIT ?", (destination.no, most)
    )
    return int(shown), sum(unpack_state(state).exists for (state,) in withheld)


def held_tables(tx: Tx) -> dict[str, int]:
    """The tables that events wait for, and how many do (SSP/1 §13.6)."""
    found = tx.execute(
        "SELECT t.schema, t.name, sum(h.events) FROM meshnode_held AS h JOIN meshnode_tables AS t ON t.no = h.table_no"
        " GROUP BY t.no ORDER BY t.schema, t.name"
    )
    return {name if schema == "main" else f"{schema}.{name}": int(events) for schema, name, events in found}


def event_counts(tx: Tx) -> tuple[int, int]:
    """How many events the log retains, and how many of them are held."""
    waiting = tx.execute("SELECT coalesce(sum(events), 0) FROM meshnode_held").fetchone()[0]
    return logcounts.total(tx), int(waiting)


def last_change(tx: Tx) -> int:
    """The number of the newest change, 0 where there is none."""
    row = tx.execute("SELECT value FROM meshnode_meta WHERE name = 'next_change'").fetchone()
    return int(row[0]) - 1 if row else 0


def oldest_change(tx: Tx) -> int:
    """The number of the oldest change that is kept; a subscriber further behind starts from the rows."""
    row = tx.execute("SELECT min(seq) FROM meshnode_changes").fetchone()
    return int(row[0]) if row[0] is not None else last_change(tx) + 1


def changes_since(tx: Tx, seq: int, limit: int, size: int) -> list[Change]:
    """The next changes beyond `seq`, in order: no more than fill `size` bytes as they are stored, one at least."""
    found = tx.execute(
        "SELECT c.seq, t.schema, t.name, c.change FROM meshnode_changes AS c "
        "JOIN meshnode_tables AS t ON t.no = c.table_no WHERE c.seq > ? ORDER BY c.seq LIMIT ?",
        (seq, limit),
    )
    result = []
    for number, schema, name, data in found:
        change = changes.unpack(data)
        result.append(Change(number, schema, name, key_of(change.key_bytes), change))
        size -= len(data)
        if size <= 0:
            break
    return result


def notice_count(tx: Tx) -> int:
    """How many conditions are stored: bounded (profile §12)."""
    return int(tx.execute("SELECT count(*) FROM meshnode_notices").fetchone()[0])

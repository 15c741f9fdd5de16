"""Rows of an attached app's database, the changes that are told of them, and those that are not there any more."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from meshnode.codec import cbor
from meshnode.merge.rows import RowState
from meshnode.node.projectiontables import SCHEMA, entry_of
from meshnode.node.projectionviews import ProjectedChange
from meshnode.node.views import ChangeView, RowView
from meshnode.store import before, changes, meta, queries
from meshnode.store import rows as states
from meshnode.store.changes import RowChange
from meshnode.store.database import Tx
from meshnode.store.tables import quote

_SOME: Final = b"\0"  # a clock: here it only says that there is one
_AT_ONCE: Final = 256  # keys that are looked at together


class Told(NamedTuple):
    """One change, or one row, as the node tells it."""

    key_bytes: bytes
    change: ChangeView
    row: RowView | None

    @classmethod
    def of(cls, told: ProjectedChange) -> Told:
        """With the key as it is kept."""
        return cls(cbor.encode(told.change.key), told.change, told.row)


class Feed:
    """The change sequence of this database: what the node told, or what was found to differ."""

    def __init__(self, tx: Tx, *, keeps: bool = True) -> None:
        self._tx = tx
        self._keeps = keeps
        self._next = meta.read_counter(tx, meta.NEXT_CHANGE)
        self._rows: list[changes.ChangeRow] = []

    def silent(self) -> Feed:
        """One that keeps nothing."""
        return Feed(self._tx, keeps=False)

    def told(self, table_no: int, told: Told) -> None:
        """A change as the node has it."""
        change = told.change
        physical, logical = change.hlc or (0, 0)
        gone = not change.exists and change.op not in changes.HIDES
        kept = RowChange(
            change.op,
            told.key_bytes,
            {name: value for name, value in change.columns.items() if name not in change.cleared},
            change.cleared,
            bytes.fromhex(change.site or ""),
            physical,
            logical,
            change.partial,
            gone,
            tuple(change.unmaterialized),
            change.old,
        )
        self.add(table_no, kept)

    def add(self, table_no: int, change: RowChange) -> None:
        """One change."""
        if self._keeps:
            self._rows.append(changes.row(self._next, table_no, change))
            self._next += 1

    def end(self) -> None:
        """Write them."""
        changes.append(self._tx, self._rows)
        meta.write(self._tx, meta.NEXT_CHANGE, self._next)
        self._rows = []


class Rows:
    """The rows of one table, in one transaction."""

    def __init__(self, tx: Tx, name: str) -> None:
        self._tx = tx
        self._table = queries.Table(tx, SCHEMA, name)
        destination = self._table.destination
        self._keys = [column.name for column in destination.key]
        self._columns = list(destination.columns)
        names = ", ".join(map(quote, [*self._keys, *self._columns]))
        marks = ", ".join("?" * (len(self._keys) + len(self._columns)))
        news = ", ".join(f"{quote(each)} = excluded.{quote(each)}" for each in self._columns)
        # No REPLACE: triggers and references of the app see a row that changes, and none that goes and comes.
        conflict = f"({', '.join(map(quote, self._keys))}) DO {f'UPDATE SET {news}' if news else 'NOTHING'}"
        self._upsert = f"INSERT INTO {destination.quoted} ({names}) VALUES ({marks}) ON CONFLICT {conflict}"  # noqa: S608
        where = " AND ".join(f"{quote(each)} = ?" for each in self._keys)
        self._delete = f"DELETE FROM {destination.quoted} WHERE {where}"  # noqa: S608

    @property
    def number(self) -> int:
        """The number of the table here."""
        return self._table.destination.no

    def write(self, told: Sequence[Told]) -> None:
        """Let these rows be as given, or not be there; of several of one row, as the last one says."""
        saved = []
        for key_bytes, change, row in {each.key_bytes: each for each in told}.values():
            if not self._table.destination.resolves(change.key):
                continue  # of an earlier primary key
            values = [change.key[name] for name in self._keys]
            if row is None:
                self._tx.execute(self._delete, values)
                state = RowState(_SOME)
            else:
                self._tx.execute(self._upsert, [*values, *(row.columns.get(name) for name in self._columns)])
                state = _state_of(row)
            saved.append((self.number, key_bytes, state.pack(), None))
        states.save(self._tx, saved)

    def compare(self, feed: Feed, told: Sequence[Told]) -> None:
        """Let these rows be as given, and what that changes be changes."""
        told = [each for each in told if self._table.destination.resolves(each.change.key)]
        known = states.load(self._tx, self.number, [each.key_bytes for each in told])
        news = []
        for each in told:
            state, _ = known.get(each.key_bytes, (None, None))
            was = None if state is None or not state.exists else self._table.get(each.change.key)
            if state is not None and _same(was, each.row):
                continue
            news.append(each)
            if each.row is not None:
                feed.add(self.number, _difference(each, was, each.row))
            elif was is not None:
                feed.add(self.number, _gone(each.change.op, was))
        self.write(news)

    def remove(self, feed: Feed, key_bytes: bytes) -> None:
        """The node has no such row, and knows of none."""
        key = queries.key_of(key_bytes)
        was = self._table.get(key) if self._table.destination.resolves(key) else None
        if was is not None:
            self._tx.execute(self._delete, [key[name] for name in self._keys])
            feed.add(self.number, _gone(changes.DELETE, was))
        states.remove(self._tx, self.number, [key_bytes])


class Sweep:
    """While every row is told, in the order of the keys of each table: what lies between and is not told is gone."""

    def __init__(self) -> None:
        self._table: str | None = None
        self._after = b""
        self._done: set[str] = set()

    def rows(self, tx: Tx, feed: Feed, name: str, rows: Rows, told: Sequence[Told]) -> None:
        """The next rows of one table."""
        if name != self._table:
            self._finish(tx, feed)
            self._table, self._after = name, b""
        self._remove(tx, feed, rows, upto=told[-1].key_bytes, told={each.key_bytes for each in told})

    def end(self, tx: Tx, feed: Feed, tables: Iterable[str]) -> None:
        """There were no more, of these tables."""
        self._finish(tx, feed)
        for name in tables:
            if name not in self._done:
                self._table, self._after = name, b""
                self._finish(tx, feed)

    def _finish(self, tx: Tx, feed: Feed) -> None:
        if self._table is not None and entry_of(tx, self._table).registered:
            self._remove(tx, feed, Rows(tx, self._table), upto=None, told=())
            self._done.add(self._table)
        self._table = None

    def _remove(self, tx: Tx, feed: Feed, rows: Rows, *, upto: bytes | None, told: Container[bytes]) -> None:
        while page := states.keys_after(tx, rows.number, self._after, _AT_ONCE):
            for key in page:
                if upto is not None and key > upto:
                    self._after = upto
                    return
                if key not in told:
                    rows.remove(feed, key)
            self._after = page[-1]
        if upto is not None:
            self._after = upto


def _state_of(row: RowView) -> RowState:
    """Clocks by which a reader tells written, cleared and unmaterialized columns apart (SSP/1 §13.6)."""
    written = dict.fromkeys((name for name in row.columns if name not in row.cleared), _SOME)
    return RowState(_SOME if row.cleared else None, _SOME, written)


def _same(was: queries.Row | None, row: RowView | None) -> bool:
    if was is None or row is None:
        return was is None and row is None
    return _held(was.columns) == _held(row.columns) and set(was.cleared) == set(row.cleared)


def _held(columns: Mapping[str, Any]) -> dict[str, tuple[type, Any]]:
    """1 and 1.0 are two values."""
    return {name: (type(value), value) for name, value in columns.items()}


def _difference(told: Told, was: queries.Row | None, row: RowView) -> RowChange:
    old = {} if was is None else was.columns
    here, there = _held(row.columns), _held(old)
    news = {name for name in here if here[name] != there.get(name)}
    return RowChange(
        told.change.op,
        told.key_bytes,
        {name: row.columns[name] for name in row.columns if name in news and name not in row.cleared},
        [name for name in row.cleared if was is None or name not in was.cleared],
        b"",
        0,
        0,
        told.change.partial,
        unmaterialized=tuple(name for name in row.unmaterialized if was is None or name in old),
        old=before.old_values(old.items(), news | (old.keys() - row.columns.keys())),
    )


def _gone(op: str, was: queries.Row) -> RowChange:
    old = before.old_values(was.columns.items(), frozenset(was.columns))
    return RowChange(op, was.key_bytes, {}, [], b"", 0, 0, gone=op not in changes.HIDES, old=old)

"""Folded rows become rows of the destination's SQL table; what the table refuses costs that row alone (profile §5).

A row that its own table does not allow is withheld: it is taken out of SQL, its state is kept, and it is tried again at
the next write to it. Every statement says OR ABORT, which overrides the ON CONFLICT clauses of the table and of its
triggers, so a refused statement undoes itself and nothing else. Only a trigger's RAISE can do otherwise; tables with
triggers are therefore written one row at a time inside a savepoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final, TypeAlias

from meshnode.errors import StoreError
from meshnode.merge.rows import RowFold
from meshnode.model.event import Scalar
from meshnode.store.database import Tx
from meshnode.store.names import SiteNumbers
from meshnode.store.recall import recall
from meshnode.store.tables import Destination, quote

Parameters: TypeAlias = tuple[Any, ...]
Barred: TypeAlias = Mapping[tuple[int, bytes | None], int]
"""How often writing a row as it stands (None: any row of the table) undid the whole transaction of this job."""

# SQLite result codes that are about one statement and its values; any other is about the database or the disk.
_ROW_LEVEL: Final = frozenset({1, 18, 19, 20, 23, 25})  # ERROR, TOOBIG, CONSTRAINT, MISMATCH, AUTH, RANGE
_ROW_CLASSES: Final = frozenset({"IntegrityError", "DataError"})
_DATABASE_WORDS: Final = ("locked", "disk", "full", "unable to open", "readonly", "interrupted", "malformed", "memory")
REASON_CHARACTERS: Final = 300
UNTRIED: Final = "not tried yet: other rows of the table rolled back the whole batch"
_ROLLED_BACK: Final = "a trigger rolled back the whole batch"


class TransactionLostError(StoreError):
    """A trigger undid the whole transaction by RAISE(ROLLBACK); it has to be done again without that row."""

    def __init__(self, table_no: int, row: bytes, error: Exception) -> None:
        super().__init__(f"a trigger of the application rolled back the whole batch: {error}")
        self.table_no = table_no
        self.row = row


@dataclass(slots=True)
class RowWrite:
    """One row of one batch: what became of it, and whether SQL takes it."""

    key_bytes: bytes
    key: Parameters  # the key's values, in the order of the primary key
    fold: RowFold
    reason_before: str | None = None  # why it was withheld
    reason: str | None = None  # why it is withheld now
    recalled: Mapping[str, Scalar] = field(default_factory=dict)  # values from before this batch that SQL did not hold
    lost: tuple[str, ...] = ()  # columns that have to be shown and whose winning event is not in the log any more

    @property
    def row(self) -> bytes:
        """The row with its clocks: what a trigger refused as it stood may be right after the job's next write to it."""
        return self.key_bytes + self.fold.state.pack()

    @property
    def shown(self) -> bool:
        """Whether the row was in the SQL table, as its state had it, before this batch."""
        return self.fold.existed and self.reason_before is None


class TableWriter:
    """Writes the rows of one batch to one destination; afterwards each write knows its `reason`."""

    def __init__(
        self,
        tx: Tx,
        sqlite: ModuleType,
        destination: Destination,
        sites: SiteNumbers,
        barred: Barred,
    ) -> None:
        self._tx = tx
        self._error: type[Exception] = sqlite.Error
        self._table = destination
        self._sites = sites
        self._barred = barred
        self._where = " AND ".join(f"{quote(column.name)} = ?" for column in destination.key)

    def write(self, writes: Sequence[RowWrite]) -> None:
        """Delete, update and insert. Raises only for what is wrong with the database itself."""
        inserts: list[RowWrite] = []
        deletes: list[RowWrite] = []
        updates: dict[tuple[str, ...], list[tuple[RowWrite, Parameters]]] = {}
        if self._tx.adopted:
            self._tx.close_gate()
        for write in writes:
            fold = write.fold
            if self._barred and self._is_barred(write):
                continue
            if not fold.state.exists:
                if fold.tombstone_moved or write.reason_before is not None:
                    deletes.append(write)
            elif not write.shown:
                inserts.append(write)
            elif fold.changed:
                names, values = self._assignments(fold)
                if names:
                    updates.setdefault(names, []).append((write, values + write.key))
        self._delete(deletes)
        for names, group in updates.items():
            inserts.extend(self._update(names, group))
        self._insert(inserts)

    def _is_barred(self, write: RowWrite) -> bool:
        """Withhold a row that undid the transaction before; where even taking it out of SQL did, leave it there.

        Where too many did, every row of the table is withheld likewise, those that are innocent until they are tried.
        """
        row, table = (self._barred.get((self._table.no, which), 0) for which in (write.row, None))
        if not row and not table:
            return False
        write.reason = _ROLLED_BACK if row else UNTRIED
        if row < 2 and table < 2:
            self._take_out(write)
        elif self._is_there(write):
            write.reason += "; its old values stay"
        return True

    # --- what is written

    def _assignments(self, fold: RowFold) -> tuple[tuple[str, ...], Parameters]:
        """The columns to set in a row that is there; a moved tombstone makes null of all that has no rank above it."""
        values = fold.values
        if not fold.tombstone_moved:
            return tuple(values), tuple(values.values())
        ranked = fold.state.columns
        names = tuple(name for name in self._table.columns if name in values or name not in ranked)
        return names, tuple(values.get(name) for name in names)

    def _full_row(self, write: RowWrite) -> tuple[tuple[str, ...], Parameters]:
        """The columns that show their default, and the values of all others."""
        state, values = write.fold.state, write.fold.values
        missing = state.columns.keys() - values.keys()
        if missing:  # written before this batch, and not in SQL now
            write.recalled = recall(self._tx, self._sites, {name: state.columns[name] for name in missing})
            values = {**values, **write.recalled}
            write.lost = tuple(sorted(missing - values.keys()))
        columns = self._table.columns
        if not self._table.shows_defaults or state.tombstone is not None:
            return (), write.key + tuple([values.get(name) for name in columns])
        left_out = tuple(name for name in self._table.shows_defaults if name not in state.columns)
        return left_out, write.key + tuple([values.get(name) for name in columns if name not in left_out])

    def _insert_sql(self, left_out: tuple[str, ...]) -> str:
        key = [quote(column.name) for column in self._table.key]
        others = [quote(name) for name in self._table.columns]
        names = key + [quote(name) for name in self._table.columns if name not in left_out]
        update = f"UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in others)}" if others else "NOTHING"
        return (
            f"INSERT OR ABORT INTO {self._table.quoted} ({', '.join(names)}) "  # noqa: S608
            f"VALUES ({', '.join('?' * len(names))}) ON CONFLICT ({', '.join(key)}) DO {update}"
        )

    # --- how it is written

    def _insert(self, writes: Sequence[RowWrite]) -> None:
        groups: dict[tuple[str, ...], list[tuple[RowWrite, Parameters]]] = {}
        for write in writes:
            left_out, values = self._full_row(write)
            groups.setdefault(left_out, []).append((write, values))
        for left_out, group in groups.items():
            idle = self._run(self._insert_sql(left_out), group)
            for write in idle if self._table.has_triggers else ():
                if self._table.columns or not self._is_there(write):
                    write.reason = "a trigger ignored the row"
        for write in writes:
            if write.reason is not None and (write.reason_before is not None or write.fold.existed):
                self._take_out(write)

    def _update(self, names: tuple[str, ...], group: Sequence[tuple[RowWrite, Parameters]]) -> list[RowWrite]:
        """Update rows; returns those that the application had removed from SQL, to be written whole."""
        assignments = ", ".join(f"{quote(name)} = ?" for name in names)
        sql = f"UPDATE OR ABORT {self._table.quoted} SET {assignments} WHERE {self._where}"  # noqa: S608
        gone = []
        for write in self._run(sql, group):
            if not self._is_there(write):
                gone.append(write)
            elif self._table.has_triggers:
                write.reason = "a trigger ignored the write"
        for write, _ in group:
            if write.reason is not None:
                self._take_out(write)
        return gone

    def _delete(self, writes: Sequence[RowWrite]) -> None:
        if not writes:
            return
        sql = f"DELETE FROM {self._table.quoted} WHERE {self._where}"  # noqa: S608
        self._run(sql, [(write, write.key) for write in writes])
        if self._table.has_triggers:
            for write in writes:
                if write.reason is None and self._is_there(write):
                    write.reason = "a trigger keeps the deleted row"

    def _take_out(self, write: RowWrite) -> None:
        """A withheld row is not in the SQL table; what stands there is older than its state."""
        if not self._is_there(write):
            return
        reason, write.reason = write.reason, None
        self._run_each(f"DELETE FROM {self._table.quoted} WHERE {self._where}", [(write, write.key)])  # noqa: S608
        write.reason = reason if write.reason is None else f"{reason}; its old values stay: {write.reason}"

    def _is_there(self, write: RowWrite) -> bool:
        found = self._tx.execute(f"SELECT 1 FROM {self._table.quoted} WHERE {self._where}", write.key)  # noqa: S608
        return found.fetchone() is not None

    def _run(self, sql: str, group: Sequence[tuple[RowWrite, Parameters]]) -> list[RowWrite]:
        """One statement for every row of the group; returns those that it was not refused for but may have missed."""
        return self._run_each(sql, group) if self._table.has_triggers else self._run_many(sql, group)

    def _run_many(self, sql: str, group: Sequence[tuple[RowWrite, Parameters]]) -> list[RowWrite]:
        """The fast way: one call; after a refusal it goes on behind the row that was refused."""
        changed = 0
        feed = _Feed(group)
        while feed.next < len(group):
            before = feed.next
            try:
                changed += self._tx.executemany(sql, feed).rowcount
            except self._error as error:
                # Rows are taken one by one, so the last one taken is the one refused; none taken: the statement is.
                refused = group[feed.next - 1 : feed.next] if feed.next > before else group[before:]
                for write, _ in refused:
                    self._refuse(write, error)
                if feed.next == before:
                    break
        return [] if changed == len(group) else [write for write, _ in group if write.reason is None]

    def _run_each(self, sql: str, group: Sequence[tuple[RowWrite, Parameters]]) -> list[RowWrite]:
        """The way that undoes whatever a trigger did before the refusal."""
        idle = []
        for write, values in group:
            try:
                with self._tx.savepoint():
                    if self._tx.execute(sql, values).rowcount == 0:
                        idle.append(write)
            except self._error as error:
                self._refuse(write, error)
        return idle

    def _refuse(self, write: RowWrite, error: Exception) -> None:
        """Withhold the row, unless the error is not about the row at all."""
        if not is_row_level(error):
            raise error
        if not self._tx.active:
            raise TransactionLostError(self._table.no, write.row, error) from error
        write.reason = str(error)[:REASON_CHARACTERS]


class _Feed(Iterator[Parameters]):
    """Hands out parameters one by one and knows how many were taken."""

    def __init__(self, group: Sequence[tuple[RowWrite, Parameters]]) -> None:
        self._group = group
        self.next = 0

    def __next__(self) -> Parameters:
        if self.next == len(self._group):
            raise StopIteration
        self.next += 1
        return self._group[self.next - 1][1]


def is_row_level(error: Exception) -> bool:
    """Whether SQLite refused this statement with these values, rather than to work at all."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF in _ROW_LEVEL
    # A DB-API module without codes: what is left is the class, and SQLite's own words for trouble with the database.
    kind, words = type(error).__name__, str(error).lower()
    return kind in _ROW_CLASSES or (kind == "OperationalError" and not any(word in words for word in _DATABASE_WORDS))

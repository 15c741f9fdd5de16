"""Rows brought to what their clocks say, whatever SQL shows of them now (profile §5, SSP/1 §13.4, §13.6).

A state names the event of every value by its rank, so a row that the application's schema change took out of SQL comes
back from the log. What lies below the horizon is taken as it stands in SQL, and is never read from the log again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from meshnode.engine.context import Context
from meshnode.engine.materialize import note_lost
from meshnode.merge.rows import RowFold, RowState
from meshnode.model.event import Scalar
from meshnode.model.hlc import Rank, hlc_of_rank
from meshnode.model.wording import key_text
from meshnode.store import changes, rows
from meshnode.store.affinity import Affinity
from meshnode.store.before import NOTHING, clocked, old_values
from meshnode.store.changes import RowChange
from meshnode.store.database import Tx, UnreadableText
from meshnode.store.materialize import RowWrite, TableWriter, is_row_level
from meshnode.store.names import TableEntry
from meshnode.store.recall import recall
from meshnode.store.tables import Column, Destination, quote

Shown: TypeAlias = Mapping[str, tuple[Any, bool]]
"""Per column what SQL shows, and whether that is the column's default."""

_COLUMNS_AT_ONCE: Final = 500
_CLOSING: Final = {'"': '"', "`": "`", "[": "]"}
_KEYWORDS: Final = frozenset(("NULL", "TRUE", "FALSE", "CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP"))
_REBUILT: Final = "rebuilt"  # why a row is written whole; no table ever refused it


@dataclass(slots=True)
class Restated:
    """One row: its clocks before, its clocks as they should be, and the values that are known already."""

    key_bytes: bytes
    key: tuple[Any, ...]  # in the order of the primary key
    before: RowState | None
    reason: str | None  # why it was withheld
    after: RowState
    values: dict[str, Scalar] = field(default_factory=dict)
    partial: bool = False  # possibly without values from below the horizon


class Restater:
    """Compares rows of one table with SQL and writes those that differ.

    `taken_back`: their clocks are others because events of theirs are not acceptable any more. `anew`: what SQL shows
    is known to be another row, so each is written whole.
    """

    def __init__(
        self,
        context: Context,
        tx: Tx,
        entry: TableEntry,
        destination: Destination,
        *,
        taken_back: bool = False,
        anew: bool = False,
    ) -> None:
        self._context = context
        self._tx = tx
        self._entry = entry
        self._table = destination
        self._taken_back = taken_back
        self._anew = anew
        columns = list(destination.columns.values())
        # Two values of each are read, and SQLite reads no more of them at once than a table has columns.
        self._parts = [columns[at : at + _COLUMNS_AT_ONCE] for at in range(0, max(len(columns), 1), _COLUMNS_AT_ONCE)]
        where = " AND ".join(f"{quote(column.name)} = ?" for column in destination.key)
        self._from = f"FROM {destination.quoted} WHERE {where}"
        self._selects = [self._select([(column, self._is_known(column)) for column in part]) for part in self._parts]

    def shown(self, key: Sequence[Any]) -> Shown | None:
        """What SQL shows of a row, None where it has none. A default that cannot be told now is no column's value."""
        shown: dict[str, tuple[Any, bool]] = {}
        for part, select in zip(self._parts, self._selects, strict=True):
            try:
                found = self._tx.execute(select, key).fetchone()
            except self._context.env.sqlite.Error as error:
                if not is_row_level(error):
                    raise
                found = self._tx.execute(self._select([(column, False) for column in part]), key).fetchone()
            if found is None:
                return None
            pairs = zip(found[0::2], found[1::2], strict=False)
            shown.update({column.name: (value, bool(same)) for column, (value, same) in zip(part, pairs, strict=False)})
        return shown

    def _select(self, columns: Sequence[tuple[Column, bool]]) -> str:
        """The SQL that reads what a row shows in these columns, each with whether its default is to be told."""
        parts = ", ".join(_shown_sql(column, compared=compared) for column, compared in columns)
        return f"SELECT {parts or '1'} {self._from}"

    def _is_known(self, column: Column) -> bool:
        """Whether the column's default can be told here: its expression may name what only the application has."""
        if column.default is None:
            return False
        try:
            self._tx.execute(f"SELECT {_shown_sql(column, compared=True)} FROM {self._table.quoted} LIMIT 0")  # noqa: S608
            self._tx.execute(f"SELECT ({_default_sql(column.default)})").fetchone()
        except self._context.env.sqlite.Error as error:
            if not is_row_level(error):
                raise
            return False
        return True

    def write(self, restated: Sequence[Restated]) -> int:
        """Write what differs, the changes with it; returns how many rows of SQL were rewritten."""
        found: list[tuple[Restated, RowWrite, Shown | None]] = []
        writes: list[RowWrite] = []
        for each in restated:
            shown = self.shown(each.key)
            fold = self._differs(each, shown)
            if fold is not None:
                reason = _REBUILT if each.reason is None else each.reason
                writes.append(RowWrite(each.key_bytes, each.key, fold, reason, lost=self._fill(each, fold)))
                found.append((each, writes[-1], shown))
            elif each.after != each.before:  # SQL shows the same null, of a column that is not cleared any more
                found.append((each, RowWrite(each.key_bytes, each.key, self._fold(each, {})), shown))
        sites, barred = self._context.sites, self._context.barred
        TableWriter(self._tx, self._context.env.sqlite, self._table, sites, barred).write(writes)
        self._save(restated, {write.key_bytes: write.reason for write in writes})
        noted = [row for each, write, shown in found if (row := self._change(each, write, shown)) is not None]
        changes.append(self._tx, noted)
        return len(writes)

    def _save(self, restated: Sequence[Restated], reasons: Mapping[bytes, str | None]) -> None:
        no = self._table.no
        empty = [each for each in restated if not each.after.exists and each.after.tombstone is None]
        rows.remove(self._tx, no, [each.key_bytes for each in empty if each.before is not None])
        kept = [each for each in restated if each.after.exists or each.after.tombstone is not None]
        stored = [
            (no, each.key_bytes, each.after.pack(), reasons.get(each.key_bytes, each.reason))
            for each in kept
            if each.after != each.before or reasons.get(each.key_bytes, each.reason) != each.reason
        ]
        rows.save(self._tx, stored)

    # --- what differs

    def _differs(self, each: Restated, shown: Shown | None) -> RowFold | None:
        """The whole row to write, None where SQL shows it already."""
        after = each.after
        if not after.exists:
            return self._fold(each, {}) if shown is not None or each.reason is not None else None
        if each.reason is None and shown is not None and self._agrees(each, shown):
            return None
        values: dict[str, Scalar] = dict(each.values)
        lost: dict[str, Rank] = {}
        for name, rank in after.columns.items():
            if name in values or name not in self._table.columns:
                continue
            if each.reason is not None or (hlc_of_rank(rank) >= self._entry.horizon and shown is None):
                lost[name] = rank  # a withheld row has its values in the log only, whatever their clocks
            elif shown is not None:
                value = shown[name][0]
                unreadable = isinstance(value, UnreadableText)
                values[name] = bytes(value) if unreadable else value
                if (unreadable or self._is_suspect(shown, name)) and hlc_of_rank(rank) >= self._entry.horizon:
                    lost[name] = rank
        values.update(recall(self._tx, self._context.sites, lost))
        return self._fold(each, values)

    def _fold(self, each: Restated, values: dict[str, Scalar]) -> RowFold:
        fold = RowFold(each.after)
        fold.existed = each.before is not None and each.before.exists
        fold.tombstone_moved = True
        fold.values = values
        return fold

    def _fill(self, each: Restated, fold: RowFold) -> tuple[str, ...]:
        """Null for the columns whose winning event is nowhere any more; which ones those are."""
        lost = tuple(name for name in each.after.columns if name in self._table.columns and name not in fold.values)
        fold.values = {**dict.fromkeys(each.after.columns), **fold.values}
        return lost

    def _agrees(self, each: Restated, shown: Shown) -> bool:
        """Whether SQL shows this row; a value is compared with the log where it may be a new column's default."""
        if self._anew:
            return False
        after, before = each.after, each.before.columns if each.before is not None else {}
        suspects: dict[str, Rank] = {}
        for name, column in self._table.columns.items():
            value, is_default = shown[name]
            rank = after.columns.get(name)
            if rank is None:
                if column.shows_default and after.tombstone is None:
                    fits = is_default or name not in before
                else:  # what the application itself put into a column that nobody wrote is left alone
                    fits = value is None or not (is_default or name in before)
                if not fits:
                    return False
            elif rank != before.get(name):
                return False
            elif self._is_suspect(shown, name) and hlc_of_rank(rank) >= self._entry.horizon:
                suspects[name] = rank
        if not suspects:
            return True
        columns, recalled = self._table.columns, self._recalled(suspects)
        return all(_alike(columns[name], value, shown[name][0]) for name, value in recalled.items())

    def _recalled(self, suspects: Mapping[str, Rank]) -> Mapping[str, Scalar]:
        return recall(self._tx, self._context.sites, suspects)

    def _is_suspect(self, shown: Shown, name: str) -> bool:
        """Whether a column of this name that was added anew would show the same."""
        value, is_default = shown[name]
        return value is None or is_default

    # --- what a reader saw

    def _change(self, each: Restated, write: RowWrite, shown: Shown | None) -> changes.ChangeRow | None:
        existed = write.fold.existed and each.reason is None
        if write.reason is not None:
            sample = f"row {key_text(each.key)} is withheld: {write.reason}"
            self._context.surface(self._tx, "withheld", None, sample, table=self._entry.text)
        op = self._operation(each, write)
        exists = write.reason is None and each.after.exists
        if not exists and not existed:
            return None
        rank = each.after.upsert or each.after.tombstone or (each.before and each.before.upsert) or b""
        old = _old(each, shown, self._table) if existed and shown is not None else {}
        change = RowChange(
            op, each.key_bytes, {}, [], rank[16:32], *hlc_of_rank(rank), each.partial, not exists, old=old
        )
        if exists:
            if write.lost:
                note_lost(self._context, self._tx, self._table, write)
            before = each.before if existed and each.before is not None else RowState()
            change = self._seen(change, each, write, before, (existed and shown) or {})
            told = change.values or change.cleared or change.unmaterialized
            if existed and shown is not None and not told:
                return None  # a default gave way to what nobody wrote: no reader of the table is shown either
        return changes.row(self._context.take_change(), self._table.no, change)

    def _operation(self, each: Restated, write: RowWrite) -> str:
        if write.reason is not None and each.after.exists:
            return changes.WITHHOLD
        if self._taken_back and each.after != each.before:
            return changes.TAKEN_BACK
        if not each.after.exists:
            return changes.DELETE
        return changes.SHOW if each.reason is not None and write.fold.existed else changes.UPSERT

    def _seen(self, change: RowChange, each: Restated, write: RowWrite, before: RowState, shown: Shown) -> RowChange:
        """The change with the columns that have another value than `shown`, and those that have none any more."""
        known = self._table.columns
        values = {
            name: value
            for name, value in write.fold.values.items()
            if name in known and not (name in shown and _alike(known[name], value, shown[name][0]))
        }
        were_cleared, were_not_there = set(before.cleared(known)), set(before.unmaterialized(known))
        cleared = [name for name in each.after.cleared(known) if name not in were_cleared]
        unmaterialized = tuple(name for name in each.after.unmaterialized(known) if name not in were_not_there)
        return change._replace(
            values=values,
            cleared=cleared,
            partial=change.partial or bool(write.lost),
            unmaterialized=unmaterialized,
            old={name: value for name, value in change.old.items() if name in {*values, *cleared, *unmaterialized}},
        )


def _old(each: Restated, shown: Shown, table: Destination) -> dict[str, Any]:
    """What the row held, as SQL showed it."""
    held = NOTHING if each.before is None else clocked(each.before, table)
    return old_values(((name, value) for name, (value, _) in shown.items()), held)


def _shown_sql(column: Column, *, compared: bool) -> str:
    """The column's value, and whether it is the default; most columns have none."""
    name = quote(column.name)
    if not compared or column.default is None:
        return f"{name}, 0"
    default = _default_sql(column.default)
    # 1.0 IS 1; a column that makes nothing of its values holds either.
    exact = f" AND typeof({name}) = typeof({default})" if column.affinity is Affinity.BLOB else ""
    return f"{name}, {name} IS ({default}){exact}"


def _default_sql(text: str) -> str:
    """SQLite takes a bare or double-quoted name as a default's text; in a query it would be a column."""
    word = text.strip()
    if word[:1] in _CLOSING and word[-1:] == _CLOSING[word[:1]]:
        end = word[-1]
        word = word[1:-1].replace(end + end, end)
    elif not word.isidentifier() or word.upper() in _KEYWORDS:
        return text
    return "'" + word.replace("'", "''") + "'"


def _alike(column: Column, value: Scalar, shown: Any) -> bool:
    """Whether the column may have made `shown` of `value`: an affinity changes the type, hardly ever the text."""
    if isinstance(value, bool):
        value = int(value)
    if column.affinity is Affinity.BLOB:
        return type(value) is type(shown) and bool(value == shown)
    return bool(value == shown) or (value is not None and shown is not None and str(value) == str(shown))

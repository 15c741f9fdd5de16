"""Applied events of one batch, folded per row in memory, become row states, table rows and changes (SSP/1 §13).

Every touched row is loaded once and written once, however many events of the batch are about it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from meshnode.codec import cbor
from meshnode.engine.contest import Contest
from meshnode.engine.contested import Applied
from meshnode.engine.context import Context
from meshnode.limits import BATCH_EVENTS, SCHEMA_DRIFT_MS
from meshnode.merge.rows import RowFold, RowState
from meshnode.model.event import Event, Scalar
from meshnode.model.hlc import Rank, hlc_of_rank
from meshnode.model.wording import clock_text, key_text
from meshnode.store import changes, notices, rows
from meshnode.store import held as waiting
from meshnode.store.before import Before, clocked, old_values
from meshnode.store.changes import RowChange
from meshnode.store.database import Tx
from meshnode.store.materialize import RowWrite, TableWriter
from meshnode.store.names import TableEntry
from meshnode.store.recall import recall
from meshnode.store.tables import Destination

Ranked: TypeAlias = list[tuple[Rank, Event]]

_WHOLE: Final = frozenset((changes.RESURRECT, changes.SHOW))  # what nobody saw before is told whole


class Materializer:
    """Collects the applied events of one batch and writes them all at once."""

    def __init__(
        self, context: Context, tx: Tx, *, again: bool = False, seen: bool = False, contest: Contest | None = None
    ) -> None:
        self._context = context
        self._tx = tx
        self._contest = contest
        self._again = again  # events that were applied before: what of them was ignored is metered already
        self._seen = seen  # SQL shows what these events say: somebody wrote it there
        self._tables: dict[int, tuple[TableEntry, Destination, dict[bytes, Ranked]]] = {}
        self._ignored: Counter[tuple[int, str]] = Counter()
        self._changes: list[changes.ChangeRow] = []
        self.withheld: list[tuple[TableEntry, RowWrite]] = []

    def add(self, entry: TableEntry, destination: Destination, event: Event) -> None:
        """An event that was judged `applied`."""
        table = self._tables.get(destination.no)
        if table is None:
            table = self._tables[destination.no] = (entry, destination, {})
        events = table[2].get(event.key_bytes)
        if events is None:
            table[2][event.key_bytes] = [(event.rank, event)]
        else:
            events.append((event.rank, event))

    def write(self, now_ms: int) -> None:
        """Load, fold, write: rows of the destinations, their states, the changes, the meters."""
        for entry, destination, events in self._tables.values():
            self._write_table(entry, destination, events)
        changes.append(self._tx, self._changes)
        if self._contest is not None:
            self._contest.finish()
        if self._ignored:
            waiting.meter_ignored(self._tx, self._ignored, now_ms)
            self._note_drift(now_ms)

    def _write_table(self, entry: TableEntry, destination: Destination, events: Mapping[bytes, Ranked]) -> None:
        states = rows.load(self._tx, destination.no, list(events))
        names = [column.name for column in destination.key]
        contest = self._contest
        writes = []
        # Before these events: the columns of the rows that readers see which hold something, and who won them.
        held: dict[bytes, tuple[Container[str], Mapping[str, Rank]]] = {}
        for key_bytes, ranked in events.items():
            state, reason = states.get(key_bytes, (None, None))
            if state is not None and reason is None:
                held[key_bytes] = clocked(state, destination), dict(state.columns) if self._seen else {}
            key = ranked[0][1].key or {}
            before = None if contest is None else contest.stake(destination.no, key_bytes, state)
            fold = self._fold(destination, state, ranked)
            if contest is not None and before is not None:
                contest.add(entry, key_bytes, before, _applied(destination, ranked))
            if fold.touched or reason is not None:
                writes.append(RowWrite(key_bytes, tuple([key[name] for name in names]), fold, reason))
        sql = Before(self._tx, destination)
        old = {
            each.key_bytes: self._old(sql, each, *held[each.key_bytes])
            for each in writes
            if each.shown and each.fold.changed
        }
        self._write_rows(destination, writes)
        self._note_changes(entry, destination, writes, events, old)

    def _old(self, sql: Before, write: RowWrite, held: Container[str], ranks: Mapping[str, Rank]) -> dict[str, Any]:
        """What the row held: as SQL shows it, or as the log says where somebody wrote it there already."""
        if not self._seen:
            return sql.values(write.key, held)
        nulls = {name: None for name in sql.names if name not in ranks}
        return old_values({**nulls, **recall(self._tx, self._context.sites, ranks)}.items(), held)

    def retry(self, entry: TableEntry, destination: Destination, keys: Sequence[bytes]) -> None:
        """Try rows again that the table did not allow: its schema is another now."""
        for start in range(0, len(keys), BATCH_EVENTS):
            writes = []
            for key_bytes, (state, reason) in rows.load(
                self._tx, destination.no, keys[start : start + BATCH_EVENTS]
            ).items():
                key: Any = cbor.decode_untrusted(key_bytes)
                if destination.resolves(key):  # else it is of an earlier primary key
                    names = [column.name for column in destination.key]
                    writes.append(RowWrite(key_bytes, tuple([key[name] for name in names]), RowFold(state), reason))
            self._write_rows(destination, writes)
            for write in writes:
                if write.reason is None and write.fold.state.exists:
                    self._note_change(changes.SHOW, entry, destination, write, write.fold.state.upsert or b"", {})
            changes.append(self._tx, self._changes)  # whole rows, and there may be many: none of them waits in memory
            self._changes = []

    def _write_rows(self, destination: Destination, writes: Sequence[RowWrite]) -> None:
        context = self._context
        if not self._seen:
            TableWriter(self._tx, context.env.sqlite, destination, context.sites, context.barred).write(writes)
        rows.save(self._tx, [(destination.no, each.key_bytes, each.fold.state.pack(), each.reason) for each in writes])
        for each in writes:
            if each.lost and each.reason is None:
                note_lost(context, self._tx, destination, each)
        allowed = any(each.reason is None and each.reason_before for each in writes)
        if allowed and not rows.any_withheld(self._tx, destination.no):
            notices.end(self._tx, "withheld", table=destination.text)

    def _fold(self, destination: Destination, state: RowState | None, ranked: Ranked) -> RowFold:
        fold = RowFold(state)
        for rank, event in ranked:
            columns = event.columns
            if columns is None:
                fold.delete(rank)
                continue
            accepted = destination.accepted(columns)
            if accepted is not columns:
                self._meter(destination.no, columns, accepted)
            fold.upsert(rank, accepted)
        return fold

    def _meter(self, table_no: int, columns: Mapping[str, Scalar], accepted: Mapping[str, Scalar]) -> None:
        if self._again:
            return
        for name in columns:
            if name not in accepted:
                self._ignored[(table_no, name)] += 1

    def _note_drift(self, now_ms: int) -> None:
        """Ignoring is expected while a mesh rolls through an upgrade, and a fault when it persists (SSP/1 §13.6)."""
        for entry, _, _ in self._tables.values():
            if not any(table_no == entry.no for table_no, _ in self._ignored):
                continue
            drifting = waiting.ignored_since(self._tx, entry.no or 0, now_ms - SCHEMA_DRIFT_MS, now_ms)
            if drifting:
                sample = f"events go on naming columns that the table does not have: {', '.join(drifting)[:300]}"
                self._context.surface(self._tx, "schema-drift", None, sample, table=entry.text)

    def _note_changes(
        self,
        entry: TableEntry,
        destination: Destination,
        writes: Iterable[RowWrite],
        events: Mapping[bytes, Ranked],
        old: Mapping[bytes, Mapping[str, Any]],
    ) -> None:
        for write in writes:
            fold = write.fold
            if write.reason is not None:
                self._note_withheld(entry, write)
            if fold.resurrected:
                self._note_resurrected(entry, write)
            op = _operation(write)
            if op is not None:
                ranked = events[write.key_bytes]
                newest = ranked[0][0] if len(ranked) == 1 else max(rank for rank, _ in ranked)
                self._note_change(op, entry, destination, write, newest, old.get(write.key_bytes, {}))

    def _note_change(
        self,
        op: str,
        entry: TableEntry,
        destination: Destination,
        write: RowWrite,
        newest: Rank,
        old: Mapping[str, Any],
    ) -> None:
        """What readers of the table are told; of a row that they do not see any more, only that."""
        values: dict[str, Scalar] = {}
        cleared: list[str] = []
        partial = False
        if op not in changes.HIDES:
            values = _values(write, destination)
            cleared = _cleared(op, write, destination)
            partial = bool(write.lost) or (op in _WHOLE and _is_cut(entry, write.fold.state))
            old = {name: value for name, value in old.items() if name in values or name in cleared}
        change = RowChange(
            op, write.key_bytes, values, cleared, newest[16:32], *hlc_of_rank(newest), partial, old=dict(old)
        )
        self._changes.append(changes.row(self._context.take_change(), destination.no, change))

    def _note_withheld(self, entry: TableEntry, write: RowWrite) -> None:
        self.withheld.append((entry, write))
        sample = f"row {_key_text(write)} is withheld: {write.reason}"
        self._context.surface(self._tx, "withheld", None, sample, table=entry.text)

    def _note_resurrected(self, entry: TableEntry, write: RowWrite) -> None:
        """SSP/1 §13.2, and §13.4 where the horizon may have taken what the row should get back."""
        row = f"row {_key_text(write)}"
        self._context.surface(self._tx, "resurrected", None, f"{row} was deleted and exists again", table=entry.text)
        if _is_cut(entry, write.fold.state):
            sample = f"{row} exists again, possibly without values from below the horizon {clock_text(entry.horizon)}"
            self._context.surface(self._tx, "partial", None, sample, table=entry.text)


def _applied(destination: Destination, ranked: Ranked) -> Applied:
    """What of the events the table takes."""
    return [(rank, None if event.columns is None else destination.accepted(event.columns)) for rank, event in ranked]


def note_lost(context: Context, tx: Tx, destination: Destination, write: RowWrite) -> None:
    """Surface a row that was out of SQL while the events of its values were evicted (profile §5)."""
    names = ", ".join(write.lost)[:100]
    sample = f"row {_key_text(write)} is shown again without its values of {names}: their events were evicted"
    context.surface(tx, "partial", None, sample, table=destination.text)


def _key_text(write: RowWrite) -> str:
    return key_text(cbor.decode_untrusted(write.key_bytes))


def _operation(write: RowWrite) -> str | None:
    """What a reader of the table saw happen to the row, None where nothing."""
    fold = write.fold
    if write.reason is not None and fold.state.exists:
        return changes.WITHHOLD if write.shown else None
    if not fold.state.exists:
        return changes.DELETE if write.shown else None
    if fold.resurrected:
        return changes.RESURRECT
    if fold.existed and write.reason_before is not None:
        return changes.SHOW
    return changes.UPSERT if fold.changed else None


def _values(write: RowWrite, destination: Destination) -> dict[str, Scalar]:
    """The columns that got another value, of a row that was not in SQL all that it has."""
    values = write.fold.values
    if not write.recalled and not write.lost:
        return values
    whole = {**dict.fromkeys(write.lost), **write.recalled, **values}
    return {name: value for name, value in whole.items() if name in destination.columns}


def _cleared(op: str, write: RowWrite, destination: Destination) -> list[str]:
    """The columns that are cleared and were not: the first delete of a row clears what nobody ever wrote too."""
    fold = write.fold
    if op in _WHOLE:
        return fold.state.cleared(destination.columns)
    if not fold.tombstone_moved:
        return []
    cleared = fold.state.cleared(destination.columns)
    return cleared if fold.tombstone_before is None else [name for name in cleared if name in fold.cleared]


def _is_cut(entry: TableEntry, state: RowState) -> bool:
    """Whether what a row should get back above its tombstone may lie below the horizon (SSP/1 §13.4)."""
    return state.tombstone is not None and hlc_of_rank(state.tombstone) < entry.horizon

"""`check`: rows, clocks, watermarks and the log recomputed from the retained events, and what differs named.

State is a pure function of the delivered events (profile §5), so whatever cannot be computed again from the log is a
difference. What lies below a table's horizon is frozen, and what was evicted, forgotten, compacted or taken back has no
evidence any more: it is taken as given and counted. Reads only.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Final

from meshnode.codec import cbor
from meshnode.engine.check_conflicts import check_conflicts
from meshnode.engine.check_file import check_file
from meshnode.engine.check_log import KeyOf, check_held, check_log
from meshnode.engine.check_values import Shadow
from meshnode.engine.check_watermarks import Claims
from meshnode.engine.findings import Findings, note
from meshnode.errors import CorruptStateError, EnvelopeError
from meshnode.merge.rows import RowFold, RowState
from meshnode.model.event import Event
from meshnode.model.hlc import Rank, hlc_of_rank
from meshnode.model.wording import counted_text, key_text
from meshnode.store import capture, held, log, queries, removed, shapes, takebacks
from meshnode.store.database import Tx
from meshnode.store.names import TableEntry
from meshnode.store.rows import unpack_state
from meshnode.store.tables import Destination

EVENTS_PER_PASS: Final = 200_000  # events folded in memory at a time; a larger log is read several times
_NOT_OURS: Final = ": write them with `meshnode import`, or delete them"


def check_store(tx: Tx, sqlite: ModuleType, key_of: KeyOf) -> Findings:
    """Check everything in one snapshot; `key_of` gives the public keys that signatures are verified under."""
    findings = Findings()
    check_file(tx, sqlite, findings)
    check_log(tx, findings, key_of)
    check_held(tx, findings)
    check_conflicts(tx, findings)
    if takebacks.pending(tx):
        findings.differ("", "membership", "what is no longer acceptable is not all taken back yet: run the node")
        return findings
    claims = Claims(tx, findings)
    for entry, destination in queries.registered_tables(tx):
        if not isinstance(destination, Destination):
            findings.differ(entry.text, "table", destination)
        elif shapes.read(tx, destination.no) != (shapes.shape_of(destination), None):
            findings.differ(entry.text, "table", "its rows are not brought up to its changed schema yet: run the node")
        elif capture.is_unsigned(tx, destination.no):
            findings.differ(entry.text, "table", "what was written to it by SQL is not all signed yet: run the node")
        else:
            findings.tables += 1
            _Table(tx, sqlite, entry, destination, findings, claims).check()
    claims.check()
    return findings


class _Table:
    """One destination against its events."""

    def __init__(
        self,
        tx: Tx,
        sqlite: ModuleType,
        entry: TableEntry,
        destination: Destination,
        findings: Findings,
        claims: Claims,
    ) -> None:
        self._tx = tx
        self._entry = entry
        self._destination = destination
        self._findings = findings
        self._claims = claims
        self._shadow = Shadow(sqlite, destination)
        self._evicted = _was_evicted(tx)
        self._shown = 0

    def check(self) -> None:
        """In as many passes as memory asks for; each takes the rows whose keys fall to it."""
        sql = "SELECT count(*) FROM meshnode_log WHERE table_no = ?"
        events = int(self._tx.execute(sql, (self._destination.no,)).fetchone()[0])
        passes = events // EVENTS_PER_PASS + 1
        for number in range(passes):
            self._pass(lambda key, number=number: zlib.crc32(key) % passes == number)  # type: ignore[misc]
        in_sql = self._tx.execute(f"SELECT count(*) FROM {self._destination.quoted} NOT INDEXED").fetchone()[0]  # noqa: S608
        if in_sql > self._shown:
            self._differ("rows in SQL", f"{in_sql - self._shown} of them come from no event{_NOT_OURS}")
        self._shadow.close()

    def _pass(self, mine: Callable[[bytes], bool]) -> None:
        evidence: dict[bytes, list[tuple[Rank, Event]]] = {}
        for event in self._events():
            if mine(event.key_bytes):
                evidence.setdefault(event.key_bytes, []).append((event.rank, event))
        stored = self._tx.execute(
            "SELECT key, state, reason FROM meshnode_rows WHERE table_no = ?", (self._destination.no,)
        )
        for key_bytes, packed, reason in stored:
            if mine(key_bytes):
                self._findings.rows += 1
                self._row(key_bytes, packed, reason, evidence.pop(key_bytes, []))
        for key_bytes, events in evidence.items():
            if not self._is_forgotten(key_bytes):
                self._row_differs(key_bytes, f"it has {counted_text(len(events), 'event')} and no clocks")

    def _events(self) -> Iterator[Event]:
        """What feeds the rows of this table: never what lies below the horizon."""
        found = self._tx.execute(
            "SELECT CAST(event AS BLOB) FROM meshnode_log WHERE table_no = ? AND state = ? ORDER BY position",
            (self._destination.no, log.APPLIED),
        )
        for (data,) in found:
            try:
                event = log.parse(bytes(data))
            except EnvelopeError:
                continue  # named already
            if event.hlc >= self._entry.horizon and event.key and self._destination.resolves(event.key):
                yield event

    def _row(self, key_bytes: bytes, packed: bytes, reason: str | None, events: list[tuple[Rank, Event]]) -> None:
        key: Any = cbor.decode_untrusted(key_bytes)
        if key.keys() != self._destination.key_names:
            return  # of an earlier primary key
        found = self._shadow.find(self._tx, key)
        self._shown += found is not None
        try:
            state = unpack_state(packed)
        except CorruptStateError as error:
            self._row_differs(key_bytes, str(error))
            return
        if self._is_forgotten(key_bytes):
            self._differ(_text(key_bytes), "it was forgotten here and its clocks are still there: forget it again")
            return
        known = {rank for rank, _ in events}
        for rank in (state.tombstone, state.upsert, *state.columns.values()):
            if rank is not None and rank not in known and not self._is_given(rank, known):
                self._claims.misses(self._destination.no, rank)
        fold = RowFold(self._given(state, known))
        for rank, event in events:
            if event.columns is None:
                fold.delete(rank)
            else:
                fold.upsert(rank, self._destination.accepted(event.columns))
        if fold.state != state:
            self._row_differs(key_bytes, _unlike(state, fold.state))
        elif reason is None:  # what a trigger keeps of a withheld row is its own affair
            self._values(key_bytes, fold, found)

    def _given(self, state: RowState, known: set[Rank]) -> RowState:
        """The part of a state that nothing in the log can confirm and that need not be confirmed."""
        columns = {name: rank for name, rank in state.columns.items() if self._is_given(rank, known)}
        tombstone, upsert = state.tombstone, state.upsert
        keeps_tombstone = tombstone is not None and self._is_given(tombstone, known)
        keeps_upsert = upsert is not None and self._is_given(upsert, known)
        self._findings.given += len(columns) + keeps_tombstone + keeps_upsert
        return RowState(tombstone if keeps_tombstone else None, upsert if keeps_upsert else None, columns)

    def _is_given(self, rank: Rank, known: set[Rank]) -> bool:
        return hlc_of_rank(rank) < self._entry.horizon or (self._evicted and rank not in known)

    def _values(self, key_bytes: bytes, fold: RowFold, found: tuple[Any, ...] | None) -> None:
        """The SQL row holds what the winning events said, as its columns store it."""
        if not fold.state.exists or found is None:
            if fold.state.exists:
                self._row_differs(key_bytes, "it exists and is not in SQL")
            elif found is not None:
                self._row_differs(key_bytes, "it does not exist and is in SQL")
            return
        unknown = fold.state.columns.keys() - fold.values.keys()
        self._findings.given += len(unknown)
        defaults = self._destination.shows_defaults if fold.state.tombstone is None else ()
        unread = unknown | {name for name in defaults if name not in fold.state.columns}
        for name, expected, there in self._shadow.compare(fold.values, found):
            if name not in unread and (type(expected) is not type(there) or expected != there):
                self._row_differs(key_bytes, f"column {name!r} holds {_cut(there)}, the log says {_cut(expected)}")

    def _is_forgotten(self, key_bytes: bytes) -> bool:
        return self._entry.forgotten and held.is_forgotten(self._tx, self._destination.no, key_bytes)

    def _row_differs(self, key_bytes: bytes, what: str) -> None:
        self._differ(_text(key_bytes), what)
        note(self._findings.mendable.rows, (self._destination.no, key_bytes))

    def _differ(self, where: str, what: str) -> None:
        self._findings.differ(self._entry.text, where, what)


def _was_evicted(tx: Tx) -> bool:
    """Whether events were ever evicted here: after a `rehydrate` no horizon tells any more which are missing."""
    sql = "SELECT 1 FROM meshnode_removed WHERE why = ? LIMIT 1"
    return tx.execute(sql, (removed.EVICTED,)).fetchone() is not None


def _unlike(stored: RowState, computed: RowState) -> str:
    names = [name for name in ("tombstone", "upsert") if getattr(stored, name) != getattr(computed, name)]
    names += [
        f"column {name!r}"
        for name in sorted(stored.columns.keys() | computed.columns.keys())
        if stored.columns.get(name) != computed.columns.get(name)
    ]
    return f"its clocks are not those of its events: {', '.join(names)}"


def _text(key_bytes: bytes) -> str:
    return f"row {key_text(cbor.decode_untrusted(key_bytes))}"


def _cut(value: Any) -> str:
    return repr(value)[:80]

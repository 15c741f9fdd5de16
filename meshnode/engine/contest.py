"""Concurrent writes of one cell, found where a batch decides it: one of the two by this node (the conflict ledger).

Which value shows was decided by the ranks (SSP/1 §13); this only keeps that somebody's write was replaced, or lost, to
one that did not know it. Looked at are rows that hold a write of this node, and those with a conflict that is not over:
`engine/contested.py` has what is found there.
"""

from __future__ import annotations

from meshnode.engine.concurrency import Concurrency
from meshnode.engine.contested import Applied, ContestedRow, Found
from meshnode.engine.context import Context
from meshnode.errors import CorruptStateError, EnvelopeError
from meshnode.limits import AGREED_PER_BATCH, CONFLICTS_PER_SITE
from meshnode.merge.rows import RowState
from meshnode.model.conflict import SITE_OF_RANK, Relation, Status, conflict_id
from meshnode.model.hlc import Rank
from meshnode.model.policy import TableClass
from meshnode.store import conflicts
from meshnode.store.conflicts import Conflict
from meshnode.store.database import Tx
from meshnode.store.names import TableEntry


class Contest:
    """Collects the rows of one batch that may be contested; `finish` looks at them once the batch is in the log."""

    def __init__(self, context: Context, tx: Tx, *, local: bool) -> None:
        self._context = context
        self._tx = tx
        self._local = local  # written here
        self._own = context.site
        self._rows: list[tuple[TableEntry, bytes, RowState, Applied]] = []
        self._recorded: dict[int, int] = {}  # by the number of the other site
        self._dropped: dict[int, int] = {}
        self._agreed = 0

    def stake(self, table_no: int, key_bytes: bytes, state: RowState | None) -> RowState | None:
        """A copy of the row's state where it has to be looked at, before the batch is folded into it."""
        if state is None:
            return None
        mine = not self._local and _has(state, self._own)
        if not mine and (table_no, hash(key_bytes)) not in self._context.contested(self._tx):
            return None
        return RowState(state.tombstone, state.upsert, dict(state.columns))

    def add(self, entry: TableEntry, key_bytes: bytes, before: RowState, applied: Applied) -> None:
        """A row as it was, and its events in the order of their arrival."""
        if entry.table_class is not TableClass.PRIVATE:
            self._rows.append((entry, key_bytes, before, applied))

    def finish(self) -> None:
        """Record, go on, end; and keep the ledger within its bounds."""
        evidence = Concurrency(self._context, self._tx)
        for entry, key_bytes, before, applied in self._rows:
            try:
                self._look(evidence, entry, key_bytes, before, applied)
            except (CorruptStateError, EnvelopeError) as error:  # what cannot be read here stops no event
                self._context.surface(self._tx, "unreadable-state", None, str(error), table=entry.text)
        if self._recorded:
            self._trim()

    def _look(
        self, evidence: Concurrency, entry: TableEntry, key_bytes: bytes, before: RowState, applied: Applied
    ) -> None:
        assert entry.no is not None
        contested = (entry.no, hash(key_bytes)) in self._context.contested(self._tx)
        known = conflicts.watched(self._tx, entry.no, key_bytes) if contested else []
        row = ContestedRow(self._context, self._tx, entry, before, known, evidence, local=self._local)
        for rank, columns in applied:
            row.meet(rank, columns)
        self._keep(entry, key_bytes, row)

    def _keep(self, entry: TableEntry, key_bytes: bytes, row: ContestedRow) -> None:
        assert entry.no is not None
        for found in row.found:
            number = self._context.sites.number(self._tx, found.theirs.site)
            if self._is_beyond(number, found):
                continue
            if conflicts.add(self._tx, self._conflict(entry, entry.no, key_bytes, number, found)):
                self._agreed += found.agreed
                self._recorded[number] = self._recorded.get(number, 0) + 1
                self._context.contested(self._tx).add((entry.no, hash(key_bytes)))
        for site in row.beyond:
            self._drop(self._context.sites.number(self._tx, site))
        for conflict, reason in row.ended:
            conflicts.end(self._tx, conflict, Status.RESOLVED, reason)

    def _is_beyond(self, number: int, found: Found) -> bool:
        """Whether this is more than one batch may record: a member may make them without end."""
        if found.agreed:
            return self._agreed >= AGREED_PER_BATCH
        if self._recorded.get(number, 0) < CONFLICTS_PER_SITE:
            return False
        if found.over is None:
            self._drop(number)
        return True

    def _drop(self, number: int) -> None:
        self._dropped[number] = self._dropped.get(number, 0) + 1

    def _conflict(self, entry: TableEntry, table_no: int, key_bytes: bytes, number: int, found: Found) -> Conflict:
        pair: tuple[Rank, Rank] = found.ours.rank, found.theirs.rank
        status = Status.AGREED if found.agreed else Status.OPEN if found.over is None else Status.RESOLVED
        return Conflict(
            conflict_id(entry.schema, entry.name, key_bytes, found.column, *pair),
            table_no,
            key_bytes,
            found.column,
            found.ours,
            found.position,
            found.theirs,
            number,
            certain=found.relation is Relation.CONCURRENT,
            status=status,
            reason=found.over or "",
            watched=found.over is None,
            recorded_ms=self._context.env.wall_ms(),
        )

    def _trim(self) -> None:
        gone = conflicts.trim(self._tx, list(self._recorded))
        for number in gone.keys() | self._dropped.keys():
            count = gone.get(number, 0) + self._dropped.get(number, 0)
            sample = f"conflicts with this site are more than are kept: {count} were dropped that nobody had looked at"
            self._context.surface(self._tx, "conflicts-dropped", self._context.sites.site_of(self._tx, number), sample)


def _has(state: RowState, site: bytes) -> bool:
    """Whether any of the row's clocks is of this site."""
    for rank in (state.tombstone, state.upsert):
        if rank is not None and rank[SITE_OF_RANK] == site:
            return True
    before: Rank = b""
    for rank in state.columns.values():
        if rank is not before and rank[SITE_OF_RANK] == site:
            return True
        before = rank
    return False

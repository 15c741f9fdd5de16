"""Rows recomputed from the retained log: what feeds a rebuild and what stays as given (SSP/1 §13.4, profile §5, §9).

However many rows and events there are, it is done in small steps, between which other work goes on. A row keeps what it
shows until its own step, which writes all its cells together; events that arrive meanwhile are in the log by then, and
are taken in before any row is written. A process that ends in the middle begins again with what is left to do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final, TypeAlias

from meshnode.codec import cbor
from meshnode.engine.context import Context
from meshnode.engine.restate import Restated, Restater
from meshnode.limits import BATCH_EVENTS, MIB
from meshnode.merge.rows import RowFold, RowState
from meshnode.model.event import Event
from meshnode.model.hlc import ZERO, Hlc, Rank, hlc_of_rank
from meshnode.model.membership import Membership
from meshnode.store import log, rows
from meshnode.store.database import Tx
from meshnode.store.folds import Folds
from meshnode.store.names import TableEntry
from meshnode.store.tables import Destination

Choice: TypeAlias = Callable[[bytes, RowState], bool]
"""Whether the row with this key and these clocks is to be recomputed."""

ROWS_LOOKED_AT: Final = 1024  # rows whose clocks one step looks at
POSITIONS_A_STEP: Final = 1024  # positions of the log that one step reads
BYTES_A_STEP: Final = 4 * MIB  # of events that one step reads, and of rows that one writes; one of each always fits


class Rebuild:
    """Call `step` until it returns False, each time in another transaction; one that fails ends it.

    Three passes: over the clocks, for the rows that `choice` names (None: every row of the table, and those of which
    there are events alone), unless `keys` names them; over the log, whose events are folded row by row; and over these
    rows, in the order of their keys. Events below the horizon never feed it, whether or not their bytes still exist;
    what a state holds from there stays as given. A row whose winner above the horizon is not in the log any more is
    *partial* where the horizon cut what was below that winner, and surfaced so. Held events count once they are
    released.
    """

    def __init__(
        self,
        context: Context,
        tx: Tx,
        entry: TableEntry,
        destination: Destination,
        choice: Choice | None = None,
        after: bytes = b"",
        *,
        keys: Collection[bytes] | None = None,
    ) -> None:
        self.after = after  # the rows up to these key bytes are done
        self.rewritten = 0  # rows of SQL that changed
        self._context = context
        self._entry = entry
        self._destination = destination
        self._horizon, self._generation = entry.horizon, context.generation
        self._choice = choice
        self._all = choice is None and keys is None
        self._folds = Folds("whole" if self._all else "chosen" if keys is None else "named")
        self._folds.create(tx)
        self._looked: bytes | None = after  # rows up to here were looked at; None: all of them
        self._chosen = self._all  # whether there is any row to recompute
        if keys is not None:
            self._folds.expect(tx, keys)
            self._looked, self._chosen = None, True
        self._read = 0  # positions of the log up to here are folded

    def fits(self, entry: TableEntry, destination: Destination) -> bool:
        """Whether what was folded so far still holds: the table, its horizon and the membership are the same."""
        now = (entry.no, destination, entry.horizon, self._context.generation)
        return now == (self._entry.no, self._destination, self._horizon, self._generation)

    def step(self, tx: Tx) -> bool:
        """One bounded step; whether there is more to do."""
        newest = self._context.next_position - 1
        if self._looked is not None:
            self._look(tx, self._looked)
            more = self._looked is not None or self._chosen
        else:
            if self._read < newest:
                self._feed(tx, newest)
            more = self._read < newest or self._restate(tx)
        if not more:
            self._folds.drop(tx)
        return more

    def _look(self, tx: Tx, after: bytes) -> None:
        page = rows.page(tx, self._destination.no, after, ROWS_LOOKED_AT)
        keys = [key for key, state, _ in page if self._choice is None or self._choice(key, state)]
        self._folds.expect(tx, keys)
        self._chosen = self._chosen or bool(keys)
        self._looked = page[-1][0] if len(page) == ROWS_LOOKED_AT else None

    def _feed(self, tx: Tx, newest: int) -> None:
        """Fold the next events of the log that the table takes: not held, not below the horizon."""
        top = min(self._read + POSITIONS_A_STEP, newest)
        found, self._read = log.read_table_up(tx, self._destination.no, self._read, top, BYTES_A_STEP)
        events: dict[bytes, list[Event]] = {}
        for event in (log.parse(each.event) for each in found):
            if self._counts(event) and event.key_bytes > self.after:
                events.setdefault(event.key_bytes, []).append(event)
        for key_bytes, fresh in events.items():  # one row in memory at a time: its values may be large
            fold = self._folds.find(tx, key_bytes)
            if fold is None and not self._all:
                continue
            fold = fold or RowFold(None)
            for event in fresh:
                _fold(fold, self._destination, event)
            self._folds.save(tx, key_bytes, fold)

    def _counts(self, event: Event) -> bool:
        if event.hlc < self._entry.horizon or not event.key or not self._destination.resolves(event.key):
            return False
        return self._context.membership.judge(event.site, event.hlc) is None

    def _restate(self, tx: Tx) -> bool:
        page = self._folds.page(tx, self.after, BATCH_EVENTS, BYTES_A_STEP)
        if not page:
            return False
        before = rows.load(tx, self._destination.no, [key_bytes for key_bytes, _ in page])
        restated = []
        for key_bytes, evidence in page:
            key = key_values(self._destination, key_bytes)
            if key is not None:
                state, reason = before.get(key_bytes, (None, None))
                fold = self._folded(tx, state, evidence)
                restated.append(Restated(key_bytes, key, state, reason, fold.state, fold.values))
                _note_partial(self._context, tx, self._entry, self._destination, restated[-1])
        self.rewritten += self._restater(tx).write(restated)
        self.after = page[-1][0]
        return True

    def _restater(self, tx: Tx) -> Restater:
        """Rows are recomputed because events of theirs were taken back, and here for no other reason."""
        return Restater(self._context, tx, self._entry, self._destination, taken_back=True)

    def _given(self, _tx: Tx, state: RowState) -> RowState:
        """What stays of a state that no event of the log explains."""
        return given(state, self._entry.horizon, self._context.membership)

    def _folded(self, tx: Tx, state: RowState | None, evidence: RowFold) -> RowFold:
        """What the log says of a row, on top of what is given."""
        fold = RowFold(None if state is None else self._given(tx, state))
        found = evidence.state
        if found.tombstone is not None:
            fold.delete(found.tombstone)
        if found.upsert is not None:
            fold.upsert(found.upsert, {})
        for name, rank in found.columns.items():
            fold.upsert(rank, {name: evidence.values[name]})
        return fold


def abandon(context: Context, tx: Tx) -> None:
    """The log lost events: what was read of it does not hold any more, and is begun again."""
    context.work.clear()
    for name in ("whole", "chosen", "named"):
        Folds(name).drop(tx)


def given(state: RowState, horizon: Hlc, membership: Membership) -> RowState:
    """The part of a state that lies below the horizon: no event of the log may feed it again.

    Without what is no longer acceptable (profile §9): a rank names its signer, whether or not the event is still here.
    """

    def stays(rank: Rank) -> bool:
        hlc = hlc_of_rank(rank)
        return hlc < horizon and membership.judge(rank[16:32], hlc) is None

    return part(state, stays)


def part(state: RowState, stays: Callable[[Rank], bool]) -> RowState:
    """What some of its clocks make of a state."""
    tombstone, upsert = state.tombstone, state.upsert
    below = {name: rank for name, rank in state.columns.items() if stays(rank)}
    upsert = upsert if upsert is not None and stays(upsert) else None
    if upsert is None and below:
        upsert = max(below.values())  # of what was below, the highest that is known
    return RowState(tombstone if tombstone is not None and stays(tombstone) else None, upsert, below)


def _fold(fold: RowFold, destination: Destination, event: Event) -> None:
    if event.columns is None:
        fold.delete(event.rank)
    else:
        fold.upsert(event.rank, destination.accepted(event.columns))


def key_values(destination: Destination, key_bytes: bytes) -> tuple[Any, ...] | None:
    """The key's values in the order of the primary key; None where the key is of an earlier primary key."""
    key: Any = cbor.decode_untrusted(key_bytes)
    if not destination.resolves(key):
        return None
    return tuple(key[column.name] for column in destination.key)


def _note_partial(context: Context, tx: Tx, entry: TableEntry, destination: Destination, each: Restated) -> None:
    """A clock above the horizon that no event explains any more replaced something that the horizon discarded."""
    if each.before is None or entry.horizon == ZERO:
        return
    after = each.after
    known = ((name, rank) for name, rank in each.before.columns.items() if name in destination.columns)
    moved = any(_lowered(rank, after.columns.get(name)) for name, rank in known)
    if moved or _lowered(each.before.upsert, after.upsert) or _lowered(each.before.tombstone, after.tombstone):
        sample = f"row {str(each.key)[:100]} was rebuilt, possibly without what lies below {tuple(entry.horizon)}"
        context.surface(tx, "partial", None, sample, table=entry.text)
        each.partial = True


def _lowered(before: Rank | None, after: Rank | None) -> bool:
    return before is not None and (after is None or after < before)

"""Rows recomputed from the retained log: what feeds a rebuild and what stays as given (SSP/1 §13.4, profile §5, §9)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

from meshnode.codec import cbor
from meshnode.engine.context import Context
from meshnode.engine.restate import Restated, Restater
from meshnode.limits import BATCH_EVENTS
from meshnode.merge.rows import RowFold, RowState
from meshnode.model.event import Event
from meshnode.model.hlc import ZERO, Hlc, Rank, hlc_of_rank
from meshnode.model.membership import Membership
from meshnode.store import log, rows
from meshnode.store.database import Tx
from meshnode.store.names import TableEntry
from meshnode.store.tables import Destination

ROWS_AT_ONCE: Final = 16_384  # rows whose folds are in memory; each such part reads the log once
POSITIONS_AT_ONCE: Final = 4096  # positions of the log read by one statement


def rebuild_rows(
    context: Context, tx: Tx, entry: TableEntry, destination: Destination, keys: Collection[bytes] | None
) -> int:
    """Recompute these rows (None: all of the table) from the retained log; returns how many rows of SQL changed.

    Events below the horizon never feed it, whether or not their bytes still exist; what a state holds from there stays
    as given. A row whose winner above the horizon is not in the log any more is *partial* where the horizon cut what
    was below that winner, and surfaced so. Held events count once they are released.
    """
    if keys is None:
        return sum(_rebuild(context, tx, entry, destination, part) for part in _ranges(tx, destination.no))
    wanted = sorted(keys)
    parts = (wanted[start : start + ROWS_AT_ONCE] for start in range(0, len(wanted), ROWS_AT_ONCE))
    return sum(_rebuild(context, tx, entry, destination, _Part(part[0], part[-1], frozenset(part))) for part in parts)


def given(state: RowState, horizon: Hlc, membership: Membership) -> RowState:
    """The part of a state that lies below the horizon: no event of the log may feed it again.

    Without what is no longer acceptable (profile §9): a rank names its signer, whether or not the event is still here.
    """

    def stays(rank: Rank) -> bool:
        hlc = hlc_of_rank(rank)
        return hlc < horizon and membership.judge(rank[16:32], hlc) is None

    tombstone, upsert = state.tombstone, state.upsert
    below = {name: rank for name, rank in state.columns.items() if stays(rank)}
    upsert = upsert if upsert is not None and stays(upsert) else None
    if upsert is None and below:
        upsert = max(below.values())  # of what was below, the highest that is known
    return RowState(tombstone if tombstone is not None and stays(tombstone) else None, upsert, below)


def applied_events(
    tx: Tx, entry: TableEntry, destination: Destination, above: int, up_to: int
) -> Iterator[tuple[int, Event]]:
    """The events of the log that the table takes, newest position first: not held, not below the horizon."""
    for each in log.read_table_within(tx, destination.no, above, up_to):
        event = log.parse(each.event)
        if event.hlc >= entry.horizon and event.key and destination.resolves(event.key):
            yield each.position, event


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows that are rebuilt together: those from `low` to `high`, of which only `keys` where they are named."""

    low: bytes
    high: bytes
    keys: frozenset[bytes] | None = None

    def has(self, key_bytes: bytes) -> bool:
        return self.low <= key_bytes <= self.high if self.keys is None else key_bytes in self.keys


def _ranges(tx: Tx, table_no: int) -> Iterator[_Part]:
    """Ranges of key bytes that hold `ROWS_AT_ONCE` rows each and cover all keys; the log may have more."""
    low = b""
    while len(page := rows.keys_after(tx, table_no, low, ROWS_AT_ONCE)) == ROWS_AT_ONCE:
        yield _Part(low, page[-1])
        low = page[-1] + b"\0"  # the next key in order
    yield _Part(low, b"\xff")


def _rebuild(context: Context, tx: Tx, entry: TableEntry, destination: Destination, part: _Part) -> int:
    before = _stored(tx, destination.no, part)
    folds = {
        key_bytes: RowFold(given(state, entry.horizon, context.membership)) for key_bytes, (state, _) in before.items()
    }
    top = context.next_position
    while top > 0:
        bottom = max(top - POSITIONS_AT_ONCE, 0)
        for _, event in applied_events(tx, entry, destination, bottom, top):
            if part.has(event.key_bytes):
                fold = folds.setdefault(event.key_bytes, RowFold(None))
                _fold(fold, destination, event.rank, event)
        top = bottom
    restated = []
    for key_bytes, fold in folds.items():
        key = key_values(destination, key_bytes)
        if key is not None:
            state, reason = before.get(key_bytes, (None, None))
            restated.append(Restated(key_bytes, key, state, reason, fold.state, fold.values))
            _note_partial(context, tx, entry, destination, restated[-1])
    restater = Restater(context, tx, entry, destination)
    return sum(restater.write(restated[at : at + BATCH_EVENTS]) for at in range(0, len(restated), BATCH_EVENTS))


def _stored(tx: Tx, table_no: int, part: _Part) -> dict[bytes, tuple[RowState, str | None]]:
    if part.keys is not None:
        return rows.load(tx, table_no, list(part.keys))
    found: dict[bytes, tuple[RowState, str | None]] = {}
    after = part.low[:-1]  # the last key of the part before
    while page := rows.page(tx, table_no, after, BATCH_EVENTS):
        found.update((key_bytes, (state, reason)) for key_bytes, state, reason in page if key_bytes <= part.high)
        after = page[-1][0]
        if after >= part.high:
            break
    return found


def _fold(fold: RowFold, destination: Destination, rank: Rank, event: Event) -> None:
    if event.columns is None:
        fold.delete(rank)
    else:
        fold.upsert(rank, destination.accepted(event.columns))


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


def _lowered(before: Rank | None, after: Rank | None) -> bool:
    return before is not None and (after is None or after < before)

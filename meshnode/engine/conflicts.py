"""What a person does about a conflict: prefer one of its sides, or leave it as it is (NEOTH, `conflicts resolve`).

To prefer a side is an ordinary write of its value where that does not show already: the others merge it like any other,
and the other author's ledger sees that it was written by somebody who had both. Both originals stay in the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshnode.codec import cbor
from meshnode.engine.context import Context
from meshnode.engine.write import LocalChange, write_changes
from meshnode.errors import NotFoundError, UsageError
from meshnode.merge.rows import RowState
from meshnode.model.conflict import Side, Status, same
from meshnode.model.event import Event, Scalar
from meshnode.model.site import short_text
from meshnode.store import conflicts, rows
from meshnode.store.conflicts import Conflict
from meshnode.store.database import Tx
from meshnode.store.recall import recall, recall_side


@dataclass(frozen=True, slots=True)
class Resolved:
    """What `resolve` did; `event` is None where the preferred value showed already."""

    conflict_id: bytes
    event: Event | None


def resolve(context: Context, conflict_id: bytes, site: bytes) -> Resolved:
    """Let the value of this site show, and keep that a person chose it."""

    def work(tx: Tx) -> Resolved:
        conflict = _unfinished(tx, conflict_id)
        side = _side_of(conflict, site)
        preferred = recall_side(tx, context.sites, side, conflict.column)
        if not preferred.kept:
            raise UsageError(f"what {short_text(site)} wrote is not in the log any more: write what you want to have")
        change = _change(context, tx, conflict, preferred)
        events = [] if change is None else write_changes(context, tx, [change])
        conflicts.resolve(tx, conflict.id, f"what {short_text(site)} wrote was preferred here")
        return Resolved(conflict.id, events[0] if events else None)

    return context.transact(work)


def acknowledge(context: Context, conflict_id: bytes) -> None:
    """Leave a conflict as it is: it is not counted any more, and the pair is not opened anew."""
    with context.transaction() as tx:
        conflict = _unfinished(tx, conflict_id)
        if conflict.status is not Status.ACKNOWLEDGED:
            conflicts.acknowledge(tx, conflict.id)


def _unfinished(tx: Tx, conflict_id: bytes) -> Conflict:
    found = conflicts.get(tx, conflict_id)
    if found is None:
        raise NotFoundError(f"no conflict has the id {conflict_id.hex()}: `meshnode conflicts --all` lists them")
    if not found.watched:
        raise UsageError(f"conflict {conflict_id.hex()} is over ({found.status.value}): {found.reason}")
    return found


def _side_of(conflict: Conflict, site: bytes) -> Side:
    for side in (conflict.ours, conflict.theirs):
        if side.site == site:
            return side
    both = " and ".join(short_text(side.site) for side in (conflict.ours, conflict.theirs))
    raise UsageError(f"site {short_text(site)} has no value in this conflict: it is between {both}")


def _change(context: Context, tx: Tx, conflict: Conflict, preferred: Side) -> LocalChange | None:
    """The write that lets the preferred side show; None where it does."""
    entry = context.tables.numbered(tx, conflict.table_no)
    key: Any = cbor.decode_untrusted(conflict.key_bytes)
    found = rows.load(tx, conflict.table_no, [conflict.key_bytes]).get(conflict.key_bytes)
    state = RowState() if found is None else found[0]
    wanted: Mapping[str, Scalar] | None
    if conflict.column is not None:
        assert not isinstance(preferred.value, dict)
        wanted = {conflict.column: preferred.value}
    else:
        wanted = preferred.value if isinstance(preferred.value, dict) else None
    if wanted is None:
        return LocalChange(entry.schema, entry.name, key, None) if state.exists else None
    there = recall(tx, context.sites, {name: rank for name, rank in state.columns.items() if name in wanted})
    if state.exists and all(name in there and same(there[name], value) for name, value in wanted.items()):
        return None
    return LocalChange(entry.schema, entry.name, key, wanted)

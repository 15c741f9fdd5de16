"""What a table keeps of its past: horizons and eviction, rehydration, compaction (profile §5; SSP/1 §13.4, §13.5).

**Eviction** sets the horizon at once and takes the events below it out of the log afterwards, in small transactions; an
eviction that was interrupted goes on with `pending`. Each row's winners stay for joiners unless everything is to go. A
withheld row's always stay: the row's values are nowhere else. Values and clocks of rows stay in any case; but a row
that lost its winners to `everything`, and is withheld later, comes back without their values (surfaced as `partial`).

**Rehydration** drops the horizon and asks every peer for the table: what comes is judged like any other event. What is
still in the log from below is folded in again (`growth`): a table or a column that was made anew under the horizon
lacks it, and a peer that offers it again offers a duplicate.

**Compaction** takes out what no row can need any more; `merge/needed.py` has the proof that no state anywhere changes.
It is off unless somebody asks for it, because of what it costs: the history of a row and whoever audits it, the duty of
SSP/1 §2 to keep the bytes that were published, and that events which are taken back later (profile §9) do not bring
back what they had superseded. A peer that offers its whole log again brings compacted events back, to no effect.
"""

from __future__ import annotations

from meshnode.codec import cbor
from meshnode.engine.context import Context
from meshnode.engine.links import ask_table
from meshnode.engine.sweep import Row, Sweep
from meshnode.errors import NotFoundError, UsageError
from meshnode.model.event import Event
from meshnode.model.hlc import ZERO, Hlc
from meshnode.store import history, reclaims, removed, shapes
from meshnode.store.database import Tx
from meshnode.store.names import TableEntry


def evict(context: Context, schema: str, name: str, horizon: Hlc, *, everything: bool = False) -> Sweep:
    """Freeze the table below `horizon`; the sweep that is returned then takes the events below it out."""
    with context.transaction() as tx:
        entry = _registered(context, tx, schema, name)
        if horizon < entry.horizon:
            raise UsageError(
                f"the horizon of table {entry.text!r} is later already, at {tuple(entry.horizon)}: "
                "`rehydrate` is what drops it"
            )
        if horizon.physical > context.env.wall_ms():
            raise UsageError(f"a horizon lies in the past: this one would refuse what table {entry.text!r} gets now")
        context.tables.set_horizon(tx, entry, horizon)
        reclaims.start(tx, context.tables.number(tx, entry), everything=everything)
        return _eviction(context, entry, everything=everything)


def pending(context: Context) -> list[tuple[TableEntry, Sweep]]:
    """The evictions that were not brought to their end."""
    with context.transaction() as tx:
        open_ones = reclaims.pending(tx)
        return [
            (entry, _eviction(context, entry, everything=open_ones[entry.no]))
            for entry in context.tables.registered(tx)
            if entry.no is not None and entry.no in open_ones
        ]


def evicted(context: Context, schema: str, name: str) -> None:
    """The sweep came to its end."""
    with context.transaction() as tx:
        reclaims.finish(tx, context.tables.number(tx, _registered(context, tx, schema, name)))


def compaction(context: Context, schema: str, name: str) -> Sweep:
    """The sweep that takes out what no row of the table can need any more."""
    with context.transaction() as tx:
        number = context.tables.number(tx, _registered(context, tx, schema, name))
        return Sweep(context, number, lambda _event, row: not row.needed, removed.COMPACTED)


def rehydrate(context: Context, schema: str, name: str) -> int:
    """Drop the table's horizon to zero and ask for its history; returns how many peers are asked."""
    with context.transaction() as tx:
        entry = _registered(context, tx, schema, name)
        context.tables.set_horizon(tx, entry, ZERO)
        number = context.tables.number(tx, entry)
        reclaims.finish(tx, number)
        shapes.refold_later(tx, number, context.next_position)
        context.behind_schema = True
        return ask_again(context, tx, entry)


def ask_again(context: Context, tx: Tx, entry: TableEntry) -> int:
    """Ask for the whole table whoever sent anything and is not asked for it already; returns how many are asked.

    A peer that never sent anything starts at genesis anyway.
    """
    peers = history.peers_that_sent(tx)
    asked = {peer for peer, body in history.requests(tx) if _names(body, entry)}
    ask_table(context, tx, entry.schema, entry.name, [peer for peer in peers if peer not in asked])
    return len(peers)


def _eviction(context: Context, entry: TableEntry, *, everything: bool) -> Sweep:
    horizon = entry.horizon  # a later one has a sweep of its own

    def choose(event: Event, row: Row) -> bool:
        keeps = row.needed and (row.withheld or not everything)
        return event.hlc < min(horizon, entry.horizon) and not keeps

    assert entry.no is not None
    return Sweep(context, entry.no, choose, removed.EVICTED)


def _registered(context: Context, tx: Tx, schema: str, name: str) -> TableEntry:
    entry = context.tables.entry(tx, schema, name)
    if not entry.registered:
        raise NotFoundError(f"table {entry.text!r} is not registered: add it first")
    return entry


def _names(body: bytes, entry: TableEntry) -> bool:
    request = cbor.decode_untrusted(body)
    return isinstance(request, dict) and (request.get("schema"), request.get("table")) == (entry.schema, entry.name)

"""The retained log read for people: one view per event, and what may be wrong with it."""

from __future__ import annotations

from typing import Final

import msgspec

from meshnode.codec.digest import blake3_256
from meshnode.engine.check_log import StoredRow, examine
from meshnode.errors import NotFoundError, UsageError
from meshnode.limits import MIB
from meshnode.model.event import DELETE, UPSERT
from meshnode.model.membership import Membership
from meshnode.model.site import site_text
from meshnode.node.eventviews import VERDICTS, EventPage, EventQuery, EventView
from meshnode.node.naming import known_of, site_called
from meshnode.node.views import parse_table, table_text
from meshnode.store import entries, log, meta, removed
from meshnode.store.database import Tx
from meshnode.store.entries import Entry, Wanted

PAGE_BYTES: Final = 1 * MIB  # of events in one page, which as hex are twice as many
_VERDICT_OF: Final = dict(zip((log.APPLIED, log.HELD, log.UNRESOLVED), VERDICTS, strict=True))
_NOBODY: Final = -1


def event_page(tx: Tx, membership: Membership, query: EventQuery, after: int, limit: int) -> EventPage:
    """The next events beyond a position, over one snapshot."""
    wanted = _wanted(tx, membership, query)
    found = entries.entries_after(tx, after, wanted, limit, PAGE_BYTES)
    mesh_id = meta.read_bytes(tx, meta.MESH_ID)
    views, before = [], after
    for entry in found.entries:
        views.append(_view(tx, membership, query, mesh_id, entry, before))
        before = entry.position
    return EventPage(events=views, position=found.position, more=found.more)


def _wanted(tx: Tx, membership: Membership, query: EventQuery) -> Wanted:
    states = {text: state for state, text in _VERDICT_OF.items()}
    if query.verdict is not None and query.verdict not in states:
        raise UsageError(f"{query.verdict!r} is no verdict of a retained event: there are {', '.join(states)}")
    return Wanted(
        None if query.table is None else _table_no(tx, query.table),
        None if query.site is None else _site_no(tx, site_called(query.site, known_of(tx, membership.members()))),
        query.since_ms,
        query.until_ms,
        None if query.verdict is None else states[query.verdict],
    )


def _table_no(tx: Tx, table: str) -> int:
    row = tx.execute("SELECT no FROM meshnode_tables WHERE schema = ? AND name = ?", parse_table(table)).fetchone()
    if row is None:
        raise NotFoundError(f"no event ever named table {table!r} here")
    return int(row[0])


def _site_no(tx: Tx, site: bytes) -> int:
    row = tx.execute("SELECT no FROM meshnode_sites WHERE site = ?", (site,)).fetchone()
    return _NOBODY if row is None else int(row[0])


def _view(tx: Tx, membership: Membership, query: EventQuery, mesh_id: bytes, entry: Entry, before: int) -> EventView:
    site = tx.execute("SELECT site FROM meshnode_sites WHERE no = ?", (entry.site_no,)).fetchone()
    table = tx.execute("SELECT schema, name FROM meshnode_tables WHERE no = ?", (entry.table_no,)).fetchone()
    prefix, data = entries.event_at(tx, entry.position)
    row = StoredRow(None if site is None else bytes(site[0]), entry.hlc, prefix, table, data)
    event, fault = examine(row, mesh_id, membership.key_of if query.verify else _no_key)
    if query.verify and event is not None and not fault and membership.key_of(event.site) is None:
        fault = "unknown-signer: its author is no member, so its signature cannot be verified"
    return EventView(
        position=entry.position,
        id=blake3_256(data).hex(),
        site=site_text(row.site) if row.site is not None else "",
        hlc=(entry.hlc.physical, entry.hlc.logical),
        table=table_text(*table) if table is not None else "",
        key=dict(event.key) if event is not None and event.key is not None else None,
        op="" if event is None else DELETE if event.columns is None else UPSERT,
        columns=list(event.columns or ()) if event is not None else [],
        size=len(data),
        verdict=_VERDICT_OF.get(entry.state, f"state {entry.state}"),
        removed=removed.between(tx, before, entry.position),
        bytes=data.hex() if query.bytes else msgspec.UNSET,
        fault=fault,
    )


def _no_key(_site: bytes) -> bytes | None:
    """Signatures are not asked for."""
    return None

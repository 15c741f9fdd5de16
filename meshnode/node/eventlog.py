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
from meshnode.model.wording import quoted
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
    found = entries.entries_after(tx, after, _wanted(tx, membership, query), limit, PAGE_BYTES)
    page, views, before = _Page(tx, membership, query), [], after
    for entry in found.entries:
        views.append(page.view(entry, before))
        before = entry.position
    return EventPage(events=views, position=found.position, more=found.more)


def event_page_back(tx: Tx, membership: Membership, query: EventQuery, before: int, limit: int) -> EventPage:
    """The events below a position, the newest first, over one snapshot."""
    found = entries.entries_before(tx, before, _wanted(tx, membership, query), limit, PAGE_BYTES)
    page, views, older = _Page(tx, membership, query), [], found.position
    for entry in reversed(found.entries):
        views.append(page.view(entry, min(older, entry.position - 1)))
        older = entry.position
    return EventPage(events=views[::-1], position=found.position, more=found.more)


def _wanted(tx: Tx, membership: Membership, query: EventQuery) -> Wanted:
    states = {text: state for state, text in _VERDICT_OF.items()}
    if query.verdict is not None and query.verdict not in states:
        raise UsageError(f"{quoted(query.verdict)} is no verdict of a retained event: there are {', '.join(states)}")
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
        raise NotFoundError(f"no event ever named table {quoted(table)} here")
    return int(row[0])


def _site_no(tx: Tx, site: bytes) -> int:
    row = tx.execute("SELECT no FROM meshnode_sites WHERE site = ?", (site,)).fetchone()
    return _NOBODY if row is None else int(row[0])


class _Page:
    """What the events of one page have in common."""

    def __init__(self, tx: Tx, membership: Membership, query: EventQuery) -> None:
        self._tx = tx
        self._query = query
        self._key_of = membership.key_of
        self._mesh_id = meta.read_bytes(tx, meta.MESH_ID)
        self._sites: dict[int, bytes | None] = {}
        self._tables: dict[int, tuple[str, str] | None] = {}

    def view(self, entry: Entry, before: int) -> EventView:
        """One event; `before` is the position of the one shown before."""
        site, table, verify = self._site(entry.site_no), self._table(entry.table_no), self._query.verify
        prefix, data = entries.event_at(self._tx, entry.position)
        row = StoredRow(site, entry.hlc, prefix, table, data)
        event, fault = examine(row, self._mesh_id, self._key_of if verify else _no_key)
        if verify and event is not None and not fault and self._key_of(event.site) is None:
            fault = "unknown-signer: its author is no member, so its signature cannot be verified"
        return EventView(
            position=entry.position,
            id=(blake3_256(data) if event is None else event.event_id).hex(),
            site=site_text(site) if site is not None else "",
            hlc=(entry.hlc.physical, entry.hlc.logical),
            table=table_text(*table) if table is not None else "",
            key=dict(event.key) if event is not None and event.key is not None else None,
            op="" if event is None else DELETE if event.columns is None else UPSERT,
            columns=list(event.columns or ()) if event is not None else [],
            size=len(data),
            verdict=_VERDICT_OF.get(entry.state, f"state {entry.state}"),
            removed=removed.between(self._tx, before, entry.position),
            bytes=data.hex() if self._query.bytes else msgspec.UNSET,
            fault=fault,
        )

    def _site(self, number: int) -> bytes | None:
        if number not in self._sites:
            row = self._tx.execute("SELECT site FROM meshnode_sites WHERE no = ?", (number,)).fetchone()
            self._sites[number] = None if row is None else bytes(row[0])
        return self._sites[number]

    def _table(self, number: int) -> tuple[str, str] | None:
        if number not in self._tables:
            row = self._tx.execute("SELECT schema, name FROM meshnode_tables WHERE no = ?", (number,)).fetchone()
            self._tables[number] = None if row is None else (row[0], row[1])
        return self._tables[number]


def _no_key(_site: bytes) -> bytes | None:
    """Signatures are not asked for."""
    return None

"""What the items of a comparison are, and why this side does not have what the other names (profile §15)."""

from __future__ import annotations

from collections.abc import Sequence

from meshnode.codec import cbor
from meshnode.codec.digest import blake3_256
from meshnode.engine.asking import covers
from meshnode.engine.compare_scan import Place, Sorting, open_table
from meshnode.errors import CodecError, EnvelopeError
from meshnode.limits import EVENT_BYTES
from meshnode.model import comparison as words
from meshnode.model.comparison import Agreement, EventName, Name, RowName
from meshnode.model.hlc import Hlc, hlc_of_rank, rank_bytes
from meshnode.model.membership import Membership
from meshnode.model.scope import WILDCARD
from meshnode.store import backfills, delivery, held, history, log, reoffers, rows, watermarks
from meshnode.store.backlog import own_number
from meshnode.store.compared import ComparedRow, ComparedTable, encoded_clocks
from meshnode.store.database import Tx
from meshnode.store.delivery import Stream
from meshnode.store.destinations import open_destination
from meshnode.store.inbound import read_request
from meshnode.store.names import SiteNumbers, TableEntry, TableNumbers
from meshnode.store.tables import Destination
from meshnode.store.u64 import from_sql


class Naming:
    """Over one snapshot."""

    def __init__(self, tx: Tx, agreement: Agreement, stream: Stream, membership: Membership, taken: Sequence[bool]):
        self._tx = tx
        self._agreement = agreement
        self._membership = membership
        self._taken = taken  # of each table, whether it still crosses
        self._sites = SiteNumbers()
        self._delivery = _Delivery(tx, stream)
        numbers = TableNumbers()
        self._entries = [numbers.entry(tx, each.schema, each.name) for each in agreement.tables]
        self._tables: dict[int, ComparedTable | None] = {}
        self._destinations: dict[int, Destination | None] = {}
        self._requests = [read_request(body) for _, _, body in history.requests(tx)]

    # --- what an item is

    def name(self, place: Place) -> Name | None:
        """None for what is not here any more."""
        if place.set == words.EVENTS:
            return self._event(place)
        table = self._table(place.table)
        row = table.row(place.key) if table is not None else None
        return None if row is None else self._row(place.table, row)

    def _event(self, place: Place) -> EventName | None:
        found = self._tx.execute(
            "SELECT site_no, physical, logical, event FROM meshnode_log WHERE position = ?", (place.position,)
        ).fetchone()
        if found is None:
            return None
        site_no, physical, logical, data = found
        try:
            event = log.parse(data if type(data) is bytes else b"")
        except EnvelopeError:
            site, event_id = self._sites.site_of(self._tx, site_no), blake3_256(data if type(data) is bytes else b"")
            clock = (from_sql(physical), from_sql(logical))
            return EventName(words.EVENTS, place.table, site, *clock, event_id, b"", None, words.DAMAGED)
        state = words.PENDING if self._delivery.owes(place.position, site_no, self._entries[place.table]) else 0
        columns = None if event.columns is None else tuple(event.columns)
        key = event.key_bytes
        return EventName(words.EVENTS, place.table, event.site, *event.hlc, event.event_id, key, columns, state)

    def _row(self, table: int, row: ComparedRow) -> RowName:
        frozen = hlc_of_rank(row.lowest) < self._agreement.tables[table].horizon
        return RowName(
            words.FROZEN if frozen else words.ROWS,
            table,
            row.key,
            hlc_of_rank(row.lowest),
            hlc_of_rank(row.highest),
            words.item_of(self._agreement.key, encoded_clocks(row)),
            row.state,
        )

    def _table(self, table: int) -> ComparedTable | None:
        if table not in self._tables:
            self._tables[table] = open_table(self._tx, self._agreement, table)
        return self._tables[table]

    # --- why it is not here

    def why_untrusted(self, name: Name) -> int:
        """Why this side does not have what the other named; the name is what the other made of it."""
        if name.table >= len(self._entries) or not self._taken[name.table]:
            return words.POLICY
        if len(name.key) > EVENT_BYTES:
            return words.UNEXPLAINED
        if isinstance(name, RowName):
            return self._why_row(name)
        return self._why_event(name)

    def _why_row(self, name: RowName) -> int:
        entry, table = self._entries[name.table], self._table(name.table)
        if table is None:
            return words.SCHEMA
        if entry.no is not None and held.is_forgotten(self._tx, entry.no, name.key):
            return words.HORIZON
        row = table.row(name.key)
        # The row is here in another state: that state was named for itself, unless it has moved on.
        moved = row is not None and Sorting(self._agreement, name.table).set_of(row) is None
        return words.WAITED_FOR if moved else words.UNEXPLAINED

    def _why_event(self, name: EventName) -> int:
        tx, entry = self._tx, self._entries[name.table]
        if held.has_receipt(tx, name.id) or name.hlc < entry.horizon:
            return words.HORIZON
        if self._membership.key_of(name.site) is None or self._membership.judge(name.site, name.hlc) is not None:
            return words.POLICY
        arrived = self._is_here(name)
        if arrived is not None:
            return arrived
        if self._is_waited_for(name, entry):
            return words.WAITED_FOR
        if not self._resolves(name):
            return words.SCHEMA
        if self._agreement.thinned and self._is_superseded(name, entry):
            return words.HORIZON
        return words.UNEXPLAINED

    def _is_waited_for(self, name: EventName, entry: TableEntry) -> bool:
        """It was rejected here, or somebody is asked for it and has not answered."""
        site_no = self._sites.find(self._tx, name.site)
        if site_no is not None and entry.no is not None:
            group = watermarks.load(self._tx, site_no, entry.no)
            if group is not None and name.hlc in group.rejected:
                return True
        return any(covers(each, name.site, entry.schema, entry.name) for each in self._requests)

    def _is_here(self, name: EventName) -> int | None:
        """It came since this side was read, or it lies here and names no row; None where it is not here."""
        site_no = self._sites.find(self._tx, name.site)
        position = None if site_no is None else log.position_of(self._tx, site_no, name.hlc, name.id)
        if position is None:
            return None
        outline = log.outline_after(self._tx, position - 1, position, 1)
        return words.SCHEMA if outline and outline[0][3] == log.UNRESOLVED else words.WAITED_FOR

    def _resolves(self, name: EventName) -> bool:
        """Whether it names a row of the table as it is here; without a table here it would be held."""
        if name.table not in self._destinations:
            entry = self._entries[name.table]
            found = open_destination(self._tx, entry) if entry.registered else ""
            self._destinations[name.table] = None if isinstance(found, str) else found
        destination = self._destinations[name.table]
        if destination is None:
            return True
        try:
            key = cbor.decode_untrusted(name.key)
            return isinstance(key, dict) and destination.resolves(key)
        except (CodecError, TypeError):
            return False

    def _is_superseded(self, name: EventName, entry: TableEntry) -> bool:
        """Whether no state of the row needs it, by the clocks that the row has here (merge/needed.py)."""
        if entry.no is None:
            return False
        found = rows.load(self._tx, entry.no, [name.key]).get(name.key)
        if found is None:
            return False
        state, rank = found[0], rank_bytes(Hlc(name.physical, name.logical), name.site, name.id)
        if state.tombstone is not None and state.tombstone > rank:
            return True
        if name.columns is None or state.upsert is None or state.upsert <= rank:
            return False
        return all(each in state.columns and state.columns[each] > rank for each in name.columns)


class _Delivery:
    """What this side still owes the other, by its stream."""

    def __init__(self, tx: Tx, stream: Stream) -> None:
        self._tx, self._stream = tx, stream
        self._outbound = delivery.read_outbound(tx, stream)
        staged = delivery.read_staged(tx, stream, self._outbound) if self._outbound else []
        events = [row.items for row in staged if reoffers.kind_of(row.items) == reoffers.EVENT]
        self._staged = {each for items in events for each in items.positions}
        self._wanted = [each.wanted for each in backfills.pending(tx, stream)]
        self._own_no = own_number(tx)

    def owes(self, position: int, site_no: int, entry: TableEntry) -> bool:
        """Whether the event of a position has not been acknowledged yet, as far as this side knows."""
        at = self._outbound
        if at is None or position in self._staged or reoffers.holds(self._tx, self._stream, position):
            return True
        others = at.cursor if at.offer_cursor is None else at.offer_cursor
        if position > (at.cursor if site_no == self._own_no else others):
            return True
        return any(
            each.schema in (WILDCARD, entry.schema) and each.name in (WILDCARD, entry.name) for each in self._wanted
        )

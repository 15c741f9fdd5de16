"""Taking back: events that the membership accepts no longer leave the log, and their rows are rebuilt (profile §9).

One transaction with the records that decided it, so a node never shows rows that its keyring refuses. What a row keeps
from below the horizon stays as given unless it is the signer's own; a row that the horizon cut is surfaced as partial.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from meshnode.engine.context import Context
from meshnode.engine.rebuild import rebuild_rows
from meshnode.errors import CorruptStateError, EnvelopeError
from meshnode.limits import BATCH_EVENTS
from meshnode.merge.rows import RowState
from meshnode.model.hlc import ZERO, Rank, hlc_of_rank
from meshnode.model.member import Span
from meshnode.store import held, history, log, removed, rows, shapes, watermarks
from meshnode.store.database import Tx

KEYS_AT_ONCE: Final = 100_000  # rows of one table named one by one; for more the whole table is rebuilt


class TakeBack:
    """Collects what several sites lose by one change of the membership, then rebuilds each table once."""

    def __init__(self, context: Context, tx: Tx) -> None:
        self._context = context
        self._tx = tx
        self._keys: dict[int, set[bytes] | None] = defaultdict(set)
        self._counts: dict[bytes, int] = {}

    def site(self, site: bytes, spans: Sequence[Span]) -> None:
        """Remove the events of `site` in none of `spans`, and let its groups go on without them."""
        number = self._context.sites.find(self._tx, site)
        if number is None:
            return
        for outside in history.complement(spans):
            taken = 0
            while found := history.events_within(self._tx, number, outside, BATCH_EVENTS):
                taken += len(found)
                self._remove(number, found)
            self._counts[site] = self._counts.get(site, 0) + taken
        self._find_given(site)
        self._release(site, number)

    def finish(self) -> None:
        """Rebuild what was touched and surface each site once, with its count."""
        for table_no, keys in self._keys.items():
            self._rebuild(table_no, keys)
        for site, taken in self._counts.items():
            if taken:
                sample = f"{taken} events that are no longer acceptable were taken back"
                self._context.surface(self._tx, "taken-back", site, sample)

    def _remove(self, site_no: int, found: Sequence[history.Found]) -> None:
        held_bytes: defaultdict[int, list[int]] = defaultdict(list)
        for position, table_no, state, data in found:
            if state == log.HELD:
                held_bytes[table_no].append(len(data))
            elif state == log.APPLIED:
                self._touch(table_no, _key_of(position, data))
        for table_no, sizes in held_bytes.items():
            held.remove_held(self._tx, site_no, table_no, len(sizes), sum(sizes))
        positions = [each[0] for each in found]
        log.remove(self._tx, positions)
        removed.record(self._tx, positions, removed.TAKEN_BACK)

    def _touch(self, table_no: int, key_bytes: bytes) -> None:
        keys = self._keys[table_no]
        if keys is not None:
            keys.add(key_bytes)
            if len(keys) > KEYS_AT_ONCE:
                self._keys[table_no] = None

    def _find_given(self, site: bytes) -> None:
        """Below a horizon a row may stand on an event of the site whose bytes are not in the log any more."""
        judge = self._context.membership.judge
        for entry in self._context.tables.registered(self._tx):
            if entry.no is None or entry.horizon == ZERO:
                continue
            after = b""
            while page := rows.page(self._tx, entry.no, after, BATCH_EVENTS):
                for key_bytes, state, _ in page:
                    if any(rank[16:32] == site and judge(site, hlc_of_rank(rank)) for rank in _ranks(state)):
                        self._touch(entry.no, key_bytes)
                after = page[-1][0]

    def _release(self, site: bytes, site_no: int) -> None:
        """An interval of rejected events ends where they would not be accepted any more (profile §6)."""
        judge = self._context.membership.judge
        groups = watermarks.of_site(self._tx, site_no)
        for group in groups:
            group.forgive(lambda hlc: judge(site, hlc) is not None)
            group.advance(held=held.has_held(self._tx, site_no, group.table_no))
        watermarks.save(self._tx, [each for each in groups if each.changed])

    def _rebuild(self, table_no: int, keys: set[bytes] | None) -> None:
        if keys is not None and not keys:
            return
        schema, name = self._tx.execute("SELECT schema, name FROM meshnode_tables WHERE no = ?", (table_no,)).fetchone()
        entry = self._context.tables.entry(self._tx, schema, name)
        destination = self._context.destination(self._tx, entry)
        if destination is not None:
            rebuild_rows(self._context, self._tx, entry, destination, keys)
        else:  # a table that cannot be used now is rebuilt as a whole once it can be
            shapes.recompute_later(self._tx, table_no, self._context.next_position)


def _ranks(state: RowState) -> list[Rank]:
    return [rank for rank in (state.tombstone, state.upsert, *state.columns.values()) if rank is not None]


def _key_of(position: int, data: bytes) -> bytes:
    try:
        return log.parse(data).key_bytes
    except EnvelopeError as error:
        raise CorruptStateError(f"the event at log position {position} cannot be read: {error}") from error

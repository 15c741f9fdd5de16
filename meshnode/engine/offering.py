"""Which events of others are offered to a peer now, and which wait (profile §14, feature `offer`).

An event whose author the peer is linked to waits: the peer gets it from there, or offers it itself; likewise one that
this node has from a site that the peer is linked to, since that site offers it too. (Of all who have an event from each
other, the one next to its author does not wait.) What waits is gathered. Where another one comes, everything up to that
one is offered; the rest when its time is over, which the session says as a position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from meshnode.codec.digest import blake3_256
from meshnode.engine.context import Context
from meshnode.engine.offer import TableFilter
from meshnode.limits import OFFER_EVENTS
from meshnode.model.frames import OFFERED_ID_BYTES
from meshnode.model.offered import Named
from meshnode.store import offers
from meshnode.store.database import Tx
from meshnode.store.delivery import Stream


class Offering:
    """Lives within one transaction; `cursor` is the position up to which everything was offered."""

    def __init__(
        self,
        context: Context,
        tx: Tx,
        stream: Stream,
        cursor: int,
        *,
        allowed: TableFilter,
        linked: frozenset[bytes] | None,
        due_to: int,
    ) -> None:
        self.cursor = cursor
        self.looked = False
        self.passed_held = False  # whether the peer turned out to have something without being asked
        self._context = context
        self._tx = tx
        self._stream = stream
        self._known = context.known(stream.key)
        self._known.holds.forget_up_to(cursor)
        if cursor < self._known.cursor:  # it was passed with frames in flight, so that it was not stored
            self._known.look_again(cursor)
        self._known.cursor = cursor
        self._allowed = allowed
        self._linked = linked
        self._due_to = min(due_to, context.next_position - 1)
        self._but = (context.sites.number(tx, context.site), stream.no)

    @property
    def waiting(self) -> frozenset[bytes]:
        """The authors of events that wait to be offered."""
        return frozenset(self._context.sites.site_of(self._tx, number) for number in self._known.waiting)

    @property
    def more(self) -> bool:
        """Whether anything is left to be offered now."""
        return self.cursor < max(self._due_to, self._known.urgent_to)

    def look(self) -> bool:
        """See who wrote what came since the last look; False where it has to go on in another transaction.

        What needs no offer is passed, as far as nothing waits before it.
        """
        known = self._known
        changed = known.filter != self._allowed.text or not _covers(self._linked, known.linked)
        if known.looked_to < self.cursor or changed:
            known.look_again(self.cursor)
        known.linked, known.filter = self._linked, self._allowed.text
        count = self._look_past()
        if count is None:
            count = self._look_at_each()
        self.looked = count < offers.SCAN_ROWS
        return self.looked

    def _look_past(self) -> int | None:
        """Pass a run of what only this node or the peer wrote in one step: its number of rows, None if it is none."""
        known = self._known
        found = offers.none_after(self._tx, known.looked_to, self._but)
        if found is None or not found.whole:
            return None
        if found.rows and known.looked_to == self.cursor:
            self.cursor = known.cursor = found.last
        known.looked_to = found.last
        return found.rows

    def _look_at_each(self) -> int:
        known, linked = self._known, self._linked_numbers()
        count = 0
        for position, site_no in offers.authors_after(self._tx, known.looked_to, self._but, self._allowed):
            count += 1
            held = site_no is not None and position in known.holds
            if held or site_no is None:
                if known.looked_to == self.cursor:
                    self._pass(position, held=held)
            elif linked is None or site_no in linked or self._comes_from_others(position, linked):
                known.waiting.add(site_no)
            else:
                known.urgent_to = position
            known.looked_to = position
        return count

    def _pass(self, position: int, *, held: bool) -> None:
        offers.pass_over(self._tx, self.cursor + 1, position - 1)
        self.cursor = self._known.cursor = position
        self.passed_held = self.passed_held or held

    def take(self) -> tuple[Sequence[int], Sequence[Named]]:
        """The content of the next offer, perhaps none, with the positions in the same order; moves the cursor."""
        due_to = max(self._due_to, self._known.urgent_to)
        found: list[_Found] = []
        passed_bytes = 0
        upcoming = offers.foreign_after(self._tx, self.cursor, due_to, self._but, self._allowed)
        for position, event in upcoming:
            self._pass(position, held=event is not None)
            if event is not None and position not in self._known.holds:
                passed_bytes += len(event.data)
                short_id = blake3_256(event.data)[:OFFERED_ID_BYTES]
                if not self._known.has(short_id):
                    site = self._context.sites.site_of(self._tx, event.site_no)
                    found.append(_Found(Named(site, event.hlc, short_id), position))
            if len(found) >= OFFER_EVENTS or passed_bytes > offers.SCAN_BYTES:
                break
        else:
            if next(offers.foreign_after(self._tx, self.cursor, due_to, self._but, self._allowed), None) is None:
                offers.pass_over(self._tx, self.cursor + 1, due_to)
                self.cursor = self._known.cursor = max(self.cursor, due_to)
        if not self.more:
            self._known.look_again(self.cursor)
            self.looked = False
        found.sort()
        return [each.position for each in found], [each.named for each in found]

    def _comes_from_others(self, position: int, linked: frozenset[int]) -> bool:
        """Whether a site that the peer is linked to had the event before us: it offers it, if the peer has it not."""
        path = self._stream.path
        return any(position in self._context.known((number, path)).holds for number in linked)

    def _linked_numbers(self) -> frozenset[int] | None:
        if self._linked is None:
            return None
        numbers = (self._context.sites.find(self._tx, site) for site in self._linked)
        return frozenset(number for number in numbers if number is not None)


class _Found(NamedTuple):
    named: Named
    position: int


def _covers(now: frozenset[bytes] | None, then: frozenset[bytes] | None) -> bool:
    """Whether everything that waited then still waits: what is not known yet counts as linked."""
    return now is None or (then is not None and then <= now)

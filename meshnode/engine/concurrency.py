"""Whether the author of a foreign event had seen one of ours, and we theirs: what clocks, acks and the log tell.

Called where the foreign event is applied, so when ours was written theirs was not here. Then

- theirs has the lower clock: its author had not seen ours, or its clock would be above it. Concurrent;
- theirs is above the clock of an ack of a frame that carried ours: its author had seen it. Sequential;
- ours was in no frame to anybody yet, or theirs is not above the ack of the one frame that can have brought ours to
  anybody first: concurrent. Where ours went to others too, one of them may have passed it on before that ack;
- else nothing tells.

What came here once before and comes again (after an eviction, a restored copy) says nothing of what was seen when.
"""

from __future__ import annotations

from meshnode.engine.context import Context
from meshnode.errors import CorruptStateError
from meshnode.model.conflict import EVENT_ID_OF_RANK, SITE_OF_RANK, Relation
from meshnode.model.hlc import Hlc, Rank, hlc_of_rank
from meshnode.model.scope import Scope
from meshnode.model.taken import Taken, first_taken, taken_by, was_sent
from meshnode.store import bundles, delivery, log, peers, repeats, taken
from meshnode.store.database import Tx
from meshnode.store.delivery import Stream
from meshnode.store.names import TableEntry


class Concurrency:
    """What is stored of the order of events, read once in one transaction."""

    def __init__(self, context: Context, tx: Tx) -> None:
        self._context = context
        self._tx = tx
        self._ranges: dict[int, list[Taken]] = {}
        self._repeated: dict[bytes, Hlc | None] = {}
        self._scopes: dict[bytes, Scope] = {}
        self._positions: dict[Rank, int | None] = {}
        self._sent: dict[tuple[int, str], tuple[int, frozenset[int]]] | None = None
        self._bundled_to = 0

    def relation(self, entry: TableEntry, ours: Rank, theirs: Rank) -> Relation | None:
        """How the two stand to each other; None where one of them may have been here before."""
        if self._may_repeat(ours):
            return None
        if hlc_of_rank(theirs) <= hlc_of_rank(ours):
            return None if self._may_repeat(theirs) else Relation.CONCURRENT
        return self.later(entry, ours, self.position(ours), theirs)

    def later(self, entry: TableEntry, ours: Rank, position: int | None, theirs: Rank) -> Relation:
        """The same for theirs with the higher clock, which we cannot have seen.

        Where ours is of the site that this device was before `identity renew`, or may be written by another copy of it,
        nobody here knows who had it before it went out from here.
        """
        if position is None:
            return Relation.UNKNOWN
        site, hlc = theirs[SITE_OF_RANK], hlc_of_rank(theirs)
        number = self._context.sites.find(self._tx, site)
        ranges = [] if number is None or not self._is_told(entry, site) else self._of_peer(number)
        by = taken_by(ranges, position)
        if by is not None and hlc > by:
            return Relation.SEQUENTIAL
        if ours[SITE_OF_RANK] != self._context.site:
            return Relation.UNKNOWN
        first = first_taken(ranges, position)
        concurrent = not self._is_out(position, None if first is None else number) and (first is None or hlc <= first)
        return Relation.CONCURRENT if concurrent else Relation.UNKNOWN

    def position(self, rank: Rank) -> int | None:
        """Where one of our events is in the log."""
        if rank not in self._positions:
            number = self._context.sites.find(self._tx, rank[SITE_OF_RANK])
            event_id = rank[EVENT_ID_OF_RANK]
            found = None if number is None else log.position_of(self._tx, number, hlc_of_rank(rank), event_id)
            self._positions[rank] = found
        return self._positions[rank]

    def _is_told(self, entry: TableEntry, site: bytes) -> bool:
        """Whether everything that we write to the table goes to the site: else a frame may have passed it over."""
        if site not in self._scopes:
            try:
                self._scopes[site] = peers.scope_of(self._tx, site)
            except CorruptStateError:  # it is kept anew when the peer links again
                return False
        whole = self._context.policy.takes_whole(entry.schema, entry.name, entry.table_class)
        return whole and self._scopes[site].contains(entry.schema, entry.name)

    def _of_peer(self, number: int) -> list[Taken]:
        if number not in self._ranges:
            self._ranges[number] = taken.of_peer(self._tx, number)
        return self._ranges[number]

    def _may_repeat(self, rank: Rank) -> bool:
        site = rank[SITE_OF_RANK]
        if site not in self._repeated:
            number = self._context.sites.find(self._tx, site)
            self._repeated[site] = None if number is None else repeats.up_to(self._tx, number)
        end = self._repeated[site]
        return end is not None and hlc_of_rank(rank) <= end

    def _is_out(self, position: int, but: int | None) -> bool:
        """Whether the event at `position` went, or is on its way, to anybody but the peer of this number.

        A bundle may have been read by anybody, and by that peer before our frame came. So it is with what this copy
        wrote before a peer showed that it was restored: frames may have gone out that it does not know.
        """
        if self._sent is None:
            self._sent = {stream.key: self._sent_of(stream) for stream in delivery.streams(self._tx)}
            self._bundled_to = bundles.bundled_to(self._tx)
        if position <= self._bundled_to:
            return True
        for (number, _path), (passed, ahead) in self._sent.items():
            if number != but and (position <= passed or position in ahead or was_sent(self._of_peer(number), position)):
                return True
        return False

    def _sent_of(self, stream: Stream) -> tuple[int, frozenset[int]]:
        """The position that a stream has passed, settled or in flight, and those that went ahead."""
        try:
            outbound = delivery.read_outbound(self._tx, stream)
            staged = [] if outbound is None else delivery.read_staged(self._tx, stream, outbound)
        except CorruptStateError:  # whoever needs the stream stops; here anything may have gone out on it
            return self._context.next_position, frozenset()
        passed = staged[-1].cursor_after if staged else (outbound.cursor if outbound else 0)
        events = (delivery.LIVE, delivery.EVENTS_AGAIN)
        return passed, frozenset(at for each in staged if each.items.kind in events for at in each.items.positions)

"""Batches of the log that several peers get alike, read, checked and deflated once (profile §8, "Sender").

Peers that are caught up stand at the same position. What is remembered is the content of a frame, never a frame: epoch,
number and clock are each stream's own. It holds for as long as the rows it was read from stay as they were: whoever
touches rows of the log says so (`Tx.log_touched`), and another connection's commit shows in `data_version`. What
expires is never shared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from meshnode.engine.offer import TableFilter
from meshnode.model.deflate import deflated_events
from meshnode.store import offers
from meshnode.store.database import Tx
from meshnode.store.offers import Offer

KEPT: Final = 8  # batches, each within the bounds of one: peers that are further apart read for themselves


class Place(NamedTuple):
    """What a batch depends on besides the rows."""

    after: int
    peer_no: int  # whose own events are left out; 0 where only one author's are taken
    author_no: int | None
    filter: str
    most: int
    version: int  # of the database, as other connections change it


@dataclass(slots=True)
class Content:
    """The events of one frame to be, and how they look deflated once somebody asked."""

    offer: Offer
    last: int  # the end of the log when it was read
    _deflated: bytes | None = None
    _tried: bool = False

    def deflated(self) -> bytes | None:
        """As `deflated_events` of them."""
        if not self._tried:
            self._deflated, self._tried = deflated_events(self.offer.data), True
        return self._deflated


@dataclass(slots=True)
class SharedBatches:
    """The last of them, oldest first. Used on the writer thread alone."""

    _contents: dict[Place, Content] = field(default_factory=dict)

    def clear(self) -> None:
        """Rows of the log are others by now."""
        self._contents.clear()

    def events_after(
        self, tx: Tx, position: int, peer_no: int, allowed: TableFilter, last: int, most: int, author_no: int | None
    ) -> Content:
        """As `store.offers.events_after`, perhaps read before; nobody may change what it holds."""
        version = tx.execute("PRAGMA data_version").fetchone()[0]
        place = Place(position, 0 if author_no is not None else peer_no, author_no, allowed.text, most, version)
        if tx.log_touched:
            self.clear()
        content = self._contents.get(place)
        if content is not None and (content.last == last or not content.offer.exhausted):
            return content
        offer = offers.events_after(tx, position, peer_no, allowed, last, most, author_no=author_no)
        content = Content(offer, last)
        if offer.positions and not allowed.expires and not tx.log_touched:
            self._keep(place, content)
        return content

    def _keep(self, place: Place, content: Content) -> None:
        self._contents.pop(place, None)
        self._contents[place] = content
        if len(self._contents) > KEPT:
            del self._contents[next(iter(self._contents))]


def plain(offer: Offer) -> Content:
    """What one peer alone gets."""
    return Content(offer, 0)

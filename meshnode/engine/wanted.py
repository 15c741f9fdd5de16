"""Which events of an offer are wanted: those that are not committed here (profile §14, feature `offer`).

Only what is in the log or left a receipt is declined. That another peer offered it too, or is about to send it, decides
nothing: that peer may never do it.
"""

from __future__ import annotations

from meshnode.engine.context import Context
from meshnode.model.frames import Offer
from meshnode.model.offered import unpack
from meshnode.store import held, log
from meshnode.store.database import Tx
from meshnode.store.delivery import Stream


def wanted(context: Context, tx: Tx, stream: Stream, offer: Offer) -> tuple[int, ...]:
    """The indexes of the wanted events; what the peer thereby shows that it has is remembered."""
    known = context.known(stream.key)
    indexes: list[int] = []
    for index, (site, hlc, short_id) in enumerate(unpack(offer.events)):
        site_no = context.sites.find(tx, site)
        position = None if site_no is None else log.position_of(tx, site_no, hlc, short_id)
        if position is not None:
            known.holds_at(position)
        elif not held.has_receipt(tx, short_id):
            known.offered(short_id)
            indexes.append(index)
    return tuple(indexes)

"""What goes ahead of a backlog: this node's own new events, while a peer catches up (profile §13, feature `live`).

They come again in the order of the log, where the peer finds them to be duplicates: so the cursor stays one number, and
nothing of this has to be kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshnode.engine.context import Context
from meshnode.limits import LIVE_EVENTS, LIVE_WAITING
from meshnode.store import offers
from meshnode.store.database import Tx


@dataclass(slots=True)
class Ahead:
    """How far one link has come with them: `room` is for so many frames."""

    after: int = 0  # log position up to which they went, or are left to the backlog
    room: int = 0


def waiting(context: Context, tx: Tx, after: int) -> list[int]:
    """Own positions beyond `after`, in the order of the log; of a flood the newest alone."""
    number = context.sites.find(tx, context.site)
    if number is None:
        return []
    newest = offers.newest_of(tx, number, after, LIVE_WAITING + 1)
    return sorted(newest if len(newest) <= LIVE_WAITING else newest[:LIVE_EVENTS])

"""Of which groups a peer's stream shows everything: only these may it move watermarks of (SSP/1 §14.2, profile §6).

Fail-closed. An epoch that was opened in the middle shows nothing whole, and what this node asked the peer to send once
more has holes until it answered: something of it was dropped here, or never sent, while the stream went on.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshnode.engine.asking import covers
from meshnode.model.frames import Request
from meshnode.store import inbound
from meshnode.store.database import Tx
from meshnode.store.delivery import Stream


@dataclass(frozen=True, slots=True)
class Whole:
    """What is known of one stream within one transaction; this node's own writes are whole by themselves."""

    peer: bytes = b""
    epoch: bool = True  # every frame of it came, from the first on
    requests: tuple[Request | None, ...] = ()  # of this node to the peer, not answered
    restored: tuple[Request | None, ...] = ()  # likewise, where only events by others may be missing

    def shows(self, site: bytes, schema: str, table: str) -> bool:
        """Whether nothing of the group is missing in what came so far."""
        doubts = self.requests if site == self.peer else (*self.requests, *self.restored)
        return self.epoch and not any(covers(each, site, schema, table) for each in doubts)


def read_whole(tx: Tx, stream: Stream) -> Whole:
    """As it is now: an `answered` that is committed changes it."""
    doubts = inbound.doubts(tx, stream)
    return Whole(
        stream.peer,
        inbound.is_whole(tx, stream),
        tuple(request for request, restored in doubts if not restored),
        tuple(request for request, restored in doubts if restored),
    )

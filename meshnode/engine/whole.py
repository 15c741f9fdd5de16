"""Of which groups a peer's stream shows everything: only these may it move watermarks of (SSP/1 §14.2, profile §6).

Fail-closed. An epoch that was opened in the middle shows nothing whole, and what this node asked the peer to send once
more has holes until it answered: something of it was dropped here, or never sent, while the stream went on.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshnode.model.frames import WHAT_SITE, Request
from meshnode.model.frames_untrusted import decode_control_untrusted
from meshnode.model.scope import WILDCARD
from meshnode.store import inbound
from meshnode.store.database import Tx
from meshnode.store.delivery import Stream


@dataclass(frozen=True, slots=True)
class Whole:
    """What is known of one stream within one transaction; this node's own writes are whole by themselves."""

    epoch: bool = True  # every frame of it came, from the first on
    requests: tuple[Request, ...] = ()  # of this node to the peer, not answered

    def shows(self, site: bytes, schema: str, table: str) -> bool:
        """Whether nothing of the group is missing in what came so far."""
        return self.epoch and not any(_covers(each, site, schema, table) for each in self.requests)


def read_whole(tx: Tx, stream: Stream) -> Whole:
    """As it is now: an `answered` that is committed changes it."""
    asked = [decode_control_untrusted(body) for body in inbound.requests(tx, stream)]
    return Whole(inbound.is_whole(tx, stream), tuple(each for each in asked if isinstance(each, Request)))


def _covers(request: Request, site: bytes, schema: str, table: str) -> bool:
    """Whether events of the group are among what was asked for."""
    if request.what == WHAT_SITE:
        return request.site == site
    return request.schema in (WILDCARD, schema) and request.table in (WILDCARD, table)

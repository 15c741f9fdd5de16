"""Which copy of a database this is: where two run as one site, neither publishes until its owner chose (profile §8).

`resume` says that this copy goes on as the device; its own events that it may not have are asked of every peer. `renew`
makes it another site: rows and log stay, and what it had not delivered under the old site goes on as a relay's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from meshnode.engine.asking import ask_site
from meshnode.engine.membership import add_records
from meshnode.engine.publishing import TWIN
from meshnode.engine.standing import OWN_RETIREMENT
from meshnode.errors import PairingError
from meshnode.model.site import SiteKey
from meshnode.store import delivery, meta, notices, watermarks
from meshnode.store.database import Tx

if TYPE_CHECKING:  # of no use to who only reads
    from meshnode.engine.context import Context

RESUMED: Final = "resumed"  # the owner chose: peers met from then on are asked for this site's events as well


def twin_seen(context: Context) -> None:
    """Somebody saw this site live twice: that holds until the owner chose, over restarts too."""
    with context.transaction() as tx:
        meta.write(tx, TWIN, context.env.wall_ms())


def resume(context: Context, incarnation: bytes) -> int:
    """This copy is the device: begin anew, and ask every peer for this site's own events; returns how many."""
    with context.transaction() as tx:
        _begin(context, tx, incarnation)
        meta.write(tx, RESUMED, 1)
        peers = {
            stream.peer for table in ("outbound", "inbound") for stream in delivery.streams(tx, f"meshnode_{table}")
        }
        for peer in sorted(peers):
            ask_site(context, tx, context.sites.number(tx, peer), context.site)
        return len(peers)


def ask_if_resumed(context: Context, tx: Tx, peer_no: int, *, met: bool) -> None:
    """A peer that was never met may hold events of this site that a copy of it wrote."""
    if not met and meta.read(tx, RESUMED) is not None:
        ask_site(context, tx, peer_no, context.site)


def become(context: Context, key: SiteKey, inviter: bytes, records: Sequence[bytes], incarnation: bytes) -> None:
    """Go on as another site, which `records` make a member. The context is of no further use.

    Streams, requests, invites and what was claimed of the site's own groups belonged to the site before.
    """
    with context.transaction() as tx:
        before, context.site = context.site, key.site  # what ends the old site is no end of this device
        add_records(context, tx, records, peer=inviter)
        if not context.membership.is_peer(key.site, key.public_key):
            raise PairingError("the inviter's records do not make this device a member: ask for another invite")
        number = context.sites.number(tx, before)
        watermarks.forget_site(tx, number)
        delivery.forget_all(tx)
        tx.execute("DELETE FROM meshnode_invites")
        meta.write(tx, meta.SITE, key.site)
        _begin(context, tx, incarnation)
        meta.remove(tx, RESUMED)
        notices.end(tx, OWN_RETIREMENT, before)


def _begin(context: Context, tx: Tx, incarnation: bytes) -> None:
    meta.write(tx, meta.INCARNATION, incarnation)
    meta.remove(tx, TWIN)
    context.incarnation = incarnation

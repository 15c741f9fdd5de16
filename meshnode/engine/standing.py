"""What follows when the walk changes somebody's standing: keyring, requests, what no longer stands (profile §9)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from meshnode import limits
from meshnode.codec.cose_key import public_to_cose
from meshnode.engine import takeback
from meshnode.engine.asking import site_request, table_request
from meshnode.model.frames import Request, encode_frame
from meshnode.model.issuing import RETIRED_HERE
from meshnode.model.member import Member, acceptable_beyond
from meshnode.model.membership import Membership
from meshnode.model.scope import WILDCARD
from meshnode.store import history
from meshnode.store import records as rows
from meshnode.store.database import Tx

if TYPE_CHECKING:  # of no use to who only reads
    from meshnode.engine.context import Context

OWN_RETIREMENT: Final = "own-retirement"  # a notice


def take_effect(context: Context, tx: Tx, before: Membership, after: Membership) -> None:
    """Rewrite the keyring, ask for what was dropped until now, take back what should not have been applied."""
    _write_keyring(tx, after)
    _request_history(context, tx, _gained(before.by_site, after.by_site))
    lost = _gained(after.by_site, before.by_site)
    if lost:
        takeback.begin(context, tx, lost)
    if after.retired(context.site) is not None and before.retired(context.site) is None:
        context.surface(tx, OWN_RETIREMENT, context.site, RETIRED_HERE)


def _gained(old: dict[bytes, Member], new: dict[bytes, Member]) -> list[bytes]:
    """The sites that `new` accepts events of which `old` does not accept."""
    return [site for site in sorted(new) if acceptable_beyond(new[site], old.get(site))]


def _write_keyring(tx: Tx, after: Membership) -> None:
    stored = rows.keyring_names(tx)
    fresh = [member for site, member in after.by_site.items() if site not in stored]
    gone = [site for site in stored if site not in after.by_site]
    rows.write_keyring(
        tx, [rows.KeyringRow(each.site, public_to_cose(each.public_key), each.name) for each in fresh], gone
    )
    for site, member in after.by_site.items():
        if site in stored and stored[site] != member.name:
            rows.rename(tx, site, member.name)


def _request_history(context: Context, tx: Tx, sites: Sequence[bytes]) -> None:
    """Ask every peer whose stream we hold a part of: only there can something have been dropped before.

    A peer that never sent us anything starts at genesis anyway.
    """
    if not sites:
        return
    for peer_no in history.peers_that_sent(tx):
        for request in _requests(context, sites):
            history.add_request(tx, request.id, peer_no, encode_frame(request))


def _requests(context: Context, sites: Sequence[bytes]) -> Iterable[Request]:
    """One per site; for more sites than one peer need remember, one for everything."""
    if len(sites) > limits.REQUESTS_PER_PEER // 2:
        return [table_request(context, WILDCARD, WILDCARD, covering=False)]
    return [site_request(context, site) for site in sites]

"""Watermarks of a relay: taken over once every frame that it sent before has settled (SSP/1 §14.2, profile §6).

Fail-closed: a claim that may stand on events which were not seen here is not taken. Its peer tells it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from meshnode.engine.context import Context
from meshnode.engine.whole import read_whole
from meshnode.model.frames import WatermarkEntry
from meshnode.model.hlc import ZERO, Hlc
from meshnode.model.scope import Scope
from meshnode.store import watermarks
from meshnode.store.database import Tx
from meshnode.store.delivery import Stream
from meshnode.store.watermarks import Group


def take_claims_untrusted(
    context: Context, tx: Tx, stream: Stream, claims: Sequence[WatermarkEntry], scope: Scope
) -> bool:
    """Let groups advance to what the peer has applied; all its frames before are committed. Whether any advanced.

    Not taken: of an epoch that was opened in the middle, of sites that are no members, of this very site, and of what
    the peer was asked to send once more and has not: something of it was dropped here before.
    """
    whole = read_whole(tx, stream)
    groups, advanced = [], False
    for claim in claims:
        if not whole.shows(*claim[:3]):
            continue
        group = _group(context, tx, claim, scope)
        hlc = Hlc(claim.physical, claim.logical)
        if group is not None and hlc > group.reached:
            before = group.applied
            group.reach(hlc)
            group.advance(held=watermarks.stands(tx, group))
            groups.append(group)
            advanced = advanced or group.applied > before
    if groups:
        watermarks.save(tx, groups)
    return advanced


def own_ahead_untrusted(context: Context, tx: Tx, claims: Sequence[WatermarkEntry]) -> Hlc | None:
    """A later event of this very site than is known here, where a peer claims one: like `max_hlc`, a hint (profile §8).

    The peer may have come to hold it only after its hello.
    """
    own = [Hlc(claim.physical, claim.logical) for claim in claims if claim.site == context.site]
    if not own:
        return None
    return max(own) if max(own) > own_newest(context, tx) else None


def own_newest(context: Context, tx: Tx) -> Hlc:
    """This node's newest event, as far as it knows."""
    number = context.sites.number(tx, context.site)
    return max([context.newest(tx, number) or ZERO, *(group.reached for group in watermarks.of_site(tx, number))])


def _group(context: Context, tx: Tx, claim: WatermarkEntry, scope: Scope) -> Group | None:
    """The group that a claim is about, None where it cannot be taken.

    A group of a table that is not registered here exists only if events of it are held or were rejected: a claim opens
    no other, so a peer cannot fill the disk with names.
    """
    site_is_known = context.membership.key_of(claim.site) is not None and claim.site != context.site
    if not site_is_known or not scope.contains(claim.schema, claim.table):
        return None
    entry = context.tables.entry(tx, claim.schema, claim.table)
    if entry.no is None or context.policy.days(entry.table_class) != inf:
        return None  # something of it may have been passed over here, or there
    site_no = context.sites.number(tx, claim.site)
    group = watermarks.load(tx, site_no, entry.no)
    if group is None and entry.registered:
        return Group(site_no, entry.no, changed=True)
    return group

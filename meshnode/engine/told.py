"""What a peer told of its watermarks goes to disk, within the bounds on groups (SSP/1 §14.2, profile §6, §12).

Kept are groups of members alone. Of tables that do not take part here a peer may bring so many per author as an author
may open by events, so that one that invents groups fills neither the disk nor anybody else's share.
"""

from __future__ import annotations

from collections.abc import Mapping

from meshnode.engine.context import Context
from meshnode.limits import UNKNOWN_GROUPS_PER_SITE
from meshnode.model.delivery import GroupName, Told
from meshnode.store import told as rows
from meshnode.store.database import Tx
from meshnode.store.told import ToldRow


def keep_told_untrusted(context: Context, tx: Tx, peer: bytes, told: Mapping[GroupName, Told], *, anew: bool) -> None:
    """Keep what rose; with `anew` nothing that the peer told on an earlier link counts any more."""
    peer_no = context.sites.number(tx, peer)
    if anew:
        rows.forget(tx, peer_no)
    unknown: dict[int, int] = {}  # groups of unknown tables so far, by author
    kept = []
    for (site, schema, table), word in told.items():
        if context.membership.key_of(site) is None:
            continue
        site_no = context.sites.number(tx, site)
        is_new = not context.tables.entry(tx, schema, table).registered and not rows.has(
            tx, peer_no, site_no, (schema, table)
        )
        if is_new:
            count = unknown[site_no] if site_no in unknown else rows.unknown_groups(tx, peer_no, site_no)
            if count >= UNKNOWN_GROUPS_PER_SITE:
                continue
            unknown[site_no] = count + 1
        kept.append(ToldRow(site_no, schema, table, word))
    rows.keep(tx, peer_no, kept)

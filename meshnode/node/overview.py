"""How one node is, read from its store: what `status` shows of it whether it runs or not."""

from __future__ import annotations

from typing import Final

from meshnode import __version__
from meshnode.engine.publishing import may_publish
from meshnode.model.site import mesh_tag, short_text, site_text
from meshnode.node import admitting, reading
from meshnode.node.groups import GROUPS_SHOWN
from meshnode.node.home import Home
from meshnode.node.moved import moved, moved_text
from meshnode.node.peering import Mesh, lagging_now, peer_views
from meshnode.node.roster import warnings_of
from meshnode.node.views import ConflictCounts, Status
from meshnode.store import conflicts, invites, meta, queries
from meshnode.store.database import Tx

SOFTWARE: Final = f"meshnode/{__version__}"


def status_of(mesh: Mesh, home: Home, incarnation: bytes | None, *, encrypted: bool) -> Status:
    """`incarnation` is that beside the key, None where it cannot be read (profile §8)."""
    tx, site, member = mesh.tx, mesh.own, mesh.membership.by_site.get(mesh.own)
    lagging, gone = lagging_now(mesh), moved(home)
    tables = reading.table_views(tx)
    events, waiting = queries.event_counts(tx)
    return Status(
        running=False,
        site=site_text(site),
        short=short_text(site),
        name=home.config.name or (member.name if member else ""),
        mesh_tag=mesh_tag(meta.read_bytes(tx, meta.MESH_ID)).hex(),
        home=str(home.path),
        database=str(home.database_path),
        encrypted=encrypted,
        peers=peer_views(mesh),
        role=member.role if member else "none",
        retired=member is not None and member.cutoff is not None,
        software=SOFTWARE,
        hlc=meta.read_clock(tx)[:],
        tables=len(tables),
        rows=sum(view.rows for view in tables),
        rows_more=any(view.rows_more for view in tables),
        events=events,
        held=waiting,
        waiting=queries.held_tables(tx) if waiting else {},
        unusable={view.table: view.unusable for view in tables if view.unusable},
        open_invites=invites.open_count(tx, mesh.now_ms),
        expired_invites=invites.expired_count(tx, mesh.now_ms),
        asking=admitting.asking(tx, mesh.now_ms),
        conflicts=_unresolved(tx),
        publishing=may_publish(tx, incarnation) and gone is None,
        moved="" if gone is None else moved_text(gone),
        notices=reading.notice_views(tx),
        warnings=warnings_of(home, mesh.membership, site),
        lagging=lagging[:GROUPS_SHOWN],
        lagging_more=max(len(lagging) - GROUPS_SHOWN, 0),
    )


def _unresolved(tx: Tx) -> ConflictCounts:
    """How many are open."""
    certain, possible = conflicts.open_ones(tx)
    return ConflictCounts(certain=certain, possible=possible)

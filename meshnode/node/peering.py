"""What is shown of the other members, and whether everybody has everything (`peers`, `status`, `wait`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from meshnode.engine.offer import Filter
from meshnode.errors import CorruptStateError
from meshnode.model.delivery import PATH, GroupName, Told
from meshnode.model.hlc import ZERO, Hlc
from meshnode.model.member import Member
from meshnode.model.membership import Membership
from meshnode.model.policy import Policy, TableClass
from meshnode.model.site import short_text, site_text
from meshnode.node.groups import PeerGroups, lagging_views, peer_groups
from meshnode.node.views import BehindView, LaggingView, PeerView, WaitResult
from meshnode.store import peers, policies, told, watermarks
from meshnode.store.backlog import Backlog, backlog, groups_ahead, groups_rejected, sites_ahead
from meshnode.store.database import Tx
from meshnode.store.lagging import lagging


@dataclass(frozen=True, slots=True)
class Heard:
    """What a running node knows of one peer beyond the database; kept after its link ended."""

    linked: bool = False
    address: str | None = None
    opened_by_us: bool | None = None
    note: str = ""
    told: Mapping[GroupName, Told] = field(default_factory=dict)  # its watermarks on the last link; else those on disk
    newest: Hlc | None = None  # its newest own event, as its hello said; None once it told its watermarks
    offered: Filter | None = None  # what it asked for; None: as its last hello on disk has it
    links: frozenset[bytes] = frozenset()  # whom it says it is linked to
    stopped: str = ""  # why our stream to it stands still


@dataclass(frozen=True, slots=True)
class Mesh:
    """What views of the other members are made of: one snapshot of the store, and what a running node heard."""

    tx: Tx
    membership: Membership
    own: bytes
    heard: Mapping[bytes, Heard]
    rows: Mapping[bytes, peers.PeerRow]
    applied: Mapping[GroupName, Hlc]  # our watermarks
    told: Mapping[bytes, Mapping[GroupName, Told]]  # by peer, of members' groups
    policy: Policy
    classes: Mapping[tuple[str, str], TableClass]  # of the tables that are not simply shared
    now_ms: int

    def name_of(self, site: bytes) -> str:
        """What people call a site."""
        row, member = self.rows.get(site), self.membership.by_site.get(site)
        return row.name if row else member.name if member else short_text(site)

    def others(self) -> list[Member]:
        """The other members in site order."""
        return [member for member in self.membership.members() if member.site != self.own]

    def class_of(self, schema: str, table: str) -> TableClass:
        """What a table is to the mesh, as this node says."""
        return self.classes.get((schema, table), TableClass.SHARED)

    def takes(self, schema: str, table: str) -> bool:
        """Whether this node takes every event of a table: in any other one it can be behind nobody."""
        return self.policy.takes_whole(schema, table, self.class_of(schema, table))

    def gives(self, schema: str, table: str) -> bool:
        """Whether this node lets every event of a table out: in any other one nobody can be behind it."""
        return self.policy.days(self.class_of(schema, table)) == inf


def read_mesh(tx: Tx, membership: Membership, own: bytes, heard: Mapping[bytes, Heard], now_ms: int) -> Mesh:
    """Read what all views share."""
    words = {}
    for site in membership.by_site:
        on_link = heard[site].told if site in heard else {}
        words[site] = {
            group: word
            for group, word in (on_link or told.of_peer(tx, site)).items()
            if membership.key_of(group[0]) is not None  # a claim about an invented site tells nothing
        }
    words.pop(own, None)
    applied = {(each.site, each.schema, each.table): each.hlc for each in watermarks.all_watermarks(tx)}
    policy, classes = policies.read(tx), policies.classes(tx)
    return Mesh(tx, membership, own, heard, peers.all_heard(tx), applied, words, policy, classes, now_ms)


def offered_to(tx: Tx, site: bytes, heard: Heard) -> Filter:
    """What a peer asked for: on its last link, or before, as it is on disk."""
    return heard.offered or Filter(peers.scope_of(tx, site))


def peer_views(mesh: Mesh) -> list[PeerView]:
    """The other members in site order."""
    kept = peers.addresses(mesh.tx)
    return [_peer_view(mesh, member, kept.get(member.site, [])) for member in mesh.others()]


def lagging_now(mesh: Mesh) -> list[LaggingView]:
    """The groups that this node itself is behind in, the largest gaps first."""
    return lagging_views(lagging(mesh.tx, mesh.own), mesh.applied, mesh.told, mesh.takes, mesh.name_of)


def _peer_view(mesh: Mesh, member: Member, addresses: Sequence[str]) -> PeerView:
    tx, row, heard = mesh.tx, mesh.rows.get(member.site), mesh.heard.get(member.site, Heard())
    note, stuck = heard.stopped or heard.note, bool(heard.stopped)
    open_with, groups = Backlog(), PeerGroups()
    try:
        if member.cutoff is None:  # nothing goes to a retired one any more
            wants = offered_to(tx, member.site, heard).scope.contains
            open_with = backlog(tx, member.site, PATH, wants, mesh.now_ms, heard.links)
            groups = peer_groups(
                mesh.applied,
                mesh.told[member.site],
                lambda schema, table: wants(schema, table) and mesh.gives(schema, table),
                mesh.takes,
                mesh.name_of,
            )
        else:
            note = note or "retired"
    except CorruptStateError as error:
        note, stuck = str(error), True
    return PeerView(
        site=site_text(member.site),
        short=short_text(member.site),
        name=row.name if row else member.name,
        role=member.role,
        retired=member.cutoff is not None,
        linked=heard.linked,
        address=heard.address or (addresses[0] if addresses else None),
        opened_by_us=heard.opened_by_us,
        software=row.software if row else "",
        last_seen_ms=mesh.now_ms if heard.linked else row.last_seen_ms if row else None,
        clock_offset_ms=row.clock_offset_ms if row else None,
        behind=open_with.events_behind + open_with.records_behind + open_with.unanswered + open_with.backfills,
        unconfirmed=open_with.waiting,
        ahead=_ahead(mesh, member.site, heard) + open_with.requests,
        in_flight=open_with.staged,
        stuck=stuck,
        note=note,
        told_ms=groups.told_ms,
        groups_behind=groups.behind,
        groups_ahead=groups.ahead,
        groups=list(groups.shown),
        groups_more=groups.behind + groups.ahead - len(groups.shown),
    )


def _ahead(mesh: Mesh, site: bytes, heard: Heard) -> int:
    """Groups that this node takes in which the peer told of later events, and whether it authored something else."""
    newest = {} if heard.newest is None else {site: heard.newest}
    words = heard.told or mesh.told[site]
    later = {group: word.hlc for group, word in words.items() if word.hlc > mesh.applied.get(group, ZERO)}
    not_here = groups_ahead(mesh.tx, later, mesh.takes) + len(sites_ahead(mesh.tx, newest))
    return not_here + groups_rejected(mesh.tx, site)


def wait_result(views: Sequence[PeerView], *, live_only: bool) -> WaitResult:
    """Whether every unretired member (or every linked one) has what is here, and its own events are here."""
    members = [view for view in views if not view.retired]
    asked = [view for view in members if view.linked] if live_only else members
    behind = [_behind(view) for view in asked if view.behind or view.unconfirmed or view.ahead or view.stuck]
    reason = ""
    if live_only and not asked:
        reason = "no member is linked"
    return WaitResult(complete=not behind and not reason, members=len(members), behind=behind, reason=reason)


def _behind(view: PeerView) -> BehindView:
    reasons = [] if view.linked else ["not linked"]
    if view.behind:
        reasons.append(f"{view.behind} of ours not acknowledged")
    if view.unconfirmed:
        reasons.append(f"{view.unconfirmed} of others not offered yet")
    if view.ahead:
        reasons.append(f"{view.ahead} of its groups or answers not here yet")
    if view.note:
        reasons.append(view.note)
    return BehindView(
        site=view.site,
        short=view.short,
        name=view.name,
        linked=view.linked,
        behind=view.behind + view.unconfirmed,
        ahead=view.ahead,
        reason=", ".join(reasons),
    )

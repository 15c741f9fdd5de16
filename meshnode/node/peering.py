"""What is shown of the other members, and whether everybody has everything (`peers`, `status`, `wait`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from meshnode.errors import CorruptStateError
from meshnode.model.delivery import PATH
from meshnode.model.hlc import Hlc
from meshnode.model.member import Member
from meshnode.model.membership import Membership
from meshnode.model.site import short_text, site_text
from meshnode.node.views import BehindView, PeerView, WaitResult
from meshnode.store import peers
from meshnode.store.backlog import Allows, Backlog, Told, backlog, groups_ahead, groups_rejected, sites_ahead
from meshnode.store.database import Tx


def _everything(_schema: str, _table: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Heard:
    """What a running node knows of one peer beyond the database; kept after its link ended."""

    linked: bool = False
    address: str | None = None
    opened_by_us: bool | None = None
    note: str = ""
    told: Told = field(default_factory=dict)  # its watermarks
    newest: Hlc | None = None  # its newest own event, as its hello said
    allows: Allows = _everything  # what it asked for
    links: frozenset[bytes] = frozenset()  # whom it says it is linked to


def peer_views(tx: Tx, membership: Membership, own: bytes, heard: Mapping[bytes, Heard]) -> list[PeerView]:
    """The other members in site order."""
    rows, kept = peers.all_heard(tx), peers.addresses(tx)
    return [
        _peer_view(tx, member, rows.get(member.site), kept.get(member.site, []), heard.get(member.site, Heard()))
        for member in membership.members()
        if member.site != own
    ]


def _peer_view(tx: Tx, member: Member, row: peers.PeerRow | None, addresses: Sequence[str], heard: Heard) -> PeerView:
    note, stuck, open_with = heard.note, False, Backlog()
    try:
        open_with = backlog(tx, member.site, PATH, heard.allows, heard.links)
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
        last_seen_ms=row.last_seen_ms if row else None,
        clock_offset_ms=row.clock_offset_ms if row else None,
        behind=open_with.events_behind + open_with.records_behind + open_with.unanswered,
        unconfirmed=open_with.waiting,
        ahead=_ahead(tx, member.site, heard) + open_with.requests,
        in_flight=open_with.staged,
        stuck=stuck,
        note=note,
    )


def _ahead(tx: Tx, site: bytes, heard: Heard) -> int:
    """Groups in which the peer told of later events, and whether it authored something that is not here."""
    newest = {} if heard.newest is None else {site: heard.newest}
    told = groups_ahead(tx, heard.told, _everything) + len(sites_ahead(tx, newest))
    return told + groups_rejected(tx, site)


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

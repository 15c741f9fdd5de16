"""Who is in, as people see it, and what the owner of a node should do about it (profile §9)."""

from __future__ import annotations

from meshnode.engine.membership import stored_records
from meshnode.model.issuing import NO_MEMBER_HERE, RETIRED_HERE, authorities, named
from meshnode.model.member import Member
from meshnode.model.membership import Membership
from meshnode.model.record import Retirement
from meshnode.model.site import short_text, site_text
from meshnode.node.home import Home
from meshnode.node.memberviews import MemberView
from meshnode.node.peering import Heard, Mesh
from meshnode.store import peers
from meshnode.store.database import Tx


def member_views(mesh: Mesh) -> list[MemberView]:
    """Everybody who is or was a member: authorities by seniority, then the others as they came, then the retired."""
    standing = authorities(mesh.membership)
    ranks = {each.site: number for number, each in enumerate(standing, 1)}
    enders, kept = _enders(mesh.tx, mesh.membership), peers.addresses(mesh.tx)
    views = [
        _view(mesh, each, ranks.get(each.site), enders.get(each.site), kept.get(each.site, []))
        for each in mesh.membership.members()
    ]
    return sorted(views, key=lambda each: (each.retired, each.seniority or len(views), each.since_ms, each.site))


def warnings_of(home: Home, membership: Membership, own: bytes) -> list[str]:
    """What the owner of this node should do about who is in; in words for `status`."""
    if membership.retired(own) is not None:
        return [RETIRED_HERE]
    warnings = [] if own in membership.by_site else [NO_MEMBER_HERE]
    if home.recovery_key_path.exists():
        warnings.append(
            f"the recovery key still lies beside the node: move {home.recovery_key_path} off this device, "
            "to a safe place"
        )
    standing = authorities(membership)
    if not standing:
        warnings.append(
            "no device can let others in or retire them: `meshnode role SITE authority --recovery FILE` makes one"
        )
    elif len(standing) == 1:
        warnings.append(
            f"{named(membership, standing[0].site)} is the only device that can let others in or retire them: "
            "`meshnode role SITE authority` there makes another one"
        )
    return warnings


def _view(mesh: Mesh, member: Member, rank: int | None, ender: bytes | None, kept: list[str]) -> MemberView:
    row, heard = mesh.rows.get(member.site), mesh.heard.get(member.site, Heard())
    return MemberView(
        site=site_text(member.site),
        short=short_text(member.site),
        name=mesh.name_of(member.site),
        role=member.role,
        own=member.site == mesh.own,
        seniority=rank,
        by=_name(mesh, member.vouched_by),
        by_site=site_text(member.vouched_by),
        since_ms=member.vouched_at.physical,
        retired=member.cutoff is not None,
        cutoff=None if member.cutoff is None else member.cutoff[:],
        retired_by="" if ender is None else _name(mesh, ender),
        linked=heard.linked,
        last_seen_ms=mesh.now_ms if heard.linked else row.last_seen_ms if row else None,
        address=heard.address or (kept[0] if kept else None),
        software=row.software if row else "",
    )


def _name(mesh: Mesh, site: bytes) -> str:
    return "the recovery key" if site == mesh.membership.founder else mesh.name_of(site)


def _enders(tx: Tx, membership: Membership) -> dict[bytes, bytes]:
    """Of each retired site, who signed the retirement that set its cutoff."""
    return {
        record.body.site: record.signer
        for record in stored_records(tx)
        if isinstance(record.body, Retirement)
        and record.record_id in membership.counted
        and record.body.cutoff == membership.retired(record.body.site)
    }

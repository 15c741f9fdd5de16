"""Who is in: the members as people see them, and the records by which one lets in, ranks and retires (profile §9)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from meshnode.codec.ed25519 import PUBLIC_KEY_BYTES
from meshnode.engine.authority import issue_retirement, issue_role, issue_vouch, own_key
from meshnode.engine.context import Context
from meshnode.engine.engine import Engine
from meshnode.engine.membership import stored_records
from meshnode.errors import MembershipError, UsageError
from meshnode.model.hlc import Hlc
from meshnode.model.issuing import NO_MEMBER_HERE, RETIRED_HERE, authorities, named
from meshnode.model.member import Member
from meshnode.model.membership import Membership
from meshnode.model.record import ROLES, Retirement, Role, Vouch, parse_record_untrusted, split_record_untrusted
from meshnode.model.site import SiteKey, short_text, site_id_of, site_text
from meshnode.node.home import Home
from meshnode.node.memberviews import LeaveView, MemberView, RecordView
from meshnode.node.naming import Known, known_of, site_called
from meshnode.node.passphrase import Passphrase
from meshnode.node.peering import Heard, Mesh
from meshnode.node.recovery import read_recovery
from meshnode.store import peers
from meshnode.store.database import Tx

_KINDS: Final = {Vouch: "vouch", Role: "role", Retirement: "retirement"}


# --- who is in


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


# --- records


async def recovery_signer(file: str | None, passphrase: str | None) -> SiteKey | None:
    """The recovery key in a file, which may be under a passphrase; None where this device's own key is to sign."""
    if file is None:
        return None
    return await asyncio.to_thread(lambda: read_recovery(Path(file).expanduser(), Passphrase(passphrase)))


def vouch(engine: Engine, subject: str, name: str, recovery: SiteKey | None) -> RecordView:
    """Let a device in by its public key, or one in again whose vouch does not count any more."""

    def issue(context: Context, tx: Tx) -> bytes:
        public_key, called = _vouched(context, tx, subject)
        return issue_vouch(context, tx, public_key, name or called, signer=recovery)

    return _signed(engine, recovery, issue)


def set_role(engine: Engine, subject: str, role: str, recovery: SiteKey | None) -> RecordView:
    """Say what a member may do from now on."""
    if role not in ROLES:
        raise UsageError(f"{role!r} is no role: there are {', '.join(sorted(ROLES))}")
    return _signed(
        engine,
        recovery,
        lambda context, tx: issue_role(context, tx, _member(context, tx, subject), role, signer=recovery),
    )


def retire(
    engine: Engine, subject: str, at_ms: int | None, recovery: SiteKey | None, *, alone: bool = True
) -> RecordView:
    """End a member, from `at_ms` on or from now on; `alone` unless others may be out with it."""
    now_ms = engine.context.env.wall_ms()
    if at_ms is not None and at_ms > now_ms:
        raise UsageError("a device is retired from now on or from a time that is over: it is turned away at once")
    cutoff = None if at_ms is None else Hlc(at_ms, 0)
    return _signed(
        engine,
        recovery,
        lambda context, tx: issue_retirement(
            context, tx, _member(context, tx, subject), cutoff=cutoff, signer=recovery, alone=alone
        ),
    )


def leave(engine: Engine) -> LeaveView:
    """Retire this very device, by its own key."""
    view = _signed(engine, None, lambda context, tx: issue_retirement(context, tx, own_key(context).site, signer=None))
    assert view.cutoff is not None
    return LeaveView(site=view.site, short=view.short, name=view.name, cutoff=view.cutoff)


def _signed(engine: Engine, recovery: SiteKey | None, issue: Callable[[Context, Tx], bytes]) -> RecordView:
    context = engine.context
    if recovery is not None and recovery.public_key != context.founder:
        raise MembershipError("nothing was signed: the key in that file is not the recovery key of this mesh")
    before = context.membership
    data = context.transact(lambda tx: issue(context, tx))
    return _record_view(context, data, before)


def _record_view(context: Context, data: bytes, before: Membership) -> RecordView:
    record, after = parse_record_untrusted(split_record_untrusted(data), data), context.membership
    body = record.body
    assert isinstance(body, Vouch | Role | Retirement)
    member = after.by_site[body.site]
    gone = [site for site in sorted(before.by_site) if site not in after.by_site]
    signer = after.by_site.get(record.signer)
    return RecordView(
        record=record.record_id.hex(),
        kind=_KINDS[type(body)],
        site=site_text(member.site),
        short=short_text(member.site),
        name=member.name,
        by=signer.name if signer is not None else "the recovery key",
        by_site=site_text(record.signer),
        issued=record.issued[:],
        role=body.role if isinstance(body, Role) else "",
        cutoff=body.cutoff[:] if isinstance(body, Retirement) else None,
        lost=tuple(named(before, site) for site in gone),
    )


def _member(context: Context, tx: Tx, subject: str) -> bytes:
    return site_called(subject, known_of(tx, context.membership.members()))


def _vouched(context: Context, tx: Tx, subject: str) -> tuple[bytes, str]:
    """The public key that is meant, and the name it was known by."""
    try:
        public_key = bytes.fromhex(subject)
    except ValueError:
        public_key = b""
    if len(public_key) == PUBLIC_KEY_BYTES:
        member = context.membership.by_site.get(site_id_of(public_key))
        return public_key, member.name if member is not None else short_text(site_id_of(public_key))
    seen = _ever_vouched(context, tx)
    site = site_called(subject, _known(context, tx, seen.values()), "device")
    return seen[site].public_key, seen[site].name


def _ever_vouched(context: Context, tx: Tx) -> dict[bytes, Vouch]:
    """Whoever is a member or was vouched for by one: of several vouches, one that counts."""
    seen: dict[bytes, Vouch] = {}
    for record in stored_records(tx):
        body = record.body
        if not isinstance(body, Vouch) or site_id_of(body.public_key) != body.site:
            continue
        if body.site not in seen or record.record_id in context.membership.counted:
            seen[body.site] = body
    return seen


def _known(context: Context, tx: Tx, vouches: Iterable[Vouch]) -> list[Known]:
    members = known_of(tx, context.membership.members())
    others = [each for each in vouches if each.site not in context.membership.by_site]
    return [*members, *(Known(each.site, each.name) for each in others)]

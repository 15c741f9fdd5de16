"""Who is in: the members as people see them, and the records by which one lets in, ranks and retires (profile §9)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from meshnode.codec.ed25519 import PUBLIC_KEY_BYTES
from meshnode.engine.authority import issue_retirement, issue_role, issue_vouch, own_key
from meshnode.engine.membership import stored_records
from meshnode.errors import MembershipError, UsageError
from meshnode.model.hlc import Hlc
from meshnode.model.issuing import named
from meshnode.model.membership import Membership
from meshnode.model.record import ROLES, Retirement, Role, Vouch, parse_record_untrusted, split_record_untrusted
from meshnode.model.site import SiteKey, short_text, site_id_of, site_text
from meshnode.model.wording import quoted
from meshnode.node.memberviews import LeaveView, RecordView
from meshnode.node.naming import Known, known_of, site_called
from meshnode.node.passphrase import Passphrase
from meshnode.node.recovery import read_recovery
from meshnode.store.database import Tx

if TYPE_CHECKING:  # of no use to who only reads
    from meshnode.engine.context import Context
    from meshnode.engine.engine import Engine

_KINDS: Final = {Vouch: "vouch", Role: "role", Retirement: "retirement"}


async def recovery_signer(file: str | None, passphrase: str | None) -> SiteKey | None:
    """The recovery key in a file, which may be under a passphrase; None where this device's own key is to sign."""
    if file is None:
        return None
    return await asyncio.to_thread(lambda: read_recovery(Path(os.path.expanduser(file)), Passphrase(passphrase)))


def vouch(engine: Engine, subject: str, name: str, recovery: SiteKey | None) -> RecordView:
    """Let a device in by its public key, or one in again whose vouch does not count any more."""

    def issue(context: Context, tx: Tx) -> bytes:
        public_key, called = _vouched(context, tx, subject)
        return issue_vouch(context, tx, public_key, name or called, signer=recovery)

    return _signed(engine, recovery, issue)


def set_role(engine: Engine, subject: str, role: str, recovery: SiteKey | None) -> RecordView:
    """Say what a member may do from now on."""
    if role not in ROLES:
        raise UsageError(f"{quoted(role)} is no role: there are {', '.join(sorted(ROLES))}")
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

"""Invites as their maker sees them: made, asked about, used, and what a person says to those who ask (profile §10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from meshnode.engine import candidates
from meshnode.errors import MembershipError, UsageError
from meshnode.limits import INVITE_TRIES
from meshnode.model.frames import INVITE_ID_BYTES
from meshnode.model.membership import Membership
from meshnode.model.site import short_text, site_id_of, site_text
from meshnode.model.wording import quoted
from meshnode.node.pairing_views import CandidateView, InvitedView, InviteView, OpenInviteView
from meshnode.store import invites
from meshnode.store.database import Tx
from meshnode.store.invites import StoredInvite

if TYPE_CHECKING:  # of no use to who only reads
    from meshnode.engine.engine import Engine

OPEN = "open"


def open_invite(engine: Engine, addresses: Sequence[str], ttl_ms: int, *, confirm: bool) -> InviteView:
    """Make one, in a transaction of its own."""
    from meshnode.engine.invites import create_invite  # of no use to who only reads

    with engine.context.transaction() as tx:
        invite = create_invite(engine.context, tx, addrs=addresses, ttl_ms=ttl_ms, confirm=confirm)
    return InviteView(
        invite=invite.text(),
        expires_ms=invite.expires_ms,
        addresses=list(invite.addrs),
        id=invite.invite_id.hex(),
        confirm=confirm,
    )


def founder_of_mine(engine: Engine) -> bytes:
    """The founder's public key, for who joins without an invite; MembershipError where nobody can be let in here."""
    from meshnode.engine.invites import may_admit, no_authority  # of no use to who only reads

    if not may_admit(engine.context):
        raise MembershipError(no_authority(engine.context))
    return engine.context.founder


def decide(engine: Engine, named: str, *, approve: bool) -> CandidateView:
    """Say yes or no to one that asks, in a transaction of its own."""
    context = engine.context
    return _view(context.transact(lambda tx: candidates.decide(context, tx, named, approve=approve)))


def asking(tx: Tx, now_ms: int) -> list[CandidateView]:
    """Those that ask now."""
    return [_view(each) for each in candidates.candidates(tx, now_ms)]


def open_invites(tx: Tx, now_ms: int) -> list[OpenInviteView]:
    """Those that somebody may still come in by, the next to expire first."""
    return [_open_view(each) for each in invites.every_open(tx, now_ms)]


def withdraw(engine: Engine, invite_id: str) -> OpenInviteView:
    """Take one back, in a transaction of its own; UsageError for what is no id."""
    from meshnode.engine.invites import withdraw as taken_back  # of no use to who only reads

    context, named = engine.context, _id_bytes(invite_id)
    return _open_view(context.transact(lambda tx: taken_back(context, tx, named)))


def invited(tx: Tx, membership: Membership, invite_id: str, now_ms: int) -> InvitedView:
    """What became of the invite of this id; UsageError for what is no id."""
    invite = invites.get(tx, _id_bytes(invite_id))
    if invite is None:
        return InvitedView(state="expired")  # expired ones are forgotten when another one is made
    who = _who(invite)
    if invite.consumed_by is not None:
        return InvitedView(state="joined", who=_joined(membership, invite.consumed_by, invite))
    if invite.withdrawn:
        return InvitedView(state="withdrawn", who=who)
    if invite.tries >= INVITE_TRIES:
        return InvitedView(state="burnt" if who is None else "denied", who=who)
    if now_ms > invite.expires_ms:
        return InvitedView(state="expired", who=who)
    return InvitedView(state=OPEN if who is None else "asks", who=who)


def _id_bytes(text: str) -> bytes:
    try:
        named = bytes.fromhex(text)
    except ValueError:
        named = b""
    if len(named) != INVITE_ID_BYTES:
        raise UsageError(f"{quoted(text)} is no id of an invite: it has {2 * INVITE_ID_BYTES} hex digits")
    return named


def _joined(membership: Membership, public_key: bytes, invite: StoredInvite) -> CandidateView:
    site = site_id_of(public_key)
    member = membership.by_site.get(site)
    name = member.name if member is not None else invite.candidate_name
    return CandidateView(site=site_text(site), short=short_text(site), name=name, expires_ms=invite.expires_ms)


def _open_view(invite: StoredInvite) -> OpenInviteView:
    named, who = invite.invite_id.hex(), _who(invite)
    return OpenInviteView(id=named, expires_ms=invite.expires_ms, confirm=bool(invite.confirm), who=who)


def _who(invite: StoredInvite) -> CandidateView | None:
    candidate = candidates.Candidate.of(invite)
    return None if candidate is None else _view(candidate)


def _view(candidate: candidates.Candidate) -> CandidateView:
    return CandidateView(
        site=site_text(candidate.site),
        short=short_text(candidate.site),
        name=candidate.name,
        since_ms=candidate.since_ms,
        expires_ms=candidate.expires_ms,
    )

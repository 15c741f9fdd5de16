"""Invites made and used up: each step one transaction on the writer (profile §10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from meshnode import limits
from meshnode.engine.authority import NAMED_AT_MOST, issue_vouch, own_key
from meshnode.engine.context import Context
from meshnode.engine.membership import all_records, introduction_of
from meshnode.errors import CloseCode, MembershipError, UsageError
from meshnode.model.hlc import tick
from meshnode.model.invite import SECRET_BYTES, Invite, invite_id
from meshnode.model.issuing import RETIRED_HERE, authorities, named
from meshnode.model.pairing import Proof, inviter_mac
from meshnode.model.site import site_id_of
from meshnode.store import invites
from meshnode.store.database import Tx

PAIRED_RECORDS_BYTES = limits.FRAME_BYTES - limits.KIB  # of records in `paired`; the rest follows over ssp/1
_ITEM_HEAD_BYTES = 5  # most that CBOR puts before one byte string here


@dataclass(frozen=True, slots=True)
class Admission:
    """The inviter's answer to a proof that held."""

    mac: bytes = field(repr=False)
    records: tuple[bytes, ...]


def create_invite(context: Context, tx: Tx, *, addrs: Sequence[str], ttl_ms: int = limits.INVITE_TTL_MS) -> Invite:
    """Make and keep an invite; MembershipError unless this device is an authority."""
    now_ms = context.env.wall_ms()
    key = own_key(context)
    if ttl_ms <= 0:
        raise UsageError("an invite must live for some time")
    if not _may_admit(context):
        raise MembershipError(_no_authority(context))
    invites.remove_expired(tx, now_ms)
    if invites.open_count(tx, now_ms) >= limits.OPEN_INVITES:
        raise UsageError(f"{limits.OPEN_INVITES} invites are open already: wait until one expires")
    secret = context.env.random_bytes(SECRET_BYTES)
    kept = tuple(addrs[: limits.ADDRESSES_PER_SITE])
    invite = Invite(context.mesh_id, key.site, context.founder, secret, kept, now_ms + ttl_ms)
    invites.add(tx, invite_id(secret), secret, invite.expires_ms)
    return invite


def refusal(context: Context, tx: Tx, named: bytes, public_key: bytes) -> CloseCode | None:
    """None if a joiner with this key may try this invite. Expired, used up, burnt and unknown look alike."""
    site = site_id_of(public_key)
    if context.membership.retired(site) is not None:
        return CloseCode.RETIRED
    invite = invites.get(tx, named)
    if invite is None or not invite.opens_for(public_key, context.env.wall_ms()):
        return CloseCode.NOT_AUTHENTICATED
    # The inviter's own key at another device, or the recovery key: neither can be admitted.
    if site in (own_key(context).site, context.membership.founder) or not _may_admit(context):
        return CloseCode.NOT_AUTHENTICATED
    return None


def settle(context: Context, tx: Tx, named: bytes, proof: Proof, name: str) -> Admission | CloseCode:
    """Check the proof; consume the invite and store the vouch together, or burn one try.

    The key that consumed it gets the answer again, without another vouch: its first may have been lost.
    """
    public_key = proof.ends.joiner_public_key
    refused = refusal(context, tx, named, public_key)
    invite = invites.get(tx, named)
    if refused is not None or invite is None:
        return refused or CloseCode.NOT_AUTHENTICATED
    if not proof.holds(invite.secret):
        invites.burn_try(tx, named)
        context.surface(tx, "pairing-refused", site_id_of(public_key), "a wrong proof was given for an open invite")
        return CloseCode.NOT_AUTHENTICATED
    if invite.consumed_by is None:
        invites.consume(tx, named, public_key)
        issue_vouch(context, tx, public_key, name)
    needed = introduction_of(context, tx, site_id_of(public_key))
    return Admission(inviter_mac(invite.secret, proof.transcript), _that_fit([*needed, *all_records(tx)]))


def _may_admit(context: Context) -> bool:
    issued = tick(context.clock, context.env.wall_ms())
    return context.membership.may_sign(own_key(context).site, issued)


def _no_authority(context: Context) -> str:
    """Why no invite can be made here, and where it can."""
    if context.membership.retired(context.site) is not None:
        return RETIRED_HERE
    able = [named(context.membership, each.site) for each in authorities(context.membership)]
    where = f"make the invite on {', '.join(able[:NAMED_AT_MOST])}" if able else "no device is one at present"
    return f"this device is no authority of the mesh: {where}"


def _that_fit(records: Sequence[bytes]) -> tuple[bytes, ...]:
    """What makes the joiner a member comes first, so that it is there whatever does not fit."""
    kept: list[bytes] = []
    free = PAIRED_RECORDS_BYTES
    for data in dict.fromkeys(records):
        free -= len(data) + _ITEM_HEAD_BYTES
        if free < 0:
            break
        kept.append(data)
    return tuple(kept)

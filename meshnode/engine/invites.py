"""Invites made and used up: each step one transaction on the writer (profile §10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from meshnode import limits
from meshnode.engine.authority import NAMED_AT_MOST, issue_vouch, own_key
from meshnode.engine.membership import all_records, introduction_of
from meshnode.errors import CloseCode, MembershipError, NotFoundError, UsageError
from meshnode.model.hlc import tick
from meshnode.model.invite import SECRET_BYTES, Invite, invite_id
from meshnode.model.issuing import RETIRED_HERE, authorities, named
from meshnode.model.pairing import Proof, inviter_mac
from meshnode.model.site import short_text, site_id_of
from meshnode.store import invites
from meshnode.store.database import Tx
from meshnode.store.invites import StoredInvite

if TYPE_CHECKING:  # of no use to who only reads
    from meshnode.engine.context import Context

PAIRED_RECORDS_BYTES = limits.FRAME_BYTES - limits.KIB  # of records in `paired`; the rest follows over ssp/1
_ITEM_HEAD_BYTES = 5  # most that CBOR puts before one byte string here


@dataclass(frozen=True, slots=True)
class Admission:
    """The inviter's answer to a proof that held."""

    mac: bytes = field(repr=False)
    records: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Waiting:
    """The proof held, and a person has not decided about the joiner yet."""


def create_invite(
    context: Context, tx: Tx, *, addrs: Sequence[str], ttl_ms: int = limits.INVITE_TTL_MS, confirm: bool = False
) -> Invite:
    """Make and keep an invite; MembershipError unless this device is an authority.

    With `confirm` a person says yes to whoever proved to hold it, before that one becomes a member.
    """
    now_ms = context.env.wall_ms()
    key = own_key(context)
    if ttl_ms <= 0:
        raise UsageError("an invite must live for some time")
    if not may_admit(context):
        raise MembershipError(no_authority(context))
    invites.remove_expired(tx, now_ms)
    if invites.open_count(tx, now_ms) >= limits.OPEN_INVITES:
        raise UsageError(f"{limits.OPEN_INVITES} invites are open already: withdraw one")
    secret = context.env.random_bytes(SECRET_BYTES)
    kept = tuple(addrs[: limits.ADDRESSES_PER_SITE])
    invite = Invite(context.mesh_id, key.site, context.founder, secret, kept, now_ms + ttl_ms)
    invites.add(tx, invite_id(secret), secret, invite.expires_ms, confirm=confirm)
    return invite


def withdraw(context: Context, tx: Tx, named: bytes) -> StoredInvite:
    """Take an open invite back: who holds it is refused as with any other that is over, also who asks by it now.

    NotFoundError where it is not open, with what became of it.
    """
    invite = invites.get(tx, named)
    if invite is not None and invite.open(context.env.wall_ms()):
        invites.withdraw(tx, named)
        return invite
    if invite is not None and invite.consumed_by is not None:
        joined = short_text(site_id_of(invite.consumed_by))
        raise NotFoundError(f"the invite {named.hex()} was used by {joined} already: `meshnode retire {joined}`")
    if invite is not None and invite.withdrawn:
        raise NotFoundError(f"the invite {named.hex()} was withdrawn already")
    raise NotFoundError(f"no invite {named.hex()} is open here: `meshnode invite list` shows those that are")


def refusal(context: Context, tx: Tx, named: bytes, public_key: bytes) -> CloseCode | None:
    """None if a joiner with this key may try this invite. Those that are over and unknown ones look alike."""
    cannot = cannot_admit(context, public_key)
    if cannot is CloseCode.RETIRED:
        return cannot
    invite = invites.get(tx, named)
    if invite is None or not invite.opens_for(public_key, context.env.wall_ms()):
        return CloseCode.NOT_AUTHENTICATED
    return cannot


def settle(context: Context, tx: Tx, named: bytes, proof: Proof, name: str) -> Admission | Waiting | CloseCode:
    """Check the proof; consume the invite and store the vouch together, or burn one try.

    The key that consumed it gets the answer again, without another vouch: its first may have been lost. Where a person
    confirms, the first key that proved to hold the invite is the candidate, and gets an answer once they said yes.
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
    if invite.consumed_by is None and invite.confirm:
        if invite.candidate is None:
            invites.ask(tx, named, public_key, name, context.env.wall_ms())
        return Waiting()
    if invite.consumed_by is None:
        consume(context, tx, named, public_key, name)
    return Admission(inviter_mac(invite.secret, proof.transcript), records_for(context, tx, public_key))


def consume(context: Context, tx: Tx, named: bytes, public_key: bytes, name: str) -> None:
    """Use the invite up and vouch for the joiner, in the transaction of the caller."""
    invites.consume(tx, named, public_key)
    admit(context, tx, public_key, name, "with an invite")


def admit(context: Context, tx: Tx, public_key: bytes, name: str, how: str) -> None:
    """Vouch for the site unless it is a member already, which started again after it lost the answer."""
    site = site_id_of(public_key)
    if not context.membership.is_peer(site, public_key):
        issue_vouch(context, tx, public_key, name)
    context.surface(tx, "joined", site, f"{name} ({short_text(site)}) joined {how}")


def cannot_admit(context: Context, public_key: bytes) -> CloseCode | None:
    """Why this device cannot vouch for the site of this key, whoever asks."""
    site = site_id_of(public_key)
    if context.membership.retired(site) is not None:
        return CloseCode.RETIRED
    # The inviter's own key at another device, or the recovery key: neither can be admitted.
    if site in (own_key(context).site, context.membership.founder) or not may_admit(context):
        return CloseCode.NOT_AUTHENTICATED
    return None


def may_admit(context: Context) -> bool:
    """Whether this device may let others in now."""
    issued = tick(context.clock, context.env.wall_ms())
    return context.membership.may_sign(own_key(context).site, issued)


def no_authority(context: Context) -> str:
    """Why nobody can be let in here, and where that can be done."""
    if context.membership.retired(context.site) is not None:
        return RETIRED_HERE
    able = [named(context.membership, each.site) for each in authorities(context.membership)]
    where = f"let devices in on {', '.join(able[:NAMED_AT_MOST])}" if able else "no device is one at present"
    return f"this device is no authority of the mesh: {where}"


def records_for(context: Context, tx: Tx, public_key: bytes) -> tuple[bytes, ...]:
    """The records that a new member begins with, as far as they fit one frame."""
    return _that_fit([*introduction_of(context, tx, site_id_of(public_key)), *all_records(tx)])


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

"""Records shown to somebody who holds none of them yet: at an introduction and after pairing (profile §7, §10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from meshnode.codec.cose import Envelope, check_signature
from meshnode.errors import EnvelopeError
from meshnode.model.membership import Membership, walk
from meshnode.model.record import AUTHORITY, Record, Retirement, parse_record_untrusted, split_record_untrusted


def introduction(membership: Membership, records: Mapping[bytes, Record], site: bytes) -> list[Record]:
    """The records that make `site` a member: its vouch, and for every signer on the way what made it an authority.

    `records` are those that count, by their id. Empty where the site is no member.
    """
    return list(_way_to(membership, records, [site], signing=False).values())


def proof_of_end(membership: Membership, records: Mapping[bytes, Record], site: bytes) -> list[Record]:
    """The retirements of `site` that count, and what makes their signers authorities: enough for the site itself."""
    ends = [
        each
        for each in records.values()
        if isinstance(each.body, Retirement) and each.body.site == site and each.record_id in membership.counted
    ]
    signers = [each.signer for each in ends if each.signer != site]
    return [*_way_to(membership, records, signers, signing=True).values(), *ends]


def _way_to(
    membership: Membership, records: Mapping[bytes, Record], sites: Iterable[bytes], *, signing: bool
) -> dict[bytes, Record]:
    """From the founder to these sites; `signing`: what made themselves authorities too."""
    shown: dict[bytes, Record] = {}
    waiting, seen = list(sites), {membership.founder}  # the founder needs no introduction
    first = set() if signing else set(waiting)
    while waiting:
        member = membership.by_site.get(waiting.pop())
        if member is None or member.site in seen:
            continue
        seen.add(member.site)
        promotions = [each for each, role in zip(member.role_ids, member.roles, strict=True) if role == AUTHORITY]
        for record_id in (member.admitted, *(() if member.site in first else promotions)):
            record = records[record_id]
            shown[record_id] = record
            waiting.append(record.signer)
    return shown


def walk_untrusted(records: Iterable[bytes], *, mesh_id: bytes, founder_key: bytes) -> Membership:
    """The membership that a set of signed records amounts to; what is malformed or forged is left out."""
    waiting = [each for each in map(_read_untrusted, records) if each is not None]
    verified: list[Record] = []
    while True:
        membership = walk(verified, founder_key)
        ready = [each for each in waiting if membership.key_of(each[1].signer) is not None]
        if not ready:
            return membership
        waiting = [each for each in waiting if membership.key_of(each[1].signer) is None]
        verified += [record for envelope, record in ready if _holds(envelope, mesh_id, membership)]


def _read_untrusted(data: bytes) -> tuple[Envelope, Record] | None:
    try:
        envelope = split_record_untrusted(data)
        return envelope, parse_record_untrusted(envelope, data)
    except EnvelopeError:
        return None


def _holds(envelope: Envelope, mesh_id: bytes, membership: Membership) -> bool:
    public_key = membership.key_of(envelope.kid)
    if public_key is None:
        return False
    try:
        check_signature(envelope, mesh_id, public_key)
    except EnvelopeError:
        return False
    return True

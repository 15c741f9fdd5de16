"""Records that this node issues: founding, vouches, roles, retirements (profile §9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from meshnode.codec.digest import blake3_256
from meshnode.engine.membership import add_records, stored_records
from meshnode.errors import MembershipError, UsageError
from meshnode.limits import HONOURED_RECORDS, LABEL_BYTES
from meshnode.model.hlc import Hlc, tick
from meshnode.model.issuing import COMPANY_ENDS, RETIRED_HERE, Issued, named, objection, who_could
from meshnode.model.member import Member
from meshnode.model.membership import walk
from meshnode.model.record import (
    AUTHORITY,
    Retirement,
    Role,
    Vouch,
    parse_record_untrusted,
    seal_record,
    split_record_untrusted,
)
from meshnode.model.site import SiteKey, site_id_of
from meshnode.store.database import Tx

if TYPE_CHECKING:  # of no use to who only reads
    from meshnode.engine.context import Context

NAMED_AT_MOST: Final = 5  # authorities that one message names


def found_mesh(context: Context, tx: Tx, recovery: SiteKey, name: str) -> None:
    """The recovery key admits this device as the first one and makes it an authority; then it is not needed here."""
    device = own_key(context)
    issue_vouch(context, tx, device.public_key, name, signer=recovery)
    issue_role(context, tx, device.site, AUTHORITY, signer=recovery)


def issue_vouch(context: Context, tx: Tx, public_key: bytes, name: str, *, signer: SiteKey | None = None) -> bytes:
    """Admit the site of `public_key`; returns the record. MembershipError where it would be without effect."""
    if len(name.encode()) > LABEL_BYTES:
        raise UsageError(f"a device name has at most {LABEL_BYTES} bytes")
    site = site_id_of(public_key)
    return _issue(context, tx, signer, site, lambda issued: Vouch(site, public_key, name, issued))


def issue_role(context: Context, tx: Tx, site: bytes, role: str, *, signer: SiteKey | None = None) -> bytes:
    """Give `site` a role for HLCs above the record's."""
    return _issue(context, tx, signer, site, lambda issued: Role(site, role, issued))


def issue_retirement(
    context: Context,
    tx: Tx,
    site: bytes,
    *,
    cutoff: Hlc | None = None,
    honours: Iterable[bytes] | None = None,
    signer: SiteKey | None = None,
    alone: bool = False,
) -> bytes:
    """End `site` at `cutoff`, by default now; of its records those in `honours` stay valid, by default `honoured`.

    With `alone` MembershipError where others would be out with it: what they wrote would be taken back everywhere.
    """

    def body_at(issued: Hlc) -> Retirement:
        end = issued if cutoff is None else cutoff
        kept = honoured(context, tx, site, end) if honours is None else honours
        return Retirement(site, end, tuple(sorted(kept)), issued)

    return _issue(context, tx, signer, site, body_at, alone=alone)


def ended_with(context: Context, tx: Tx, data: bytes) -> list[Member]:
    """Members that are none any more once this record counts, as far as they are not retired (profile §9)."""
    after = walk([*stored_records(tx), parse_record_untrusted(split_record_untrusted(data), data)], context.founder)
    return [each for each in context.membership.members() if each.cutoff is None and each.site not in after.by_site]


def refuse_leaving(context: Context) -> None:
    """Raise MembershipError where this device may not retire itself: it is retired, or a senior has to do it."""
    with context.transaction():
        site = own_key(context).site
        issued = next_issued(context, site, site)
        _refuse(context, site, Retirement(site, issued, (), issued))


def honoured(context: Context, tx: Tx, site: bytes, cutoff: Hlc) -> list[bytes]:
    """The records of `site` that count here up to `cutoff`: those that came first, as many as a record holds.

    A stolen authority that signs thousands cannot be kept by that: what it flooded came after what it signed before.
    """
    counted = context.membership.counted
    kept = [each for each in stored_records(tx) if each.signer == site and each.record_id in counted]
    return [each.record_id for each in kept if each.issued <= cutoff][:HONOURED_RECORDS]


def own_key(context: Context) -> SiteKey:
    """This device's site key; a read-only tool has none."""
    if context.key is None:
        raise UsageError("this device's site key is not loaded: nothing can be signed")
    return context.key


def next_issued(context: Context, signer: bytes, subject: bytes) -> Hlc:
    """Tick the HLC above every `issued` of the counting records about the issuer and about the subject (profile §9)."""
    membership = context.membership
    last = max(context.clock, membership.latest_about(signer), membership.latest_about(subject))
    issued = tick(last, context.env.wall_ms())
    context.clock = issued  # saved with this transaction
    return issued


def _issue(
    context: Context,
    tx: Tx,
    signer: SiteKey | None,
    subject: bytes,
    body_at: Callable[[Hlc], Issued],
    *,
    alone: bool = False,
) -> bytes:
    """Sign and keep one record; MembershipError, and nothing is signed, where it would be without effect."""
    key = signer if signer is not None else own_key(context)
    if signer is not None and context.membership.retired(context.site) is not None:
        raise MembershipError(f"nothing was signed, since nobody would hear of it: {RETIRED_HERE}")
    body = body_at(next_issued(context, key.site, subject))
    _refuse(context, key.site, body)
    data = seal_record(key, context.mesh_id, body)
    if alone:
        _refuse_company(context, tx, data)
    add_records(context, tx, [data], peer=None)
    if blake3_256(data) not in context.membership.counted:
        raise MembershipError(f"nothing was kept: a record by {named(context.membership, key.site)} would not count")
    return data


def _refuse(context: Context, signer: bytes, body: Issued) -> None:
    why = objection(context.membership, signer, body)
    if why is not None:
        raise MembershipError(f"nothing was signed: {why}{_instead(context, body)}")


def _refuse_company(context: Context, tx: Tx, data: bytes) -> None:
    ended = ended_with(context, tx, data)
    if ended:
        who = ", ".join(named(context.membership, each.site) for each in ended[:NAMED_AT_MOST])
        more = f" and {len(ended) - NAMED_AT_MOST} others" if len(ended) > NAMED_AT_MOST else ""
        raise MembershipError(
            f"nothing was signed: with it {who}{more} would be out too, having been let in by it alone and after that "
            "time, and what they wrote would be removed on every device. `meshnode vouch SITE`, by another authority "
            f"or with --recovery FILE, keeps one in; {COMPANY_ENDS}"
        )


def _instead(context: Context, body: Issued) -> str:
    """Who could sign it; the last word of an error."""
    membership = context.membership
    able = [named(membership, each.site) for each in who_could(membership, body)][:NAMED_AT_MOST]
    if objection(membership, membership.founder, body) is None:
        able.append("the recovery key (--recovery FILE)")
    return f"; it can be done by {', '.join(able)}" if able else ""

"""Whether a record that is about to be signed would have effect, and who else could sign it (profile §9). Pure."""

from __future__ import annotations

from typing import Final, TypeAlias

from meshnode.model.member import Member
from meshnode.model.membership import Membership
from meshnode.model.record import AUTHORITY, Retirement, Role, Vouch
from meshnode.model.site import short_text, site_id_of

Issued: TypeAlias = Vouch | Role | Retirement

RETIRED_HERE: Final = (
    "this device was retired from the mesh: what it holds can be read, nothing can be written; it comes back as a new "
    "device, with its rows, by `meshnode identity renew INVITE`"
)
"""What the person at a retired device is told."""
NO_MEMBER_HERE: Final = (
    "this device is no member of the mesh any more, since who let it in was retired: what it writes counts nowhere; "
    "`meshnode vouch SITE` on an authority lets it in again"
)
"""And at one that nobody's record admits any more."""
COMPANY_ENDS: Final = "--and-whom-it-let-in ends them with it"
"""The last words to who would retire others too: by them the dashboard knows that it can offer this."""
READER_HERE: Final = "this device is a reader of the mesh: it receives, and writes nothing"


def objection(membership: Membership, signer: bytes, body: Issued) -> str | None:
    """Why a record of `signer` with this body, issued above all that counts, would be without effect; None: it has."""
    if body.site == membership.founder:
        return "no record about the recovery key ever has effect"
    if isinstance(body, Vouch) and site_id_of(body.public_key) != body.site:
        return "the public key is not that of the site"
    subject = membership.by_site.get(body.site)
    if subject is None and not isinstance(body, Vouch):
        return f"{short_text(body.site)} is no member"
    return _of_signer(membership, signer, body) or _of_subject(membership, signer, subject, body)


def who_could(membership: Membership, body: Issued) -> list[Member]:
    """The authorities whose record with this body would have effect, seniors first."""
    return [each for each in authorities(membership) if objection(membership, each.site, body) is None]


def authorities(membership: Membership) -> list[Member]:
    """The devices that may let others in now, seniors first."""
    standing = [
        each
        for each in membership.by_site.values()
        if each.path is not None and each.cutoff is None and each.role == AUTHORITY
    ]
    return sorted(standing, key=lambda each: (each.path, each.site))


def named(membership: Membership, site: bytes) -> str:
    """A site as a message calls it."""
    if site == membership.founder:
        return "the recovery key"
    member = membership.by_site.get(site)
    return short_text(site) if member is None else f"{member.name!r} ({short_text(site)})"


def _of_signer(membership: Membership, signer: bytes, body: Issued) -> str | None:
    if signer == membership.founder:
        return None
    member = membership.by_site.get(signer)
    if member is None:
        return f"{short_text(signer)} is no member"
    if member.cutoff is not None and body.issued > member.cutoff:
        return f"{named(membership, signer)} was retired"
    if isinstance(body, Retirement) and body.site == signer and member.path is None:
        return None  # whoever is no authority may retire itself
    role = member.role_at(body.issued)
    if member.path is not None and role == AUTHORITY:
        return None
    if isinstance(body, Retirement) and body.site == signer:
        return f"{named(membership, signer)} was an authority before, and such a device is retired by a senior one"
    return f"{named(membership, signer)} is no authority but a {role}"


def _of_subject(membership: Membership, signer: bytes, subject: Member | None, body: Issued) -> str | None:
    if subject is None:
        return None
    who = named(membership, subject.site)
    if isinstance(body, Retirement):
        if subject.cutoff is not None and body.cutoff >= subject.cutoff:
            return f"{who} was retired already"
    elif subject.cutoff is not None:
        return f"{who} was retired, and nothing brings a retired site back: it joins as a new one"
    if isinstance(body, Vouch) or signer in (subject.site, membership.founder) or subject.path is None:
        return None
    path = membership.by_site[signer].path
    if path is not None and (path, signer) < (subject.path, subject.site):
        return None
    return f"{who} is senior to {named(membership, signer)}, and nothing that a junior signs touches a senior"

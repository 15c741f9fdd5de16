"""Sites by number and records signed by them at a given HLC."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from meshnode.model.hlc import Hlc
from meshnode.model.record import (
    Body,
    Record,
    Retirement,
    Role,
    Vouch,
    parse_record_untrusted,
    seal_record,
    split_record_untrusted,
)
from meshnode.model.site import SiteKey

MESH_ID = bytes(range(16))


@cache
def site_key(number: int) -> SiteKey:
    """The same key for the same number, everywhere."""
    return SiteKey.from_seed(number.to_bytes(32, "big"))


FOUNDER = site_key(0)


def parsed(data: bytes) -> Record:
    """A record as the walk takes it."""
    return parse_record_untrusted(split_record_untrusted(data), data)


def sealed(signer: SiteKey, body: Body, mesh_id: bytes = MESH_ID) -> bytes:
    """The exact bytes of one record."""
    return seal_record(signer, mesh_id, body)


def vouch(signer: SiteKey, subject: SiteKey, issued: int, name: str = "device") -> bytes:
    """`signer` admits `subject`."""
    return sealed(signer, Vouch(subject.site, subject.public_key, name, Hlc(issued, 0)))


def role(signer: SiteKey, subject: SiteKey, issued: int, named: str = "authority") -> bytes:
    """`signer` gives `subject` a role."""
    return sealed(signer, Role(subject.site, named, Hlc(issued, 0)))


def retirement(signer: SiteKey, subject: SiteKey, issued: int, *, cutoff: int, honours: Iterable[bytes] = ()) -> bytes:
    """`signer` retires `subject`."""
    return sealed(signer, Retirement(subject.site, Hlc(cutoff, 0), tuple(honours), Hlc(issued, 0)))


def founding(device: SiteKey, issued: int = 1) -> list[bytes]:
    """What the recovery key signs at the beginning."""
    return [vouch(FOUNDER, device, issued, "first"), role(FOUNDER, device, issued)]

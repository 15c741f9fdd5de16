"""Pairing without a string: commitments, and the six digits that two people compare (profile §10).

Each side is bound to its nonce before it learns the other's, so that whoever stands between the two cannot steer the
digits of the one link towards those of the other: one guess in a million, for each time that somebody looks.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from enum import Enum

from meshnode.codec import cbor
from meshnode.codec.digest import blake3_256

NO_MESH = bytes(16)  # external_aad of the bindings: the two have no mesh in common yet
NONCE_BYTES = 32  # as much as it takes to hide in a commitment

_COMMITMENT = "meshnode nearby commitment v1"
_CODE = "meshnode nearby code v1"
_DIGITS = 6


class Role(Enum):
    """Which of the two it is."""

    HOST = "host"  # the member that was opened and dialed
    GUEST = "guest"  # the device that wants to become one


@dataclass(frozen=True, slots=True)
class End:
    """One side as TLS proved it."""

    public_key: bytes
    spki: bytes


@dataclass(frozen=True, slots=True)
class NearbyEnds:
    """Both sides of one link, never from frames."""

    host: End
    guest: End

    def of(self, role: Role) -> End:
        """One of the two."""
        return self.host if role is Role.HOST else self.guest


def commitment(ends: NearbyEnds, role: Role, nonce: bytes) -> bytes:
    """What a side says before it reveals `nonce`; of no use to another side, or on another link."""
    own = ends.of(role)
    return blake3_256(cbor.encode([_COMMITMENT, role.value, own.public_key, own.spki, nonce]))


def reveals(ends: NearbyEnds, role: Role, committed: bytes, nonce: bytes) -> bool:
    """Whether this nonce is the one that the side of that role committed to."""
    return hmac.compare_digest(committed, commitment(ends, role, nonce))


def comparison_code(ends: NearbyEnds, nonce_host: bytes, nonce_guest: bytes) -> str:
    """Six digits that are equal on both screens iff both see the same two ends."""
    host, guest = ends.host, ends.guest
    t = cbor.encode([_CODE, host.public_key, host.spki, guest.public_key, guest.spki, nonce_host, nonce_guest])
    return str(int.from_bytes(blake3_256(t)[:8], "big") % 10**_DIGITS).zfill(_DIGITS)

"""The proofs of the pairing ceremony: transcript, the two MACs, the joiner's signature (profile §10)."""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field

from meshnode.codec import cbor, ed25519
from meshnode.codec.digest import derive_key, keyed
from meshnode.model.site import SiteKey

NONCE_BYTES = 16

_LABEL = "meshnode pairing v1"
_KEY_CONTEXT = "meshnode 2026 invite v1"


@dataclass(frozen=True, slots=True)
class Ends:
    """What both sides know of this link before a frame was sent: from the invite and from TLS, never from frames."""

    mesh_id: bytes
    inviter: bytes
    inviter_spki: bytes
    joiner_public_key: bytes
    joiner_spki: bytes


def transcript(ends: Ends, nonce_i: bytes, nonce_j: bytes) -> bytes:
    """T: everything that a proof is bound to, so that none can be used on another link, by another key or twice."""
    return cbor.encode(
        [
            _LABEL,
            ends.mesh_id,
            ends.inviter,
            ends.inviter_spki,
            ends.joiner_public_key,
            ends.joiner_spki,
            nonce_i,
            nonce_j,
        ]
    )


def joiner_mac(secret: bytes, t: bytes) -> bytes:
    """The joiner's proof that it holds the invite's secret."""
    return keyed(derive_key(_KEY_CONTEXT, secret), t + b"joiner")


def inviter_mac(secret: bytes, t: bytes) -> bytes:
    """The inviter's proof that it holds the invite's secret."""
    return keyed(derive_key(_KEY_CONTEXT, secret), t + b"inviter")


def joiner_signature(key: SiteKey, t: bytes) -> bytes:
    """The joiner's proof that it holds the site key that its binding names."""
    return key.sign(t)


@dataclass(frozen=True, slots=True)
class Proof:
    """What the joiner claims in `pair`, with the transcript as the inviter saw it."""

    ends: Ends
    transcript: bytes = field(repr=False)
    public_key: bytes
    mac: bytes = field(repr=False)
    signature: bytes = field(repr=False)

    def holds(self, secret: bytes) -> bool:
        """Whether all three parts are right; every one is always computed, and compared in constant time."""
        same_key = hmac.compare_digest(self.public_key, self.ends.joiner_public_key)
        same_mac = hmac.compare_digest(self.mac, joiner_mac(secret, self.transcript))
        signed = ed25519.verify(self.ends.joiner_public_key, self.transcript, self.signature)
        return same_key & same_mac & signed


def inviter_proof_holds(secret: bytes, t: bytes, mac: bytes) -> bool:
    """Whether `paired` came from who made the invite, on this link."""
    return hmac.compare_digest(mac, inviter_mac(secret, t))

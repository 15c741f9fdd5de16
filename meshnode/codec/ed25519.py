"""Ed25519 as libsodium signs and verifies it: canonical S, no small-order points (profile §3)."""

from __future__ import annotations

import nacl.bindings
import nacl.exceptions

from meshnode.errors import CodecError

SEED_BYTES = 32
PUBLIC_KEY_BYTES = 32
SIGNATURE_BYTES = 64


def secret_key_from_seed(seed: bytes) -> tuple[bytes, bytes]:
    """The public key and the 64-byte secret key (seed and public key) of a 32-byte seed."""
    if len(seed) != SEED_BYTES:
        raise CodecError(f"an Ed25519 seed has {SEED_BYTES} bytes, not {len(seed)}")
    return nacl.bindings.crypto_sign_seed_keypair(seed)


def sign(secret_key: bytes, message: bytes) -> bytes:
    """The deterministic signature of `message` under a 64-byte secret key."""
    return nacl.bindings.crypto_sign(message, secret_key)[:SIGNATURE_BYTES]


def verify(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether `signature` is that of `message` under `public_key`."""
    # libsodium reads fixed sizes from the pointers it is given: lengths are checked before it sees them.
    if len(public_key) != PUBLIC_KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        nacl.bindings.crypto_sign_open(signature + message, public_key)
    except nacl.exceptions.BadSignatureError:
        return False
    return True

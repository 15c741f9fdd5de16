"""Site keys as COSE_Key, in the keyring and on disk (RFC 9052 §7), through pycose.

pycose is slow to import and reading verbs need no key, so it is imported where it is used.
"""

from __future__ import annotations

from typing import Any

from meshnode.codec.ed25519 import PUBLIC_KEY_BYTES, SEED_BYTES, secret_key_from_seed
from meshnode.errors import CodecError

_COSE_KEY_BYTES = 1024  # far more than an Ed25519 key takes; against a key file that is something else


def public_to_cose(public_key: bytes) -> bytes:
    """The COSE_Key of a raw public key."""
    if len(public_key) != PUBLIC_KEY_BYTES:
        raise CodecError(f"an Ed25519 public key has {PUBLIC_KEY_BYTES} bytes, not {len(public_key)}")
    return _encode(public_key, b"")


def private_to_cose(seed: bytes) -> bytes:
    """The COSE_Key of a seed, public part included."""
    public_key, _ = secret_key_from_seed(seed)
    return _encode(public_key, seed)


def public_from_cose(data: bytes) -> bytes:
    """The raw public key in a COSE_Key."""
    key = _decode(data)
    public_key: bytes = key.x
    if len(public_key) != PUBLIC_KEY_BYTES:
        raise CodecError("the COSE_Key holds no Ed25519 public key")
    return public_key


def private_from_cose(data: bytes) -> bytes:
    """The seed in a COSE_Key; refused where it and the public part do not belong together."""
    key = _decode(data)
    seed: bytes = key.d
    if len(seed) != SEED_BYTES:
        raise CodecError("the COSE_Key holds no Ed25519 private key")
    if secret_key_from_seed(seed)[0] != key.x:
        raise CodecError("the COSE_Key's public and private parts do not belong together")
    return seed


def _encode(public_key: bytes, seed: bytes) -> bytes:
    from pycose.keys.curves import Ed25519
    from pycose.keys.okp import OKPKey

    encoded: bytes = OKPKey(crv=Ed25519, x=public_key, d=seed).encode()
    return encoded


def _decode(data: bytes) -> Any:
    from pycose.keys.cosekey import CoseKey
    from pycose.keys.curves import Ed25519
    from pycose.keys.okp import OKPKey

    if len(data) > _COSE_KEY_BYTES:
        raise CodecError(f"a COSE_Key of {len(data)} bytes is not a site key")
    try:
        key: Any = CoseKey.decode(data)
    except Exception as error:  # pycose raises what it meets: KeyError, TypeError, its own and cbor2's errors
        raise CodecError(f"not a COSE_Key: {error}") from None
    if not isinstance(key, OKPKey) or key.crv is not Ed25519 or _encode(key.x, key.d) != data:
        raise CodecError("the COSE_Key is not an Ed25519 key in the form that this node writes")
    return key

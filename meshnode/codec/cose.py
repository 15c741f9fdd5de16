"""Untagged COSE_Sign1 with one byte form, and the one way to open every signed structure (profile §4, SSP/1 §1, §4).

The protected header has exactly an algorithm, a content type and a 16-byte kid, and the whole message is deterministic
CBOR. So everything but the payload's length sits at a fixed place, and comparing bytes replaces a CBOR decoder:
nothing is decoded before a signature was verified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

import msgspec

from meshnode.codec.cbor import head
from meshnode.codec.ed25519 import SIGNATURE_BYTES, verify
from meshnode.errors import BadSignatureError, MalformedError, UnknownSignerError

KID_BYTES: Final = 16

_ARRAY_OF_4: Final = b"\x84"
_EMPTY_MAP: Final = b"\xa0"
_SIGNATURE_HEAD: Final = b"\x58\x40"
_TAIL: Final = len(_SIGNATURE_HEAD) + SIGNATURE_BYTES
_SIGNATURE1: Final = b"\x84\x6aSignature1"


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """The parts of one signed message; nothing in it is decoded, and nothing verified."""

    content_type: str
    kid: bytes
    payload: bytes
    signature: bytes
    protected_item: bytes  # the protected header as an encoded byte string, as Signature1 repeats it
    payload_item: bytes  # the payload as an encoded byte string


def byte_string(data: bytes) -> bytes:
    """`data` as one CBOR byte string."""
    return head(0x40, len(data)) + data


@lru_cache(maxsize=16)
def _prefix(content_type: str) -> bytes:
    """Everything before the kid; a pure function of the few content types there are, hence worth remembering."""
    text = content_type.encode()
    # {1: -8 (EdDSA), 3: content type, 4: kid}
    header = b"\xa3\x01\x27\x03" + head(0x60, len(text)) + text + b"\x04" + head(0x40, KID_BYTES)
    return _ARRAY_OF_4 + head(0x40, len(header) + KID_BYTES) + header


def seal(
    content_type: str, kid: bytes, payload: bytes, *, external_aad: bytes, sign: Callable[[bytes], bytes]
) -> bytes:
    """Sign `payload` and return the message's one byte form."""
    opening = _prefix(content_type) + kid
    payload_item = byte_string(payload)
    signature = sign(_SIGNATURE1 + opening[1:] + byte_string(external_aad) + payload_item)
    return opening + _EMPTY_MAP + payload_item + _SIGNATURE_HEAD + signature


def content_type_of_untrusted(data: bytes, candidates: Iterable[str]) -> str | None:
    """Which of `candidates` the message claims to be, or None."""
    for content_type in candidates:
        if data.startswith(_prefix(content_type)):
            return content_type
    return None


def kid_at(data: bytes, content_type: str) -> bytes:
    """The bytes where a message of this type has its kid; nothing is checked."""
    start = len(_prefix(content_type))
    return data[start : start + KID_BYTES]


def split_untrusted(data: bytes, content_type: str) -> Envelope:
    """Take a message apart at the byte level; MalformedError unless it has the one form."""
    prefix = _prefix(content_type)
    kid_end = len(prefix) + KID_BYTES
    payload_start = kid_end + 1
    # What is left for the payload item tells the payload's length and so the only head that may stand there.
    rest = len(data) - payload_start - _TAIL
    if rest < 1 or not data.startswith(prefix):
        raise MalformedError(f"not a COSE_Sign1 of type {content_type} in its one byte form")
    length = rest - (1 if rest < 25 else 2 if rest < 258 else 3 if rest < 65539 else 5)
    opening = head(0x40, length)
    tail = len(data) - _TAIL
    if (
        data[kid_end] != 0xA0
        or not data.startswith(opening, payload_start)
        or not data.startswith(_SIGNATURE_HEAD, tail)
        or len(opening) + length != rest
    ):
        raise MalformedError(f"not a COSE_Sign1 of type {content_type} in its one byte form")
    return Envelope(
        content_type,
        data[len(prefix) : kid_end],
        data[payload_start + len(opening) : tail],
        data[-SIGNATURE_BYTES:],
        data[1:kid_end],
        data[payload_start:tail],
    )


def signature_input(envelope: Envelope, external_aad: bytes) -> bytes:
    """The Signature1 structure that the signature is over (RFC 9052 §4.4)."""
    return _SIGNATURE1 + envelope.protected_item + byte_string(external_aad) + envelope.payload_item


def check_signature(envelope: Envelope, external_aad: bytes, public_key: bytes) -> None:
    """BadSignatureError unless the envelope was signed by `public_key` for this mesh."""
    if not verify(public_key, signature_input(envelope, external_aad), envelope.signature):
        raise BadSignatureError(f"the signature by {envelope.kid.hex()} does not verify")


def check_envelope(envelope: Envelope, *, external_aad: bytes, key_of: Callable[[bytes], bytes | None]) -> None:
    """UnknownSignerError or BadSignatureError unless a known signer signed the envelope for this mesh."""
    public_key = key_of(envelope.kid)
    if public_key is None:
        raise UnknownSignerError(f"no key is known for site {envelope.kid.hex()}")
    check_signature(envelope, external_aad, public_key)


def open_untrusted(
    data: bytes, content_type: str, *, external_aad: bytes, key_of: Callable[[bytes], bytes | None]
) -> Envelope:
    """Envelope, then kid, then signature: the first that fails raises its own error (profile §6)."""
    envelope = split_untrusted(data, content_type)
    check_envelope(envelope, external_aad=external_aad, key_of=key_of)
    return envelope

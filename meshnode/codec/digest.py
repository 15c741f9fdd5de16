"""BLAKE3, the one hash: ids, digests and derived keys (SSP/1 §3, profile §3, §8, §10)."""

from __future__ import annotations

from collections.abc import Iterable

from blake3 import blake3

DIGEST_BYTES = 32


def blake3_256(data: bytes) -> bytes:
    """The 32-byte BLAKE3 of `data`."""
    return blake3(data).digest()


class Digest:
    """BLAKE3-256 of bytes that come piece by piece."""

    __slots__ = ("_hasher",)

    def __init__(self) -> None:
        self._hasher = blake3()

    def update(self, data: bytes) -> None:
        """Take in some more."""
        self._hasher.update(data)

    def value(self) -> bytes:
        """The 32 bytes of all there were so far."""
        return self._hasher.digest()


def derive_key(context: str, material: bytes, length: int = DIGEST_BYTES) -> bytes:
    """BLAKE3 in key-derivation mode: `context` names the use, so that no two uses share a key."""
    return blake3(material, derive_key_context=context).digest(length)


def keyed(key: bytes, data: bytes) -> bytes:
    """The 32-byte MAC of `data` under a 32-byte `key`."""
    return blake3(data, key=key).digest()


def keyed_numbers(key: bytes, pieces: Iterable[bytes], length: int) -> list[int]:
    """The first bytes of the MAC of each piece, as numbers: for whoever makes millions of them."""
    number = int.from_bytes
    return [number(blake3(piece, key=key).digest(length), "big") for piece in pieces]

"""Bytes of any length under a passphrase, in chunks that are each authenticated in their place (known as STREAM).

A mark, the salt, then chunks of 64 KiB under ChaCha20-Poly1305 (RFC 8439), the nonce of each its number and whether it
is the last: a stream that was cut, extended, or put into another order does not open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import nacl.bindings
import nacl.exceptions

from meshnode.codec.pkcs8 import SALT_BYTES, passphrase_key
from meshnode.errors import CodecError

CHUNK_BYTES = 64 * 1024
_TAG_BYTES = 16
_NUMBER_BYTES = 11  # of the nonce's 12

Read = Callable[[int], bytes]
"""The next so many bytes; fewer at the end alone."""


def seal(mark: bytes, pieces: Iterable[bytes], passphrase: bytes, *, salt: bytes) -> Iterator[bytes]:
    """The sealed form of the pieces one behind the other; `salt` is random and never used again."""
    key = passphrase_key(passphrase, salt)
    yield mark + salt
    waiting, number = bytearray(), 0
    for piece in pieces:
        waiting += piece
        while len(waiting) > CHUNK_BYTES:  # not the last one
            yield _seal_chunk(mark, bytes(waiting[:CHUNK_BYTES]), key, number, last=False)
            del waiting[:CHUNK_BYTES]
            number += 1
    yield _seal_chunk(mark, bytes(waiting), key, number, last=True)


class Opening:
    """Reads a sealed stream again."""

    __slots__ = ("_ahead", "_first", "_key", "_mark", "_number", "_read", "_salt")

    def __init__(self, mark: bytes, read: Read) -> None:
        """CodecError where it is something else."""
        if read(len(mark)) != mark:
            raise CodecError("the mark in front of it is another")
        self._salt = read(SALT_BYTES)
        self._mark, self._read, self._number = mark, read, 0
        self._key = b""
        self._first, self._ahead = read(CHUNK_BYTES + _TAG_BYTES), read(CHUNK_BYTES + _TAG_BYTES)

    def first(self, passphrase: bytes) -> bytes | None:
        """The first chunk; None under another passphrase, or where the first chunk is damaged."""
        self._key = passphrase_key(passphrase, self._salt)
        try:
            return self._open(self._first, last=not self._ahead)
        except CodecError:
            return None

    def rest(self) -> Iterator[bytes]:
        """The other chunks. CodecError where one is damaged, missing or out of its place."""
        while self._ahead:
            chunk, self._ahead = self._ahead, self._read(CHUNK_BYTES + _TAG_BYTES)
            yield self._open(chunk, last=not self._ahead)

    def _open(self, chunk: bytes, *, last: bool) -> bytes:
        try:
            plain: bytes = nacl.bindings.crypto_aead_chacha20poly1305_ietf_decrypt(
                chunk, self._mark, _nonce(self._number, last=last), self._key
            )
        except (nacl.exceptions.CryptoError, ValueError) as error:
            raise CodecError(f"damaged, or cut short, {self._number} chunks of {CHUNK_BYTES} bytes in") from error
        self._number += 1
        return plain


def _seal_chunk(mark: bytes, chunk: bytes, key: bytes, number: int, *, last: bool) -> bytes:
    sealed: bytes = nacl.bindings.crypto_aead_chacha20poly1305_ietf_encrypt(chunk, mark, _nonce(number, last=last), key)
    return sealed


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(_NUMBER_BYTES, "big") + bytes([last])

"""Feature `deflate`: the events of a batch as raw DEFLATE of their CBOR array (profile §8)."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

from meshnode.codec import cbor
from meshnode.errors import CloseCode, ProtocolError
from meshnode.limits import DEFLATE_FROM_BYTES, DEFLATED_BYTES

_LEVEL: Final = 1  # shrinks similar events about four times; more costs time and gains little
_HEAD: Final = 8  # bytes that the key and the byte string's own head may be longer than those of the array


def deflated_events(events: Sequence[bytes]) -> bytes | None:
    """These events deflated, None where that would not make their frame smaller."""
    if sum(map(len, events)) < DEFLATE_FROM_BYTES:
        return None
    plain = cbor.encode(list(events))
    deflater = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = deflater.compress(plain) + deflater.flush()
    return packed if len(packed) + _HEAD < len(plain) else None


def inflate_untrusted(packed: bytes) -> bytes:
    """What is in one whole DEFLATE stream, within its bound."""
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        unpacked = inflater.decompress(packed, DEFLATED_BYTES + 1)
    except zlib.error as error:
        raise ProtocolError(f"deflated does not inflate: {error}") from None
    if len(unpacked) > DEFLATED_BYTES:
        raise ProtocolError(f"deflated unpacks to more than {DEFLATED_BYTES} bytes", CloseCode.LIMIT)
    if not inflater.eof or inflater.unused_data:
        raise ProtocolError("deflated is not one whole DEFLATE stream")
    return unpacked

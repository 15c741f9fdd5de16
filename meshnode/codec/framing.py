"""Length-prefixed frames on a stream: four bytes, big-endian, then that many bytes of CBOR (profile §7)."""

from __future__ import annotations

from meshnode.errors import CloseCode, ProtocolError
from meshnode.limits import FRAME_BYTES

PREFIX_BYTES = 4


def frame(cbor: bytes) -> bytes:
    """What the stream carries for one frame."""
    if len(cbor) > FRAME_BYTES:
        raise ProtocolError(f"a frame of {len(cbor)} bytes is larger than {FRAME_BYTES}", CloseCode.LIMIT)
    return len(cbor).to_bytes(PREFIX_BYTES, "big") + cbor


class FrameReader:
    """Cuts a peer's byte stream into frames; holds at most what was received of one unfinished frame."""

    __slots__ = ("_buffer", "_limit")

    def __init__(self, limit: int = FRAME_BYTES) -> None:
        self._buffer = bytearray()
        self._limit = limit

    def set_limit(self, limit: int) -> None:
        """Bound the frames that come from here on (the hello is smaller than what follows, profile §12)."""
        self._limit = limit

    @property
    def pending_bytes(self) -> int:
        """Bytes received of a frame that is not complete yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """Every frame that `data` completes, in order; after an error the stream is of no further use."""
        self._buffer += data
        frames: list[bytes] = []
        start = 0
        available = len(self._buffer)
        while available - start >= PREFIX_BYTES:
            body = start + PREFIX_BYTES
            length = int.from_bytes(self._buffer[start:body], "big")
            if length > self._limit:
                raise ProtocolError(f"a frame of {length} bytes is larger than {self._limit}", CloseCode.LIMIT)
            if available - body < length:
                break
            frames.append(bytes(self._buffer[body : body + length]))
            start = body + length
        if start:
            del self._buffer[:start]
        return frames

"""Frames and their bytes on all links of a node, by kind (profile §8)."""

from __future__ import annotations

from typing import Final

from meshnode.codec.framing import PREFIX_BYTES
from meshnode.model.metering import OTHER, Counts

RECEIVED: Final = "received"
SENT: Final = "sent"
_CONTROL: Final = ("hello", "introduce", "ack", "nak", "watermarks", "links", "request", "bye")
_EVENTS: Final = ("open", "batch", "live", "offer", "records", "answered")
KINDS: Final = frozenset((*_CONTROL, *_EVENTS))
_AT = 3  # of a frame's CBOR: behind the head of the map and the key "t", which is the first of them in every frame


class FrameCounts:
    """One per node; every session counts in it, on the event loop."""

    __slots__ = ("bytes", "frames")

    def __init__(self) -> None:
        self.frames = Counts()
        self.bytes = Counts()

    def sent(self, data: bytes) -> None:
        """One frame as it goes over a stream, its length before it."""
        self._count(SENT, data, PREFIX_BYTES)

    def received(self, cbor: bytes) -> None:
        """One frame that was decoded."""
        self._count(RECEIVED, cbor, 0)

    def _count(self, direction: str, data: bytes, at: int) -> None:
        kind = kind_of(data, at)
        self.frames.add(direction, kind)
        self.bytes.add(direction, kind, number=len(data) - at)


def kind_of(data: bytes, at: int = 0) -> str:
    """The `t` of a deterministic frame, without decoding it."""
    at += _AT
    text = data[at + 1 : at + 1 + (data[at] & 0x1F)].decode("ascii", "replace") if len(data) > at else ""
    return text if text in KINDS else OTHER

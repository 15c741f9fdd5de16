"""The one stream of a pairing ceremony, as frames that are awaited one by one (profile §10)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from meshnode.codec.framing import FrameReader, frame
from meshnode.errors import CloseCode, ProtocolError
from meshnode.net.endpoint_ports import Ending


class PairingLink(Protocol):
    """What the ceremony needs of an authenticated link (`net.link.Link`)."""

    site: bytes
    public_key: bytes
    spki: bytes
    own_spki: bytes
    ending: Ending | None
    on_control: Callable[[bytes], None]
    on_closed: Callable[[CloseCode | None, str, bool], None]

    def send_control(self, data: bytes) -> None:
        """Write to the one stream of the ceremony."""

    def close(self, code: CloseCode, reason: str) -> None:
        """End the link with an application close code."""


class LinkClosedError(Exception):
    """The other side or the network ended the link."""

    def __init__(self, code: CloseCode | None, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class CeremonyFrames:
    """The frames of a link's control stream, awaited one by one: of at most `limit` bytes each, and at most `most`."""

    def __init__(self, link: PairingLink, limit: int, most: int) -> None:
        self._reader = FrameReader(limit)
        self._queue: asyncio.Queue[bytes | Exception] = asyncio.Queue()
        self._most = most
        self._taken = 0
        self._link = link
        link.on_closed = self._closed
        link.on_control = self._received_untrusted
        if link.ending is not None:
            self._closed(link.ending.code, link.ending.reason, link.ending.local)

    def send(self, cbor: bytes) -> None:
        """One frame to the other side."""
        self._link.send_control(frame(cbor))

    async def next(self) -> bytes:
        """The next frame; LinkClosedError where there is none, ProtocolError where it is none."""
        item = await self._queue.get()
        if isinstance(item, Exception):
            raise item
        return item

    def _received_untrusted(self, data: bytes) -> None:
        try:
            for cbor in self._reader.feed(data):
                self._taken += 1
                if self._taken > self._most:
                    raise ProtocolError("more frames than the ceremony has")
                self._queue.put_nowait(cbor)
        except ProtocolError as error:
            self._link.on_control = lambda _data: None
            self._queue.put_nowait(error)

    def _closed(self, code: CloseCode | None, reason: str, _local: bool) -> None:
        self._queue.put_nowait(LinkClosedError(code, reason))

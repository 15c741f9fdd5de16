"""One HTTP request over the control address: h11 on asyncio streams, so that a wait can be cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import h11

from meshnode.control.address import ControlAddress
from meshnode.errors import TransportError

READ_BYTES = 64 * 1024  # bytes asked of the socket at once
LOST = "the node went away while it was asked"


class Exchange:
    """A connection that carries one request and its answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str | None) -> None:
        self._reader = reader
        self._writer = writer
        self._token = token
        self._http = h11.Connection(h11.CLIENT)

    @classmethod
    async def open(cls, address: ControlAddress) -> Exchange | None:
        """Connect; None where nobody listens (any more)."""
        try:
            if address.path is not None:
                reader, writer = await asyncio.open_unix_connection(str(address.path))
            else:
                reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
        except OSError:
            return None
        return cls(reader, writer, address.token)

    async def ask(self, target: str, body: bytes) -> int:
        """Send the request; returns the answer's status once its head is here."""
        headers = [("Host", "meshnode"), ("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        if self._token is not None:
            headers.append(("Authorization", f"Bearer {self._token}"))
        try:
            self._send(h11.Request(method="POST", target=target, headers=headers))
            self._send(h11.Data(data=body))
            self._send(h11.EndOfMessage())
            await self._writer.drain()
        except OSError as error:
            raise TransportError(LOST) from error
        event = await self._event()
        if not isinstance(event, h11.Response):
            raise TransportError(LOST)
        return event.status_code

    async def chunks(self) -> AsyncIterator[bytes]:
        """The answer's body as it comes."""
        while isinstance(event := await self._event(), h11.Data):
            yield bytes(event.data)

    async def body(self) -> bytes:
        """The whole body."""
        return b"".join([chunk async for chunk in self.chunks()])

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            return  # the other side was faster

    def _send(self, event: h11.Request | h11.Data | h11.EndOfMessage) -> None:
        self._writer.write(self._http.send(event) or b"")

    async def _event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(await self._reader.read(READ_BYTES))
        except (OSError, h11.ProtocolError) as error:
            raise TransportError(LOST) from error
        return event

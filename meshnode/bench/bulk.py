"""One end of a bulk stream: `python -m meshnode.bench.bulk bare|own serve|dial SECONDS PORT`.

`bare` is aioquic's own client and server at their default settings; `own` is this node's endpoint. Who serves prints
its port, then the megabytes a second between the first and the last byte. Both keep a few megabytes under way.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import serve
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import QuicEvent, StreamDataReceived
from cryptography.hazmat.primitives.asymmetric import ed25519

from meshnode.model.site import SiteKey
from meshnode.net.endpoint import Admission, Endpoint, EndpointIdentity, Link
from meshnode.net.identity import self_signed
from meshnode.node.storage import wall_ms

HOST: Final = "127.0.0.1"
CHUNK: Final = os.urandom(64 * 1024)
ACK_BYTES: Final = 1 << 20  # received, until that is told
UNDER_WAY_BYTES: Final = 4 << 20
_ALPN: Final = "bulk"
_MESH: Final = bytes(16)
_KEYS: Final = {"serve": SiteKey.from_seed(bytes(31) + b"s"), "dial": SiteKey.from_seed(bytes(31) + b"d")}
_TOTAL: Final = 8  # bytes of a number on the wire


@dataclass(slots=True)
class Received:
    """What came of a stream, and when."""

    bytes: int = 0
    begun: float = 0.0
    ended: float = 0.0

    def add(self, size: int) -> None:
        """Some more."""
        self.ended = time.perf_counter()
        self.begun = self.begun or self.ended
        self.bytes += size

    def mb_per_s(self) -> float:
        """Megabytes of 10^6 bytes a second."""
        return self.bytes / 1e6 / max(self.ended - self.begun, 1e-9)


OnLink = Callable[[Link], None]


class BareServer(QuicConnectionProtocol):
    """Counts what comes, and tells the other end after each ACK_BYTES."""

    received: Received
    over: asyncio.Event
    _told = 0

    def quic_event_received(self, event: QuicEvent) -> None:
        """As aioquic calls it."""
        if not isinstance(event, StreamDataReceived):
            return
        self.received.add(len(event.data))
        if event.end_stream or self.received.bytes - self._told >= ACK_BYTES:
            self._told = self.received.bytes
            self._quic.send_stream_data(event.stream_id, self._told.to_bytes(_TOTAL, "big"))
            self.transmit()
        if event.end_stream:
            self.over.set()


async def _serve_bare() -> None:
    configuration = QuicConfiguration(is_client=False, alpn_protocols=[_ALPN])
    configuration.private_key = ed25519.Ed25519PrivateKey.generate()
    configuration.certificate = self_signed(configuration.private_key, b"")
    received, over = Received(), asyncio.Event()

    def protocol(*arguments: object, **named: object) -> BareServer:
        made = BareServer(*arguments, **named)  # type: ignore[arg-type]
        made.received, made.over = received, over
        return made

    port = int(sys.argv[4])
    server = await serve(HOST, port, configuration=configuration, create_protocol=protocol)
    print(port, flush=True)
    await over.wait()
    server.close()
    print(received.mb_per_s(), flush=True)


async def _dial_bare(seconds: float, port: int) -> None:
    configuration = QuicConfiguration(is_client=True, alpn_protocols=[_ALPN], verify_mode=ssl.CERT_NONE)
    async with connect(HOST, port, configuration=configuration) as client:
        reader, writer = await client.create_stream()
        sent = told = 0
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            writer.write(CHUNK)
            sent += len(CHUNK)
            while sent - told > UNDER_WAY_BYTES:
                told = int.from_bytes(await reader.readexactly(_TOTAL), "big")
        writer.write_eof()
        while told < sent:  # what was not acknowledged would be lost with the connection
            told = int.from_bytes(await reader.readexactly(_TOTAL), "big")


async def _serve_own() -> None:
    received, total, over = Received(), bytearray(), asyncio.Event()

    def look() -> None:
        if len(total) == _TOTAL and received.bytes >= int.from_bytes(total, "big"):
            over.set()

    def on_link(link: Link) -> None:
        def events(data: bytes) -> None:
            received.add(len(data))
            look()

        def control(data: bytes) -> None:
            total.extend(data)
            look()

        link.on_events, link.on_control = events, control

    endpoint = await _endpoint("serve", int(sys.argv[4]), on_link)
    print(endpoint.port, flush=True)
    await over.wait()
    print(received.mb_per_s(), flush=True)
    await endpoint.close()


async def _dial_own(seconds: float, port: int) -> None:
    endpoint = await _endpoint("dial", 0, lambda _link: None)
    link = await endpoint.dial(HOST, port, expect_site=_KEYS["serve"].site)
    sent, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        link.send_events(CHUNK)
        sent += len(CHUNK)
        await link.drained(UNDER_WAY_BYTES)
    link.send_control(sent.to_bytes(_TOTAL, "big"))
    await link.drained(0)
    await endpoint.close()


async def _endpoint(who: str, port: int, on_link: OnLink) -> Endpoint:
    return await Endpoint.create(
        HOST,
        port,
        identity=EndpointIdentity.create(_MESH, _KEYS[who], wall_ms()),
        admit=lambda _site, _key, _alpn: Admission.MEMBER,
        on_link=on_link,
        on_notice=lambda _kind, _site, _text: None,
    )


def main() -> None:
    """One end of one stream."""
    kind, side, seconds, port = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
    if side == "serve":
        asyncio.run(_serve_bare() if kind == "bare" else _serve_own())
    else:
        asyncio.run(_dial_bare(seconds, port) if kind == "bare" else _dial_own(seconds, port))


if __name__ == "__main__":
    main()

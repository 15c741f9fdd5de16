"""The transport of an independent peer: bare aioquic with certificates and mutual TLS of its own (profile §7)."""

from __future__ import annotations

import asyncio
import datetime
import itertools
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aioquic.quic import events as quic_events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from support.foreign_bytes import BINDING, Frame, Site, digest, now_ms, opened, strictly

PATIENCE_S = 8.0  # seconds until a test that waits has failed
BINDING_OID = x509.ObjectIdentifier("2.25.288181926021832004010977585273114422337")


# --- certificates


@dataclass
class Certificate:
    """A certificate and its key, the binding inside."""

    key: Any
    certificate: x509.Certificate

    @property
    def spki(self) -> bytes:
        """Digest of the SubjectPublicKeyInfo."""
        return spki_of(self.certificate)


def spki_of(certificate: x509.Certificate) -> bytes:
    """Digest of a certificate's SubjectPublicKeyInfo."""
    return digest(certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def certificate_for(
    site: Site, mesh: bytes, *, ed25519: bool = False, binding: bytes | str | None = "own", **changes: Any
) -> Certificate:
    """A fresh TLS identity (profile §7); `binding` replaces the extension's value, None leaves the extension out."""
    key: Any = Ed25519PrivateKey.generate() if ed25519 else ec.generate_private_key(ec.SECP256R1())
    spki = digest(key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
    if binding == "own":
        payload = {"transport": "quic", "spki": spki, "public_key": site.public_key, "issued": now_ms()}
        binding = site.seal(mesh, BINDING, payload | changes)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "foreign")])
    start = datetime.datetime(1999, 1, 1, tzinfo=datetime.UTC)  # dates are not compared
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=1))
    )
    if isinstance(binding, bytes):
        builder = builder.add_extension(x509.UnrecognizedExtension(BINDING_OID, binding), critical=False)
    from cryptography.hazmat.primitives import hashes

    return Certificate(key, builder.sign(key, None if ed25519 else hashes.SHA256()))


def bound_site(certificate: x509.Certificate, mesh: bytes) -> tuple[bytes, bytes]:
    """(site, public key) of a peer's certificate, its binding verified."""
    extension = certificate.extensions.get_extension_for_oid(BINDING_OID)
    assert not extension.critical
    data = extension.value.value  # type: ignore[attr-defined]
    public_key = strictly(strictly(data)[2])["public_key"]
    content_type, site, payload = opened(mesh, data, lambda signer: public_key)
    assert content_type == BINDING
    assert payload.keys() == {"transport", "spki", "public_key", "issued"}
    assert payload["transport"] == "quic"
    assert payload["spki"] == spki_of(certificate)
    return site, public_key


# --- one QUIC connection


class Ended(Exception):
    """The connection ended while something was waited for."""


class _Mutual(QuicConnection):
    """Asks for the client's certificate, which aioquic has no public way to do."""

    def _initialize(self, peer_cid: bytes) -> None:
        super()._initialize(peer_cid)
        if not self.configuration.is_client:
            self.tls._request_client_certificate = True


class Wire:
    """One connection and the bytes on its streams; waiting is for news, never for time."""

    def __init__(self, quic: QuicConnection, send: Callable[[bytes, Any], None]) -> None:
        self.quic = quic
        self.received: dict[int, bytearray] = {}
        self.fins: set[int] = set()
        self.ended: quic_events.ConnectionTerminated | None = None
        self.connected = False
        self.alpn: str | None = None
        self.pongs: set[int] = set()
        self.deaf = False
        self._send = send
        self._timer: asyncio.TimerHandle | None = None
        self._news = asyncio.Event()

    def datagram(self, data: bytes, address: Any) -> None:
        """Take a datagram, unless this peer plays dead."""
        if self.deaf:
            return
        self.quic.receive_datagram(data, address, now=asyncio.get_running_loop().time())
        self.pump()

    def pump(self) -> None:
        """Hand over events, send what is due, set the timer."""
        loop = asyncio.get_running_loop()
        while (event := self.quic.next_event()) is not None:
            self._take(event)
        if self.ended is None and self.quic._close_event is not None:
            self.ended = self.quic._close_event  # known now, announced only when the draining period is over
            self._news.set()
        if not self.deaf:
            for data, address in self.quic.datagrams_to_send(now=loop.time()):
                self._send(data, address)
        if self._timer is not None:
            self._timer.cancel()
        at = self.quic.get_timer()
        self._timer = loop.call_at(at, self._due) if at is not None else None

    def _due(self) -> None:
        self._timer = None
        self.quic.handle_timer(now=asyncio.get_running_loop().time())
        self.pump()

    def _take(self, event: quic_events.QuicEvent) -> None:
        if isinstance(event, quic_events.StreamDataReceived):
            self.received.setdefault(event.stream_id, bytearray()).extend(event.data)
            if event.end_stream:
                self.fins.add(event.stream_id)
        elif isinstance(event, quic_events.HandshakeCompleted):
            self.connected, self.alpn = True, event.alpn_protocol
        elif isinstance(event, quic_events.ConnectionTerminated):
            self.ended = event
        elif isinstance(event, quic_events.PingAcknowledged):
            self.pongs.add(event.uid)
        self._news.set()

    async def until(self, condition: Callable[[], bool], *, despite_end: bool = False) -> None:
        """Wait until the condition holds; Ended where the connection ends first."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                if self.ended is not None and not despite_end:
                    raise Ended(f"code {self.ended.error_code} ({self.ended.reason_phrase})")
                self._news.clear()
                await self._news.wait()

    async def end(self) -> tuple[int, str]:
        """Wait for the end: the application's close code and reason."""
        await self.until(lambda: self.ended is not None, despite_end=True)
        assert self.ended is not None
        assert self.ended.frame_type is None, f"no application close: {self.ended}"
        return int(self.ended.error_code), self.ended.reason_phrase

    def write(self, stream: int, data: bytes, *, fin: bool = False) -> None:
        """Write to a stream."""
        self.quic.send_stream_data(stream, data, fin)
        self.pump()

    def close(self, code: int = 0, reason: str = "") -> None:
        """Close with an application code."""
        self.quic.close(error_code=code, reason_phrase=reason)
        self.pump()

    def vanish(self) -> None:
        """Never say or hear anything again."""
        self.deaf = True
        if self._timer is not None:
            self._timer.cancel()

    async def ping(self) -> None:
        """Wait until the other side acknowledged a PING."""
        uid = next(_PINGS)
        self.quic.send_ping(uid)
        self.pump()
        await self.until(lambda: uid in self.pongs)

    @property
    def peer_certificate(self) -> x509.Certificate:
        """The one certificate of the other side."""
        assert not self.quic.tls._peer_certificate_chain
        certificate = self.quic.tls._peer_certificate
        assert certificate is not None
        return certificate

    def frame(self, stream: int) -> bytes | None:
        """Take the next whole frame off a stream, if it is there."""
        data = self.received.get(stream, bytearray())
        length = int.from_bytes(data[:4], "big")
        if len(data) < 4 or len(data) < 4 + length:
            return None
        assert length <= 2 * 2**20, "a frame of at most 2 MiB"
        taken = bytes(data[4 : 4 + length])
        del data[: 4 + length]
        return taken

    async def heard(self, stream: int) -> Frame:
        """The next frame of a stream, read strictly; waits for it."""
        data: list[bytes | None] = [None]

        def there() -> bool:
            data[0] = self.frame(stream)
            return data[0] is not None

        await self.until(there)
        assert data[0] is not None
        frame: Frame = strictly(data[0])
        return frame

    async def heard_as(self, stream: int, t: str, *names: str) -> Frame:
        """The next frame of a stream, which has to be this one."""
        frame = await self.heard(stream)
        assert frame["t"] == t
        assert frame.keys() == {"t", *names}
        return frame


_PINGS = itertools.count(1)


class _Socket(asyncio.DatagramProtocol):
    """One UDP socket; connections are told apart by remote address."""

    def __init__(self, accept: Callable[[QuicConnection, Wire], None] | None, server: QuicConfiguration | None) -> None:
        self.wires: dict[Any, Wire] = {}
        self.accept, self.server = accept, server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        wire = self.wires.get(address[:2])
        if wire is None or (wire.ended is not None and data[0] & 0xF0 == 0xC0):
            if self.server is None:
                return
            length = data[5]  # of the destination connection id of a long header (RFC 9000 §17.2)
            quic = _Mutual(configuration=self.server, original_destination_connection_id=data[6 : 6 + length])
            wire = self.wires[address[:2]] = Wire(quic, self.transport.sendto)
            assert self.accept is not None
            self.accept(quic, wire)
        wire.datagram(data, address)


def _configuration(
    certificates: Iterable[Certificate], alpn: str, *, is_client: bool, changes: dict[str, Any]
) -> QuicConfiguration:
    configuration = QuicConfiguration(
        is_client=is_client, alpn_protocols=alpn.split(), verify_mode=ssl.CERT_NONE, idle_timeout=60.0, **changes
    )
    shown = list(certificates)
    if shown:
        configuration.certificate, *configuration.certificate_chain = [each.certificate for each in shown]
        configuration.private_key = shown[0].key
    return configuration


@asynccontextmanager
async def connection(
    port: int, *certificates: Certificate, alpn: str = "ssp/1", handshake: bool = True, **changes: Any
) -> AsyncIterator[Wire]:
    """Dial a node on loopback with these certificates, or none."""
    loop = asyncio.get_running_loop()
    configuration = _configuration(certificates, alpn, is_client=True, changes=changes)
    transport, socket = await loop.create_datagram_endpoint(lambda: _Socket(None, None), local_addr=("127.0.0.1", 0))
    quic = _Mutual(configuration=configuration)
    wire = socket.wires["127.0.0.1", port] = Wire(quic, transport.sendto)
    quic.connect(("127.0.0.1", port), now=loop.time())
    wire.pump()
    try:
        if handshake:
            await wire.until(lambda: wire.connected)
        yield wire
    finally:
        wire.close()
        wire.vanish()
        transport.close()


class Listener:
    """A socket that answers; connections queue up in `accepted`."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.accepted: asyncio.Queue[Wire] = asyncio.Queue()

    async def wire(self) -> Wire:
        """The next connection, its handshake complete."""
        async with asyncio.timeout(PATIENCE_S):
            wire = await self.accepted.get()
        await wire.until(lambda: wire.connected)
        return wire


@asynccontextmanager
async def listener(*certificates: Certificate, alpn: str = "ssp/1", port: int = 0) -> AsyncIterator[Listener]:
    """Listen on loopback."""
    loop = asyncio.get_running_loop()
    configuration = _configuration(certificates, alpn, is_client=False, changes={})
    here = Listener(0)
    transport, socket = await loop.create_datagram_endpoint(
        lambda: _Socket(lambda quic, wire: here.accepted.put_nowait(wire), configuration),
        local_addr=("127.0.0.1", port),
    )
    here.port = transport.get_extra_info("sockname")[1]
    try:
        yield here
    finally:
        for wire in socket.wires.values():
            wire.close()
            wire.vanish()
        transport.close()

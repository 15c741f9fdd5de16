"""Real endpoints that record what happens to them, and bare aioquic peers that misbehave on purpose."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import QuicServer
from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.stream import QuicStreamSender
from aioquic.tls import Epoch, SessionTicket, load_pem_private_key, load_pem_x509_certificates

from meshnode.errors import CloseCode
from meshnode.model.site import SiteKey
from meshnode.net.endpoint import ALPN_SYNC, Admission, Endpoint, EndpointConfig, EndpointIdentity, Link

CERTS = Path(__file__).parents[2] / "certs"
MESH = bytes(range(16))
ALICE = SiteKey.from_seed(b"certificate fixtures: site alice")
BOB = SiteKey.from_seed(b"certificate fixtures: site  bob ")
STRANGER = SiteKey.from_seed(b"certificate fixtures: a stranger")
CAROL = SiteKey.from_seed(b"a site that runs a real endpoint")
PATIENCE_S = 20.0  # seconds until a test that waits has failed

# Short where a test waits for the time to pass; the machine may be busy, so not where it waits for an answer.
FAST = EndpointConfig(introduce_s=0.2, duplicate_ping_s=1.0)


def identity(key: SiteKey, mesh: bytes = MESH) -> EndpointIdentity:
    """A fresh TLS identity, as at a start."""
    return EndpointIdentity.create(mesh, key, 1_760_000_000_000)


class Recorder:
    """Lists that can be waited on: no test sleeps for something to happen."""

    def __init__(self) -> None:
        self._changed: list[asyncio.Future[None]] = []

    def changed(self) -> None:
        """Something was recorded."""
        waiting, self._changed = self._changed, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds, looking whenever something was recorded."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                future = asyncio.get_running_loop().create_future()
                self._changed.append(future)
                await future


@dataclass
class Seen:
    """One link and everything that came over it."""

    link: Link
    control: bytearray = field(default_factory=bytearray)
    events: bytearray = field(default_factory=bytearray)
    closed: tuple[CloseCode | None, str, bool] | None = None


@contextmanager
def mute(endpoint: Endpoint) -> Iterator[None]:
    """While it is entered, whatever the endpoint sends is lost."""
    sock = endpoint._socket
    one, many = sock.send, sock.send_all
    sock.send, sock.send_all = lambda data, address: True, lambda flight: []  # type: ignore[method-assign]
    try:
        yield
    finally:
        sock.send, sock.send_all = one, many  # type: ignore[method-assign]


def cut_off(endpoint: Endpoint) -> None:
    """The host falls off the network: nothing comes, nothing goes."""
    endpoint._socket.send_all = lambda flight: []  # type: ignore[method-assign]
    endpoint._socket.send = lambda data, address: True  # type: ignore[method-assign]
    endpoint._socket._on_datagrams = lambda batch: None


class Station(Recorder):
    """An endpoint with members, and what it reported."""

    def __init__(self, members: set[bytes]) -> None:
        super().__init__()
        self.members = members
        self.retired: set[bytes] = set()
        self.pairing = False
        self.links: list[Seen] = []
        self.notices: list[tuple[str, bytes | None, str]] = []
        self.endpoint: Endpoint
        self.take: Callable[[Seen], None] = lambda seen: None

    def admit(self, site: bytes, public_key: bytes, alpn: str) -> Admission:
        """Membership as two sets."""
        if site in self.retired:
            return Admission.RETIRED
        if alpn != ALPN_SYNC:
            return Admission.UNKNOWN if self.pairing else Admission.REFUSED
        return Admission.MEMBER if site in self.members else Admission.UNKNOWN

    def on_link(self, link: Link) -> None:
        """Record everything."""
        seen = Seen(link)

        def closed(code: CloseCode | None, reason: str, local: bool) -> None:
            seen.closed = (code, reason, local)
            self.changed()

        def grown(into: bytearray) -> Callable[[bytes], None]:
            def feed(data: bytes) -> None:
                into.extend(data)
                self.changed()

            return feed

        link.on_control, link.on_events, link.on_closed = grown(seen.control), grown(seen.events), closed
        link.on_live = self.changed
        self.links.append(seen)
        self.take(seen)
        self.changed()

    def on_notice(self, kind: str, site: bytes | None, text: str) -> None:
        """Record a notice."""
        self.notices.append((kind, site, text))
        self.changed()

    async def first(self) -> Seen:
        """The first link, once there is one."""
        await self.until(lambda: bool(self.links))
        return self.links[0]

    def kinds(self) -> list[str]:
        """The kinds of all notices."""
        return [kind for kind, _, _ in self.notices]

    def of(self, link: Link) -> Seen:
        """What was recorded about a link."""
        return next(seen for seen in self.links if seen.link is link)


@asynccontextmanager
async def station(
    key: SiteKey = CAROL,
    *,
    members: tuple[SiteKey, ...] = (ALICE, BOB, CAROL),
    config: EndpointConfig = FAST,
    mesh: bytes = MESH,
    own: EndpointIdentity | None = None,
    **changes: Any,
) -> AsyncIterator[Station]:
    """A listening endpoint on loopback."""
    here = Station({member.site for member in members})
    here.endpoint = await Endpoint.create(
        "127.0.0.1",
        0,
        identity=own or identity(key, mesh),
        admit=here.admit,
        on_link=here.on_link,
        on_notice=here.on_notice,
        config=replace(config, **changes),
    )
    try:
        yield here
    finally:
        await here.endpoint.close()


def bare_configuration(
    fixture: str | None, *, alpn: str = ALPN_SYNC, is_client: bool = True, **changes: Any
) -> QuicConfiguration:
    """aioquic's own configuration with the certificate of a fixture, or with none."""
    configuration = QuicConfiguration(
        is_client=is_client, alpn_protocols=[alpn], verify_mode=ssl.CERT_NONE, idle_timeout=PATIENCE_S, **changes
    )
    if fixture is not None:
        present(configuration, (CERTS / f"{fixture}.pem").read_bytes())
    return configuration


def present(configuration: QuicConfiguration, pem: bytes) -> None:
    """Put certificates and key of a fixture file into a configuration."""
    certificates, _, secret = pem.partition(b"-----BEGIN PRIVATE KEY-----")
    configuration.certificate, *configuration.certificate_chain = load_pem_x509_certificates(certificates)
    configuration.private_key = load_pem_private_key(b"-----BEGIN PRIVATE KEY-----" + secret)


class Bare(QuicConnectionProtocol, Recorder):
    """A peer that is nothing but aioquic."""

    def __init__(self, quic: QuicConnection, stream_handler: object = None) -> None:
        QuicConnectionProtocol.__init__(self, quic)
        Recorder.__init__(self)
        self.events: list[events.QuicEvent] = []
        self.received: dict[int, bytearray] = {}

    def quic_event_received(self, event: events.QuicEvent) -> None:
        """Record it."""
        self.events.append(event)
        if isinstance(event, events.StreamDataReceived):
            self.received.setdefault(event.stream_id, bytearray()).extend(event.data)
        self.changed()

    @property
    def quic(self) -> QuicConnection:
        """The connection, to do with as a test likes."""
        return self._quic

    def find(self, kind: type[Any]) -> Any:
        """The first recorded event of a kind."""
        return next((event for event in self.events if isinstance(event, kind)), None)

    def send(self, stream_id: int, data: bytes, end_stream: bool = False) -> None:
        """Write to any stream."""
        self._quic.send_stream_data(stream_id, data, end_stream)
        self.transmit()

    def write_crypto(self, epoch: Epoch, data: bytes, *, instead: bool = False) -> None:
        """Say something in TLS, `instead` of what is queued."""
        stream = self._quic._crypto_streams[epoch]
        if instead:
            stream.sender = QuicStreamSender(stream_id=None, writable=True)
        stream.sender.write(data)
        self.transmit()

    async def completed(self) -> None:
        """Wait for the handshake, as this side sees it."""
        await self.until(lambda: self.find(events.HandshakeCompleted) is not None)

    async def close_code(self) -> int:
        """The application close code that the other side gave."""
        await self.until(lambda: self.find(events.ConnectionTerminated) is not None)
        ending = self.find(events.ConnectionTerminated)
        assert ending.frame_type is None, f"no application close: {ending}"
        return int(ending.error_code)


@asynccontextmanager
async def bare_client(
    port: int,
    fixture: str | None,
    *,
    configuration: QuicConfiguration | None = None,
    tickets: list[SessionTicket] | None = None,
    transmit: bool = True,
    local: str = "127.0.0.1",
    **changes: Any,
) -> AsyncIterator[Bare]:
    """Dial `port` on loopback with a fixture's certificate; session tickets go into `tickets`."""
    quic = QuicConnection(
        configuration=configuration or bare_configuration(fixture, **changes),
        session_ticket_handler=None if tickets is None else tickets.append,
    )
    loop = asyncio.get_running_loop()
    transport, peer = await loop.create_datagram_endpoint(lambda: Bare(quic), local_addr=(local, 0))
    try:
        peer.connect(("127.0.0.1", port), transmit=transmit)
        yield peer
    finally:
        peer.close()
        transport.close()


class _AskingServer(QuicConnection):
    """A server that asks for a client certificate, made without the code under test."""

    def _initialize(self, peer_cid: bytes) -> None:
        super()._initialize(peer_cid)
        self.tls._request_client_certificate = True


@asynccontextmanager
async def bare_server(
    fixture: str, *, alpn: str = ALPN_SYNC, gives_tickets: bool = False
) -> AsyncIterator[tuple[int, list[Bare]]]:
    """Listen on loopback with a fixture's certificate; yields the port and the accepted peers."""
    accepted: list[Bare] = []
    configuration = bare_configuration(fixture, alpn=alpn, is_client=False)

    def accept(quic: QuicConnection, stream_handler: object = None) -> Bare:
        quic.__class__ = _AskingServer
        accepted.append(Bare(quic))
        return accepted[-1]

    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(
        lambda: QuicServer(
            configuration=configuration,
            create_protocol=accept,
            session_ticket_handler=(lambda ticket: None) if gives_tickets else None,
        ),
        local_addr=("127.0.0.1", 0),
    )
    try:
        yield transport.get_extra_info("sockname")[1], accepted
    finally:
        server.close()

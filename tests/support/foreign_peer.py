"""A second implementation of the profile's peer: written from its text, sharing no code with the node it talks to.

`Site` signs, `Wire` is one QUIC connection, `Link` one `ssp/1` link with the rules of profile §8 held against whatever
arrives, `Foreigner` a peer that remembers its streams between links. Tests drive it step by step.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import itertools
import os
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import cbor2
from aioquic.quic import events as quic_events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from blake3 import blake3
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

PATIENCE_S = 8.0  # seconds until a test that waits has failed
BINDING_OID = x509.ObjectIdentifier("2.25.288181926021832004010977585273114422337")

EVENT = "sovm/ssp-event-v1"
VOUCH = "sovm/ssp-vouch-v1"
ROLE = "sovm/ssp-role-v1"
RETIREMENT = "sovm/ssp-retirement-v1"
BINDING = "sovm/ssp-transport-binding-v1"

Frame = dict[str, Any]
Hlc = tuple[int, int]

# What each frame of profile §8 must carry, no more and no less: (name, check).
_U64 = 2**64


def _is_uint(value: Any) -> bool:
    return type(value) is int and 0 <= value < _U64


def _is_bytes(length: int | None = None) -> Callable[[Any], bool]:
    return lambda value: type(value) is bytes and (length is None or len(value) == length)


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_label(value: Any) -> bool:
    return type(value) is str and len(value.encode()) <= 128


def _is_hlc(value: Any) -> bool:
    return type(value) is list and len(value) == 2 and all(map(_is_uint, value))


def _list_of(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: type(value) is list and all(map(check, value))


def _map_of(key: Callable[[Any], bool], item: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: type(value) is dict and all(key(k) and item(v) for k, v in value.items())


def _exactly(**fields: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: (
        type(value) is dict and value.keys() == fields.keys() and all(check(value[name]) for name, check in fields.items())
    )


_is_epoch = _is_bytes(8)
_is_site = _is_bytes(16)
_is_inbound = _exactly(epoch=_is_epoch, next=_is_uint, digest=lambda value: type(value) is bytes and len(value) in (0, 32))
_is_entry = lambda value: (  # noqa: E731
    type(value) is list
    and len(value) == 5
    and _is_site(value[0])
    and _is_text(value[1])
    and _is_text(value[2])
    and all(map(_is_uint, value[3:]))
)
_is_t = _is_text

SHAPES: dict[str, Callable[[Any], bool]] = {
    "hello": _exactly(
        t=_is_t,
        v=lambda value: value == 1,
        site=_is_site,
        name=_is_label,
        software=_is_label,
        incarnation=_is_bytes(16),
        boot=_is_bytes(8),
        wall=_is_uint,
        hlc=_is_hlc,
        scope=_list_of(_is_text),
        features=_list_of(_is_text),
        inbound=lambda value: value is None or _is_inbound(value),
        max_hlc=_map_of(_is_site, _is_hlc),
    ),
    "ack": _exactly(
        t=_is_t,
        epoch=_is_epoch,
        no=_is_uint,
        digest=_is_bytes(32),
        hlc=_is_hlc,
        rejected=_list_of(_is_uint),
        held=_is_uint,
        dropped=_is_uint,
    ),
    "nak": _exactly(t=_is_t, epoch=_is_epoch, expected=_is_uint, reason=_is_label),
    "watermarks": _exactly(t=_is_t, after=_exactly(epoch=_is_epoch, no=_is_uint), entries=_list_of(_is_entry)),
    "request": lambda value: (
        _exactly(t=_is_t, id=_is_epoch, what=_is_text, schema=_is_text, table=_is_text)(value) and value["what"] == "table"
    )
    or (_exactly(t=_is_t, id=_is_epoch, what=_is_text, site=_is_site)(value) and value["what"] == "site"),
    "bye": _exactly(t=_is_t, code=_is_uint, reason=_is_label),
    "introduce": _exactly(t=_is_t, records=_list_of(_is_bytes())),
    "open": _exactly(t=_is_t, epoch=_is_epoch, next=_is_uint),
    "batch": _exactly(
        t=_is_t, epoch=_is_epoch, no=_is_uint, clock=_map_of(_is_site, _is_uint), events=_list_of(_is_bytes())
    ),
    "records": _exactly(t=_is_t, epoch=_is_epoch, no=_is_uint, records=_list_of(_is_bytes())),
    "answered": _exactly(t=_is_t, epoch=_is_epoch, no=_is_uint, id=_is_epoch),
}
CONTROL = {"introduce", "hello", "ack", "nak", "watermarks", "request", "bye"}


# --- bytes


def encode(value: Any) -> bytes:
    """Deterministic CBOR (profile §2; one key type per map makes cbor2's order the right one)."""
    return cbor2.dumps(value, canonical=True)


def digest(data: bytes) -> bytes:
    """BLAKE3-256."""
    return bytes(blake3(data).digest())


def derive(context: str, material: bytes) -> bytes:
    """BLAKE3 derive_key, 32 bytes."""
    return bytes(blake3(material, derive_key_context=context).digest())


def keyed(key: bytes, data: bytes) -> bytes:
    """Keyed BLAKE3, 32 bytes."""
    return bytes(blake3(data, key=key).digest())


def framed(data: bytes) -> bytes:
    """A frame as the stream carries it."""
    return len(data).to_bytes(4, "big") + data


def now_ms() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000_000


class Site:
    """An Ed25519 site key (profile §3)."""

    def __init__(self, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public_key = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.site = digest(self.public_key)[:16]

    @classmethod
    def from_cose_key(cls, data: bytes) -> Site:
        """The key of a file in a node's home."""
        key = cbor2.loads(data)
        assert (key[1], key[-1]) == (1, 6), "an OKP key on Ed25519"
        return cls(key[-4])

    def sign(self, data: bytes) -> bytes:
        """A signature."""
        return self._key.sign(data)

    def seal(self, mesh: bytes, content_type: str, payload: Any, *, raw: bytes | None = None) -> bytes:
        """An untagged COSE_Sign1 (profile §4, §9); `raw` stands for the payload's bytes."""
        protected = encode({1: -8, 3: content_type, 4: self.site})
        body = raw if raw is not None else encode(payload)
        return encode([protected, {}, body, self.sign(encode(["Signature1", protected, mesh, body]))])

    def event(
        self,
        mesh: bytes,
        key: Any,
        columns: dict[str, Any] | None,
        hlc: Hlc,
        *,
        table: str = "notes",
        schema: str = "main",
        **more: Any,
    ) -> bytes:
        """An event; columns None is a delete."""
        payload = {
            "table_schema": schema,
            "table_name": table,
            "row_key": key,
            "operation": "delete" if columns is None else "upsert",
            "payload": columns,
            "hlc_physical_ms": hlc[0],
            "hlc_logical": hlc[1],
        }
        return self.seal(mesh, EVENT, payload | more)

    def vouch(self, mesh: bytes, whom: Site, issued: Hlc, name: str = "foreigner") -> bytes:
        """A vouch record."""
        payload = {"site": whom.site, "public_key": whom.public_key, "name": name, "issued": list(issued)}
        return self.seal(mesh, VOUCH, payload)

    def role(self, mesh: bytes, whom: Site, role: str, issued: Hlc) -> bytes:
        """A role record."""
        return self.seal(mesh, ROLE, {"site": whom.site, "role": role, "issued": list(issued)})

    def retirement(self, mesh: bytes, whom: Site, cutoff: Hlc, issued: Hlc) -> bytes:
        """A retirement record that honours nothing."""
        payload = {"site": whom.site, "cutoff": list(cutoff), "honours": [], "issued": list(issued)}
        return self.seal(mesh, RETIREMENT, payload)


def opened(mesh: bytes, data: bytes, key_of: Callable[[bytes], bytes]) -> tuple[str, bytes, Frame]:
    """Verify a COSE_Sign1 strictly: (content type, signer, payload)."""
    protected, unprotected, payload, signature = strictly(data)
    header = strictly(protected)
    assert unprotected == {}
    assert header.keys() == {1, 3, 4}
    assert header[1] == -8
    content_type, signer = header[3], header[4]
    public_key = key_of(signer)
    assert digest(public_key)[:16] == signer
    try:
        signed = encode(["Signature1", protected, mesh, payload])
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, signed)
    except InvalidSignature as error:
        raise AssertionError(f"a {content_type} whose signature is wrong") from error
    return content_type, signer, strictly(payload)


def strictly(data: bytes) -> Any:
    """Decode what must be deterministic CBOR."""
    value = cbor2.loads(data)
    assert encode(value) == data, "not deterministic CBOR"
    return value


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
    site: Site, mesh: bytes, *, ed25519: bool = False, binding: bytes | None | str = "own", **changes: Any
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
        is_client=is_client, alpn_protocols=[alpn], verify_mode=ssl.CERT_NONE, idle_timeout=60.0, **changes
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
    transport, socket = await loop.create_datagram_endpoint(
        lambda: _Socket(None, None), local_addr=("127.0.0.1", 0)
    )
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


# --- a peer and its links


@dataclass
class Inbound:
    """What this peer holds of the node's event stream (profile §8, Receiver)."""

    epoch: bytes
    next: int = 1
    digest: bytes = b""

    def claim(self) -> Frame:
        """As `hello.inbound` says it."""
        return {"epoch": self.epoch, "next": self.next, "digest": self.digest}


@dataclass
class Sent:
    """One numbered frame of this peer's own event stream."""

    no: int
    data: bytes

    @property
    def digest(self) -> bytes:
        """Over the frame's CBOR bytes."""
        return digest(self.data)


@dataclass
class Got:
    """One numbered frame of the node's event stream."""

    frame: Frame
    data: bytes

    @property
    def t(self) -> str:
        """Its kind."""
        return str(self.frame["t"])

    @property
    def no(self) -> int:
        """Its number."""
        return int(self.frame["no"])


@dataclass
class Foreigner:
    """One peer with its site key; its mesh, the keys it knows and its streams survive its links."""

    site: Site
    name: str = "foreigner"
    mesh: bytes = b""
    node: bytes = b""  # site id of the node
    founder: bytes = b""  # the founder's public key
    keys: dict[bytes, bytes] = field(default_factory=dict)
    inbound: Inbound | None = None
    epoch: bytes = field(default_factory=lambda: os.urandom(8))
    last: Sent | None = None
    incarnation: bytes = field(default_factory=lambda: os.urandom(16))
    boot: bytes = field(default_factory=lambda: os.urandom(8))
    records: list[bytes] = field(default_factory=list)
    _ticks: Iterable[int] = field(default_factory=lambda: itertools.count(1))

    @classmethod
    def create(cls, name: str = "foreigner") -> Foreigner:
        """One with a key of its own making."""
        return cls(Site(os.urandom(32)), name)

    def hlc(self) -> Hlc:
        """An HLC above those given before."""
        return now_ms(), next(iter(self._ticks))

    def event(self, key: Any, columns: dict[str, Any] | None, hlc: Hlc | None = None, **more: Any) -> bytes:
        """An event by this peer."""
        return self.site.event(self.mesh, key, columns, hlc or self.hlc(), **more)

    def learn(self, record: bytes) -> tuple[str, bytes, Frame]:
        """Verify a record against the keys known so far and keep its news."""
        content_type, signer, payload = opened(self.mesh, record, self.keys.__getitem__)
        assert len(record) <= 16 * 1024
        if content_type == VOUCH:
            assert digest(payload["public_key"])[:16] == payload["site"]
            self.keys[payload["site"]] = payload["public_key"]
        if record not in self.records:
            self.records.append(record)
        return content_type, signer, payload

    def learn_all(self, records: Iterable[bytes]) -> None:
        """Verify records that come in any order: those whose signer is known first."""
        left = list(records)
        while left:
            ready = [record for record in left if strictly(strictly(record)[0])[4] in self.keys]
            assert ready, "every record is by the founder or by somebody vouched for"
            for record in ready:
                self.learn(record)
                left.remove(record)

    def take_invite(self, text: str) -> Frame:
        """Read an invite string (profile §10)."""
        scheme, _, coded = text.partition(":")
        assert scheme == "meshnode-invite"
        assert coded == coded.lower()
        raw = base64.b32decode(coded.upper() + "=" * (-len(coded) % 8))
        content, check = raw[:-4], raw[-4:]
        assert digest(content)[:4] == check
        invite: Frame = strictly(content)
        assert invite.keys() == {"v", "mesh", "site", "founder", "secret", "addrs", "expires"}
        assert invite["v"] == 1
        assert len(invite["secret"]) == 16
        self.mesh, self.node, self.founder = invite["mesh"], invite["site"], invite["founder"]
        self.keys[digest(self.founder)[:16]] = self.founder
        return invite

    def certificate(self, **changes: Any) -> Certificate:
        """A fresh one, as at a start."""
        return certificate_for(self.site, self.mesh, **changes)

    @asynccontextmanager
    async def dial(self, port: int, certificate: Certificate | None = None) -> AsyncIterator[Link]:
        """A link opened by this peer; nothing was said on it yet."""
        async with connection(port, certificate or self.certificate()) as wire:
            site, _ = bound_site(wire.peer_certificate, self.mesh)
            assert site == self.node
            yield Link(self, wire, opened_by_us=True)

    @asynccontextmanager
    async def greeted(self, port: int, **hello: Any) -> AsyncIterator[Link]:
        """A link on which both have said hello."""
        async with self.dial(port) as link:
            link.hello(**hello)
            await link.greeting()
            yield link

    def greeting(self, **changes: Any) -> Frame:
        """This peer's hello."""
        hello = {
            "t": "hello",
            "v": 1,
            "site": self.site.site,
            "name": self.name,
            "software": "foreign 1",
            "incarnation": self.incarnation,
            "boot": self.boot,
            "wall": now_ms(),
            "hlc": [now_ms(), 0],
            "scope": [],
            "features": [],
            "inbound": self.inbound.claim() if self.inbound else None,
            "max_hlc": {},
        }
        return {name: value for name, value in (hello | changes).items() if value is not ...}


class Link:
    """One `ssp/1` link: what the node sends is checked against the profile as it is taken."""

    def __init__(self, peer: Foreigner, wire: Wire, *, opened_by_us: bool) -> None:
        self.peer, self.wire = peer, wire
        self._out, self._in = (2, 3) if opened_by_us else (3, 2)
        self._control: deque[Frame] = deque()
        self._control_data: dict[int, bytes] = {}
        self.log: list[Frame] = []  # every control frame of the node, in order
        self.theirs: Frame = {}  # the node's hello
        self.opened: Frame | None = None  # the node's last `open` on this link
        self._expected = 0

    # --- saying

    def say(self, frame: Frame | bytes) -> bytes:
        """A frame on the control stream."""
        data = frame if isinstance(frame, bytes) else encode(frame)
        self.wire.write(0, framed(data))
        return data

    def hello(self, **changes: Any) -> None:
        """This peer's hello, with changes; `...` leaves a key out."""
        self.say(self.peer.greeting(**changes))

    def show(self, frame: Frame | bytes) -> bytes:
        """A frame on the event stream."""
        data = frame if isinstance(frame, bytes) else encode(frame)
        self.wire.write(self._out, framed(data))
        return data

    def open(self, *, epoch: bytes | None = None, at: int | None = None) -> None:
        """Open the peer's own stream: by default where it stands."""
        if epoch is not None and epoch != self.peer.epoch:
            self.peer.epoch, self.peer.last = epoch, None
        last = self.peer.last.no if self.peer.last else 0
        self.show({"t": "open", "epoch": self.peer.epoch, "next": at if at is not None else last + 1})

    def offer(self, t: str = "batch", *, no: int | None = None, epoch: bytes | None = None, **fields: Any) -> Sent:
        """The next numbered frame, or one with a number of the test's choice."""
        number = no if no is not None else (self.peer.last.no if self.peer.last else 0) + 1
        frame = {"t": t, "epoch": epoch or self.peer.epoch, "no": number, **fields}
        if t == "batch":
            frame.setdefault("clock", {self.peer.site.site: number})
        sent = Sent(number, encode(frame))
        if no is None:
            self.peer.last = sent
        self.show(sent.data)
        return sent

    async def offered(self, *events: bytes, **fields: Any) -> Frame:
        """Offer events and take the ack, which must be that frame's."""
        return await self.acked(self.offer(events=list(events), **fields))

    async def acked(self, sent: Sent) -> Frame:
        """The next ack, which must be that of this frame."""
        ack = await self.control("ack")
        assert (ack["epoch"], ack["no"], ack["digest"]) == (self.peer.epoch, sent.no, sent.digest)
        return ack

    def ack(self, got: Got, **changes: Any) -> bytes:
        """Acknowledge a frame of the node."""
        ack = {
            "t": "ack",
            "epoch": got.frame["epoch"],
            "no": got.no,
            "digest": digest(got.data),
            "hlc": [now_ms(), 0],
            "rejected": [],
            "held": 0,
            "dropped": 0,
        }
        return self.say(ack | changes)

    # --- hearing

    async def greeting(self) -> Frame:
        """The node's hello: its first control frame."""
        await self.control("hello")
        assert self.theirs["site"] == self.peer.node
        return self.theirs

    async def control(self, t: str) -> Frame:
        """The node's next control frame of a kind; those of other kinds on the way stay in `log`."""
        while True:
            frame = await self._control_frame()
            if frame["t"] == t:
                return frame

    async def control_bytes(self, t: str) -> bytes:
        """As `control`, its CBOR bytes."""
        frame = await self.control(t)
        return self._control_data[id(frame)]

    async def _control_frame(self) -> Frame:
        data: list[bytes | None] = [None]

        def there() -> bool:
            data[0] = self.wire.frame(0)
            return data[0] is not None

        await self.wire.until(there)
        assert data[0] is not None
        frame = strictly(data[0])
        assert frame["t"] in CONTROL, f"{frame['t']} on the control stream"
        assert SHAPES[frame["t"]](frame), f"not as profile §8 spells it: {frame}"
        if frame["t"] == "introduce":
            assert not self.log, "an introduce comes once, before hello"
            assert len(data[0]) <= 64 * 1024
        elif not self.theirs:
            assert frame["t"] == "hello", "hello is first"
            assert len(data[0]) <= 64 * 1024
            self.theirs = frame
        else:
            assert frame["t"] != "hello", "hello comes once"
        self.log.append(frame)
        self._control_data[id(frame)] = data[0]
        return frame

    async def event_frame(self) -> Got | None:
        """The node's next frame on its event stream: None is an `open`."""
        data: list[bytes | None] = [None]

        def there() -> bool:
            data[0] = self.wire.frame(self._in)
            return data[0] is not None

        await self.wire.until(there)
        assert data[0] is not None
        frame = strictly(data[0])
        assert frame["t"] not in CONTROL, f"{frame['t']} on the event stream"
        assert SHAPES[frame["t"]](frame), f"not as profile §8 spells it: {frame}"
        if frame["t"] == "open":
            self.opened, self._expected = frame, frame["next"]
            held = self.peer.inbound
            if held is None or held.epoch != frame["epoch"]:
                assert frame["next"] == 1, "numbering starts at 1 in each epoch"
                self.peer.inbound = Inbound(frame["epoch"])
            return None
        assert self.opened is not None, "an open is first"
        assert frame["epoch"] == self.opened["epoch"]
        assert frame["no"] == self._expected, "numbers are contiguous"
        self._expected += 1
        if frame["t"] == "batch":
            self._check_batch(frame)
        return Got(frame, data[0])

    @staticmethod
    def _check_batch(frame: Frame) -> None:
        events = frame["events"]
        assert 1 <= len(events) <= 512
        assert len(events) == 1 or sum(map(len, events)) <= 256 * 1024

    async def opening(self) -> Frame:
        """The node's `open`, which must be its next event frame."""
        assert await self.event_frame() is None
        assert self.opened is not None
        return self.opened

    async def got(self) -> Got:
        """The node's next numbered frame, not acknowledged."""
        while (got := await self.event_frame()) is None:
            pass
        return got

    async def took(self) -> Got:
        """The node's next numbered frame, kept and acknowledged."""
        return self.keep(await self.got())

    def keep(self, got: Got) -> Got:
        """Accept and acknowledge a frame."""
        inbound = self.peer.inbound
        assert inbound is not None
        assert (got.frame["epoch"], got.no) == (inbound.epoch, inbound.next)
        inbound.next, inbound.digest = got.no + 1, digest(got.data)
        self.ack(got)
        return got

    async def took_until(self, t: str) -> list[Got]:
        """Numbered frames up to and with the first of a kind, all acknowledged."""
        taken = [await self.took()]
        while taken[-1].t != t:
            taken.append(await self.took())
        return taken

    async def answered(self, **request: Any) -> list[Got]:
        """Ask, and take everything up to the answer (a barrier on the control stream as well)."""
        request_id = os.urandom(8)
        self.say({"t": "request", "id": request_id, **request})
        taken = [await self.took()]
        while taken[-1].frame.get("id") != request_id:
            taken.append(await self.took())
        return taken

    def events_in(self, frames: Iterable[Got]) -> list[Frame]:
        """The verified payloads of all events in frames, with the signer as `by`."""
        found = []
        for got in frames:
            for event in got.frame.get("events", []):
                content_type, signer, payload = opened(self.peer.mesh, event, self.peer.keys.__getitem__)
                assert content_type == EVENT
                found.append(payload | {"by": signer})
        return found


# --- pairing as the joiner (profile §10)


@dataclass
class Pairing:
    """The joiner's side of one ceremony, step by step."""

    wire: Wire
    peer: Foreigner
    invite: Frame
    certificate: Certificate
    nonce: bytes = field(default_factory=lambda: os.urandom(16))
    theirs: bytes = b""

    def hello(self, **changes: Any) -> None:
        """Step 1."""
        invite_id = derive("meshnode 2026 invite id v1", self.invite["secret"])[:8]
        self._say({"t": "pair-hello", "invite": invite_id, "nonce": self.nonce} | changes)

    async def opened(self) -> bytes:
        """Step 2: the inviter's nonce."""
        frame = await self._hear()
        assert frame.keys() == {"t", "nonce"}
        assert frame["t"] == "pair-open"
        assert len(frame["nonce"]) == 16
        self.theirs = frame["nonce"]
        return self.theirs

    def proof(self, **changes: Any) -> Frame:
        """Step 3, not sent."""
        site = self.peer.site
        return {
            "t": "pair",
            "public_key": site.public_key,
            "name": self.peer.name,
            "mac": keyed(self._key(), self.transcript() + b"joiner"),
            "sig": site.sign(self.transcript()),
        } | changes

    def prove(self, **changes: Any) -> None:
        """Step 3."""
        self._say(self.proof(**changes))

    async def paired(self) -> list[bytes]:
        """Step 4: the inviter's proof verified, its records."""
        frame = await self._hear()
        assert frame.keys() == {"t", "mac", "records", "name"}
        assert frame["t"] == "paired"
        assert frame["mac"] == keyed(self._key(), self.transcript() + b"inviter")
        return list(frame["records"])

    def transcript(self) -> bytes:
        """T of profile §10."""
        return encode(
            [
                "meshnode pairing v1",
                self.invite["mesh"],
                self.invite["site"],
                spki_of(self.wire.peer_certificate),
                self.peer.site.public_key,
                self.certificate.spki,
                self.theirs,
                self.nonce,
            ]
        )

    def _key(self) -> bytes:
        return derive("meshnode 2026 invite v1", self.invite["secret"])

    def _say(self, frame: Frame) -> None:
        self.wire.write(0, framed(encode(frame)))

    async def _hear(self) -> Frame:
        data: list[bytes | None] = [None]

        def there() -> bool:
            data[0] = self.wire.frame(0)
            return data[0] is not None

        await self.wire.until(there)
        assert data[0] is not None
        frame: Frame = strictly(data[0])
        return frame


@asynccontextmanager
async def pairing(peer: Foreigner, port: int, invite: Frame) -> AsyncIterator[Pairing]:
    """A pairing connection on which nothing was said yet."""
    certificate = certificate_for(peer.site, invite["mesh"])
    async with connection(port, certificate, alpn="ssp-pair/1") as wire:
        site, _ = bound_site(wire.peer_certificate, invite["mesh"])
        assert site == invite["site"]
        yield Pairing(wire, peer, invite, certificate)


async def pair(peer: Foreigner, port: int, invite: str) -> None:
    """The whole ceremony: afterwards the peer is a member and knows all records."""
    content = peer.take_invite(invite)
    async with pairing(peer, port, content) as ceremony:
        ceremony.hello()
        await ceremony.opened()
        ceremony.prove()
        peer.learn_all(await ceremony.paired())
        ceremony.wire.close(0)

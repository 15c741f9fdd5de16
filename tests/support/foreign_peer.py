"""An independent peer, written from the profile's text: what it remembers, and its links (profile §8).

`Foreigner` is a peer whose streams survive its links; `Link` one `ssp/1` link that holds whatever arrives against the
rules of profile §8. Tests drive both step by step.
"""

from __future__ import annotations

import base64
import itertools
import os
import zlib
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from support.foreign_bytes import (
    CONTROL,
    EVENT,
    OFFER_SHAPES,
    SHAPES,
    VOUCH,
    Frame,
    Hlc,
    Site,
    digest,
    encode,
    framed,
    now_ms,
    opened,
    short_ids,
    strictly,
)
from support.foreign_wire import Certificate, Wire, bound_site, certificate_for, connection

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
        self.features: set[str] = set()  # what this peer listed
        self.deflated = 0  # batches that came so
        self.lost = False  # between a nak and the frame that it names, others may still be under way

    # --- saying

    def say(self, frame: Frame | bytes) -> bytes:
        """A frame on the control stream."""
        data = frame if isinstance(frame, bytes) else encode(frame)
        self.wire.write(0, framed(data))
        return data

    async def reached(self) -> Link:
        """The node opened the control stream: as the server, this side can write to it only from then on."""
        await self.wire.until(lambda: 0 in self.wire.received)
        return self

    def hello(self, **changes: Any) -> None:
        """This peer's hello, with changes; `...` leaves a key out."""
        self.features = {name for name in changes.get("features", []) if type(name) is str}
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
        if got.t == "offer":
            ack["wanted"] = list(range(len(short_ids(got.frame))))
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
        assert self._shapes[frame["t"]](frame), f"not as profile §8 spells it: {frame}"
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
        if "deflated" in frame:
            self._inflate(frame)
        assert self._shapes[frame["t"]](frame), f"not as profile §8 spells it: {frame}"
        if frame["t"] == "open":
            self.opened, self._expected = frame, frame["next"]
            held = self.peer.inbound
            if held is None or held.epoch != frame["epoch"]:
                assert frame["next"] == 1, "numbering starts at 1 in each epoch"
                self.peer.inbound = Inbound(frame["epoch"])
            return None
        assert self.opened is not None, "an open is first"
        assert frame["epoch"] == self.opened["epoch"]
        assert self.lost or frame["no"] == self._expected, "numbers are contiguous"
        self._expected = frame["no"] + 1
        if frame["t"] == "batch":
            self._check_batch(frame)
        return Got(frame, data[0])

    @property
    def _shapes(self) -> dict[str, Any]:
        """What was agreed: a frame of a feature that was not is of no shape at all."""
        offers = "offer" in self.features.intersection(self.theirs.get("features", ()))
        return SHAPES | (OFFER_SHAPES if offers else {})

    def _inflate(self, frame: Frame) -> None:
        """Feature `deflate`: the events of a batch are in one DEFLATE stream, which is the shorter form."""
        assert "deflate" in self.features.intersection(self.theirs["features"])
        assert frame["t"] == "batch"
        assert "events" not in frame
        packed = frame.pop("deflated")
        inflater = zlib.decompressobj(-15)
        plain = inflater.decompress(packed, 4 * 1024 * 1024)
        assert inflater.eof
        assert not inflater.unused_data
        assert len(packed) < len(plain)
        frame["events"] = strictly(plain)
        self.deflated += 1

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

    def keep(self, got: Got, **ack: Any) -> Got:
        """Accept and acknowledge a frame; of an offer everything is wanted unless the ack says otherwise."""
        inbound = self.peer.inbound
        assert inbound is not None
        assert (got.frame["epoch"], got.no) == (inbound.epoch, inbound.next)
        inbound.next, inbound.digest = got.no + 1, digest(got.data)
        self.ack(got, **ack)
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
            self.peer.learn_all(got.frame.get("records", []))
            for event in got.frame.get("events", []):
                content_type, signer, payload = opened(self.peer.mesh, event, self.peer.keys.__getitem__)
                assert content_type == EVENT
                found.append(payload | {"by": signer})
        return found

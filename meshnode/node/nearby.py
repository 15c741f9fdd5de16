"""Pairing without a string as two small state machines: frames in, frames or results out (profile §10, §13).

The guest dials and commits first, the host commits, the guest reveals, the host reveals: when the host shows the digits
both are bound. Nothing of the mesh is in any frame before `near-welcome`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from meshnode.errors import PairingError, ProtocolError
from meshnode.model.frames import NearHello, NearOpen, NearReveal, NearWelcome, NearYes, encode_frame
from meshnode.model.frames_untrusted import decode_nearby_untrusted
from meshnode.model.nearby import NearbyEnds, Role, commitment, comparison_code, reveals
from meshnode.model.site import site_id_of
from meshnode.node.founding import Found
from meshnode.node.pairing import admitting_untrusted


@dataclass(frozen=True, slots=True)
class Named:
    """The guest said what it calls itself: may it go on?"""

    name: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a person compares with the other screen; the name is what the other side calls itself."""

    code: str
    name: str


@dataclass(frozen=True, slots=True)
class Agreed:
    """The person at the guest said that the digits are equal."""


class _Hosting(Enum):
    HELLO = auto()
    NAMED = auto()
    REVEAL = auto()
    COMPARED = auto()
    AGREED = auto()
    DONE = auto()


class Host:
    """The member's side."""

    def __init__(self, ends: NearbyEnds, nonce: bytes, name: str) -> None:
        self._ends = ends
        self._nonce = nonce
        self._name = name
        self._state = _Hosting.HELLO
        self._committed = b""
        self.guest_name = ""

    def receive_untrusted(self, cbor: bytes) -> Named | Comparison | Agreed:
        """One frame of the guest's; ProtocolError where it is not the one that is due."""
        frame = decode_nearby_untrusted(cbor)
        if self._state is _Hosting.HELLO and isinstance(frame, NearHello):
            self._state = _Hosting.NAMED
            self._committed, self.guest_name = frame.commit, frame.name
            return Named(frame.name)
        if self._state is _Hosting.REVEAL and isinstance(frame, NearReveal):
            if not reveals(self._ends, Role.GUEST, self._committed, frame.nonce):
                raise ProtocolError("another nonce was revealed than was committed to")
            self._state = _Hosting.COMPARED
            return Comparison(comparison_code(self._ends, self._nonce, frame.nonce), self.guest_name)
        if self._state is _Hosting.COMPARED and isinstance(frame, NearYes):
            self._state = _Hosting.AGREED
            return Agreed()
        raise ProtocolError("a nearby frame that is not due")

    def opened(self) -> bytes:
        """The guest may go on: `near-open`."""
        assert self._state is _Hosting.NAMED
        self._state = _Hosting.REVEAL
        return encode_frame(NearOpen(commit=commitment(self._ends, Role.HOST, self._nonce), name=self._name))

    def revealed(self) -> bytes:
        """The guest is bound to its nonce and has told it: `near-reveal`."""
        assert self._state is _Hosting.COMPARED
        return encode_frame(NearReveal(nonce=self._nonce))

    def welcome(self, mesh_id: bytes, founder: bytes, records: tuple[bytes, ...], port: int) -> bytes:
        """Both persons said yes, and the vouch is on disk: `near-welcome`."""
        assert self._state is _Hosting.AGREED
        self._state = _Hosting.DONE
        return encode_frame(NearWelcome(mesh=mesh_id, founder=founder, records=records, port=port))


class _Visiting(Enum):
    START = auto()
    OPEN = auto()  # waits for near-open
    REVEAL = auto()  # waits for near-reveal
    COMPARED = auto()
    AGREED = auto()  # waits for near-welcome
    DONE = auto()


@dataclass(frozen=True, slots=True)
class Welcome:
    """The mesh that the host told of; where it answers follows from the link."""

    mesh_id: bytes
    founder: bytes
    records: tuple[bytes, ...]
    port: int

    def at(self, host: bytes, address: str) -> Found:
        """What to settle in."""
        return Found(self.mesh_id, self.founder, host, self.records, address)


class Guest:
    """The new device's side. It believes `near-welcome` only after its person said yes, and if the records hold."""

    def __init__(self, ends: NearbyEnds, nonce: bytes, name: str) -> None:
        self._ends = ends
        self._nonce = nonce
        self._name = name
        self._committed = b""
        self._state = _Visiting.START
        self.host_name = ""

    def hello(self) -> bytes:
        """The first frame: bound to a nonce that is not told."""
        assert self._state is _Visiting.START
        self._state = _Visiting.OPEN
        return encode_frame(NearHello(commit=commitment(self._ends, Role.GUEST, self._nonce), name=self._name))

    def agreed(self) -> bytes:
        """The person here said that the digits are equal: `near-yes`."""
        assert self._state is _Visiting.COMPARED
        self._state = _Visiting.AGREED
        return encode_frame(NearYes())

    def receive_untrusted(self, cbor: bytes, now_ms: int) -> bytes | Comparison | Welcome:
        """One frame of the host's: the next frame to send, the digits, or the mesh. ProtocolError or PairingError."""
        frame = decode_nearby_untrusted(cbor)
        if self._state is _Visiting.OPEN and isinstance(frame, NearOpen):
            self._state = _Visiting.REVEAL
            self._committed, self.host_name = frame.commit, frame.name
            return encode_frame(NearReveal(nonce=self._nonce))
        if self._state is _Visiting.REVEAL and isinstance(frame, NearReveal):
            if not reveals(self._ends, Role.HOST, self._committed, frame.nonce):
                raise ProtocolError("another nonce was revealed than was committed to")
            self._state = _Visiting.COMPARED
            return Comparison(comparison_code(self._ends, frame.nonce, self._nonce), self.host_name)
        if self._state is _Visiting.AGREED and isinstance(frame, NearWelcome):
            self._state = _Visiting.DONE
            return self._welcomed_untrusted(frame, now_ms)
        raise ProtocolError("a nearby frame that is not due")

    def _welcomed_untrusted(self, frame: NearWelcome, now_ms: int) -> Welcome:
        own, host = self._ends.guest.public_key, self._ends.host.public_key
        membership = admitting_untrusted(frame.records, frame.mesh, frame.founder, site_id_of(own), now_ms)
        if not membership.is_peer(site_id_of(host), host):
            raise PairingError("the other device's records do not make it a member of its mesh: pair with another one")
        return Welcome(frame.mesh, frame.founder, frame.records, frame.port)

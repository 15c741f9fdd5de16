"""Pairing by an independent implementation, as the joiner and as the inviter of a mesh of its own (profile §10)."""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from support.foreign_bytes import VOUCH, Frame, Site, derive, digest, encode, framed, keyed, now_ms
from support.foreign_peer import Foreigner
from support.foreign_wire import Certificate, Wire, bound_site, certificate_for, connection, spki_of

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
        return await self.wire.heard(0)


@asynccontextmanager
async def pairing(peer: Foreigner, port: int, invite: Frame) -> AsyncIterator[Pairing]:
    """A pairing connection on which nothing was said yet."""
    certificate = certificate_for(peer.site, invite["mesh"])
    async with connection(port, certificate, alpn="ssp-pair/1") as wire:
        site, _ = bound_site(wire.peer_certificate, invite["mesh"])
        assert site == invite["site"]
        yield Pairing(wire, peer, invite, certificate)


# --- pairing as the inviter: a mesh that was founded by nobody but this module


def found(name: str = "inviter") -> Foreigner:
    """A first device, an authority of a mesh of its own."""
    peer, founder = Foreigner.create(name), Site(os.urandom(32))
    peer.mesh, peer.founder = os.urandom(16), founder.public_key
    peer.keys[founder.site] = founder.public_key
    for record in (
        founder.vouch(peer.mesh, peer.site, peer.hlc(), name),
        founder.role(peer.mesh, peer.site, "authority", peer.hlc()),
    ):
        peer.learn(record)
    return peer


def invite_text(peer: Foreigner, *ports: int, secret: bytes, expires: int | None = None, **changes: Any) -> str:
    """An invite by this peer."""
    content = {
        "v": 1,
        "mesh": peer.mesh,
        "site": peer.site.site,
        "founder": peer.founder,
        "secret": secret,
        "addrs": [f"127.0.0.1:{port}" for port in ports],
        "expires": expires or now_ms() + 60_000,
    } | changes
    data = encode(content)
    return "meshnode-invite:" + base64.b32encode(data + digest(data)[:4]).decode().lower().rstrip("=")


@dataclass
class Inviter:
    """The inviter's side of one ceremony, step by step; it verifies all that the joiner says."""

    wire: Wire
    peer: Foreigner
    secret: bytes
    certificate: Certificate
    nonce: bytes = field(default_factory=lambda: os.urandom(16))
    theirs: bytes = b""
    joiner: bytes = b""

    async def hello(self) -> None:
        """Step 1."""
        self.joiner, self._public_key = bound_site(self.wire.peer_certificate, self.peer.mesh)
        frame = await self._hear("pair-hello", "invite", "nonce")
        assert frame["invite"] == derive("meshnode 2026 invite id v1", self.secret)[:8]
        assert len(frame["nonce"]) == 16
        self.theirs = frame["nonce"]

    def open(self, **changes: Any) -> None:
        """Step 2."""
        self._say({"t": "pair-open", "nonce": self.nonce} | changes)

    async def proof(self) -> str:
        """Step 3 verified: the joiner's name."""
        frame = await self._hear("pair", "public_key", "name", "mac", "sig")
        assert frame["public_key"] == self._public_key
        assert frame["mac"] == keyed(self._key(), self._transcript() + b"joiner")
        Ed25519PublicKey.from_public_bytes(self._public_key).verify(frame["sig"], self._transcript())
        return str(frame["name"])

    def paired(self, records: list[bytes], **changes: Any) -> None:
        """Step 4."""
        mac = keyed(self._key(), self._transcript() + b"inviter")
        self._say({"t": "paired", "mac": mac, "records": records, "name": self.peer.name} | changes)

    def vouch(self) -> bytes:
        """The record that makes the joiner a member."""
        self.peer.keys[self.joiner] = self._public_key
        payload = {"site": self.joiner, "public_key": self._public_key, "name": "joiner", "issued": self.peer.hlc()}
        return self.peer.site.seal(self.peer.mesh, VOUCH, payload)

    def _transcript(self) -> bytes:
        return encode(
            [
                "meshnode pairing v1",
                self.peer.mesh,
                self.peer.site.site,
                self.certificate.spki,
                self._public_key,
                spki_of(self.wire.peer_certificate),
                self.nonce,
                self.theirs,
            ]
        )

    def _key(self) -> bytes:
        return derive("meshnode 2026 invite v1", self.secret)

    def _say(self, frame: Frame) -> None:
        self.wire.write(0, framed(encode(frame)))

    async def _hear(self, t: str, *names: str) -> Frame:
        return await self.wire.heard_as(0, t, *names)


async def pair(peer: Foreigner, port: int, invite: str) -> None:
    """The whole ceremony: afterwards the peer is a member and knows all records."""
    content = peer.take_invite(invite)
    async with pairing(peer, port, content) as ceremony:
        ceremony.hello()
        await ceremony.opened()
        ceremony.prove()
        peer.learn_all(await ceremony.paired())
        ceremony.wire.close(0)

"""Pairing without a string by an independent implementation, as the guest and as the host (profile §10, §13)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from support.foreign_bytes import Frame, Site, digest, encode, framed
from support.foreign_wire import Certificate, Wire, bound_site, certificate_for, connection, spki_of

NO_MESH = bytes(16)


@dataclass
class Nearby:
    """One side of one ceremony, step by step; `host` says which."""

    wire: Wire
    site: Site
    certificate: Certificate
    host: bool = False
    nonce: bytes = field(default_factory=lambda: os.urandom(32))
    commit: bytes = b""  # the other side's
    theirs: bytes = b""

    @property
    def own(self) -> tuple[bytes, bytes]:
        """This end: public key and digest of the SubjectPublicKeyInfo."""
        return self.site.public_key, self.certificate.spki

    @property
    def other(self) -> tuple[bytes, bytes]:
        """The other end, its binding verified."""
        return bound_site(self.wire.peer_certificate, NO_MESH)[1], spki_of(self.wire.peer_certificate)

    def say(self, t: str, **fields: Any) -> None:
        """One frame."""
        self.wire.write(0, framed(encode({"t": t} | fields)))

    async def hear(self, t: str, *names: str) -> Frame:
        """The next frame, which has to be this one."""
        return await self.wire.heard_as(0, t, *names)

    def committed(self, nonce: bytes | None = None) -> bytes:
        """What this side says of a nonce before it tells it."""
        role = "host" if self.host else "guest"
        return digest(encode(["meshnode nearby commitment v1", role, *self.own, nonce or self.nonce]))

    def take(self, nonce: bytes) -> None:
        """The other side's nonce; it has to be what that side committed to."""
        role = "guest" if self.host else "host"
        assert self.commit == digest(encode(["meshnode nearby commitment v1", role, *self.other, nonce]))
        self.theirs = nonce

    def code(self) -> str:
        """The six digits on this screen."""
        hosts, guests = (self.own, self.other) if self.host else (self.other, self.own)
        nonces = (self.nonce, self.theirs) if self.host else (self.theirs, self.nonce)
        t = encode(["meshnode nearby code v1", *hosts, *guests, *nonces])
        return f"{int.from_bytes(digest(t)[:8], 'big') % 1_000_000:06}"

    async def until_digits(self, name: str = "foreigner") -> str:
        """The guest's side up to the digits."""
        self.say("near-hello", commit=self.committed(), name=name)
        self.commit = (await self.hear("near-open", "commit", "name"))["commit"]
        self.say("near-reveal", nonce=self.nonce)
        self.take((await self.hear("near-reveal", "nonce"))["nonce"])
        return self.code()

    async def until_digits_at_the_host(self, name: str = "foreigner") -> str:
        """The host's side up to the digits."""
        self.commit = (await self.hear("near-hello", "commit", "name"))["commit"]
        self.say("near-open", commit=self.committed(), name=name)
        self.take((await self.hear("near-reveal", "nonce"))["nonce"])
        self.say("near-reveal", nonce=self.nonce)
        return self.code()


@asynccontextmanager
async def visiting(port: int, site: Site) -> AsyncIterator[Nearby]:
    """A guest's connection on which nothing was said yet."""
    certificate = certificate_for(site, NO_MESH)
    async with connection(port, certificate, alpn="ssp-near/1") as wire:
        yield Nearby(wire, site, certificate)

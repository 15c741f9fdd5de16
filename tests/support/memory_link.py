"""Two ends of a link in memory: bytes in order, close codes as they were given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from meshnode.errors import CloseCode
from meshnode.model.invite import Invite
from meshnode.model.pairing import Ends
from meshnode.model.site import SiteKey
from meshnode.net.endpoint_ports import Ending


class MemoryLink:
    """One end; what it sent and how it was closed stays readable."""

    def __init__(self, peer: SiteKey, spki: bytes, own_spki: bytes) -> None:
        self.site, self.public_key = peer.site, peer.public_key
        self.spki, self.own_spki = spki, own_spki
        self.on_control: Callable[[bytes], None] = lambda _data: None
        self.on_closed: Callable[[CloseCode | None, str, bool], None] = lambda *_: None
        self.other: MemoryLink
        self.sent: list[bytes] = []
        self.ending: Ending | None = None

    def send_control(self, data: bytes) -> None:
        if self.ending is None:
            self.sent.append(data)
            asyncio.get_running_loop().call_soon(self.other._receive, data)

    def close(self, code: CloseCode, reason: str) -> None:
        if self.ending is None:
            self._end(code, reason, True)
            asyncio.get_running_loop().call_soon(self.other._end, code, reason, False)

    def lose(self) -> None:
        """The network goes away under both ends."""
        for end in (self, self.other):
            end._end(None, "silence", False)

    def _receive(self, data: bytes) -> None:
        if self.ending is None:
            self.on_control(data)

    def _end(self, code: CloseCode | None, reason: str, local: bool) -> None:
        if self.ending is None:
            self.ending = Ending(code, reason, local)
            self.on_closed(code, reason, local)


def memory_links(acceptor: SiteKey, dialer: SiteKey) -> tuple[MemoryLink, MemoryLink]:
    """The end of the acceptor and that of the dialer."""
    ours, theirs = b"a" * 32, b"d" * 32
    first, second = MemoryLink(dialer, theirs, ours), MemoryLink(acceptor, ours, theirs)
    first.other, second.other = second, first
    return first, second


def inviter_ends(link: Any, mesh_id: bytes, site: bytes) -> Ends:
    """The ends of a link that a joiner dialed; `site` is the inviter's."""
    return Ends(mesh_id, site, link.own_spki, link.public_key, link.spki)


def joiner_ends(link: Any, invite: Invite, public_key: bytes) -> Ends:
    """The ends of a link that the joiner dialed; `public_key` is its own."""
    return Ends(invite.mesh_id, invite.site, link.spki, public_key, link.own_spki)

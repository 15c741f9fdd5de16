"""Answers leave from the local address that was spoken to (profile §7): a peer drops those that come from another.

A host has many addresses: IPv6 privacy addresses beside the stable one, bridges, tunnels. On a socket that is bound to
all of them the kernel picks the source by its routes, which is often not the address that the peer dialed.
"""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Iterable

from meshnode.limits import ANSWERED_ADDRESSES

# What the socket module gives for a peer: (host, port) or (host, port, flow, scope).
Address = tuple[str, int] | tuple[str, int, int, int]

_IP_PKTINFO = getattr(socket, "IP_PKTINFO", 8)  # Linux's number; the socket module names it from Python 3.12 on


class Sources:
    """Sends on a socket bound to every address, remembering which of ours each peer uses."""

    def __init__(self, sock: socket.socket) -> None:
        """OSError or AttributeError where the platform does not tell."""
        if sys.platform == "win32" or (sock.family == socket.AF_INET and not sys.platform.startswith("linux")):
            raise OSError("no packet information here")
        self._sock = sock
        self._pins: dict[Address, bytes] = {}
        if sock.family == socket.AF_INET6:
            self._level, self._kind = socket.IPPROTO_IPV6, socket.IPV6_PKTINFO
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        else:
            self._level, self._kind = socket.IPPROTO_IP, _IP_PKTINFO
            sock.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)

    def note(self, address: Address, ancillary: Iterable[tuple[int, int, bytes]]) -> None:
        """A datagram came from there, with this beside it."""
        for level, kind, info in ancillary:
            if level == self._level and kind == self._kind:
                self._remember(address, info)

    def pin(self, address: Address) -> list[tuple[int, int, bytes]]:
        """What `sendmsg` takes to leave from where that peer's datagrams came to."""
        pin = self._pins.get(address)
        return [] if pin is None else [(self._level, self._kind, pin)]

    def send(self, data: bytes, address: Address) -> None:
        """One datagram, as `sendto`; where our address is gone, from whichever there is."""
        pin = self._pins.get(address)
        if pin is not None:
            try:
                self._sock.sendmsg([data], [(self._level, self._kind, pin)], 0, address)
                return
            except OSError as error:
                if isinstance(error, BlockingIOError) or error.errno == errno.EMSGSIZE:
                    raise
                del self._pins[address]
        self._sock.sendto(data, address)

    def forget(self) -> None:
        """Our own addresses changed: the kernel says again which is for whom."""
        self._pins.clear()

    def _remember(self, address: Address, info: bytes) -> None:
        pin = _pin_of(info)
        if self._pins.get(address) == pin:
            return
        self._pins.pop(address, None)
        if len(self._pins) >= ANSWERED_ADDRESSES:
            del self._pins[next(iter(self._pins))]
        self._pins[address] = pin


def _pin_of(info: bytes) -> bytes:
    """The packet information that sends from where a datagram came to; the interface only where it is part of that."""
    if len(info) == 20:  # struct in6_pktinfo: address, interface
        link_local = info[0] == 0xFE and info[1] & 0xC0 == 0x80
        return info if link_local else info[:16] + bytes(4)
    return bytes(4) + info[4:8] + bytes(4)  # struct in_pktinfo: interface, the local address, the header's destination

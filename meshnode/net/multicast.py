"""Which interfaces multicast DNS can use right now, and why not the others (profile §11, RFC 6762)."""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass

from meshnode.errors import TransportError
from meshnode.limits import MULTICAST_INTERFACES
from meshnode.net.interfaces import Interface, Selection

MDNS_PORT = 5353
GROUP_V4 = "224.0.0.251"
GROUP_V6 = "ff02::fb"
# Of Linux (linux/in.h, linux/in6.h), and not in Python's socket module.
_IP_MULTICAST_ALL, _IPV6_MULTICAST_ALL = 49, 29


@dataclass(frozen=True, slots=True)
class Paths:
    """The addresses whose interfaces multicast goes out on; `beyond` is False when that is loopback alone."""

    hosts: tuple[str, ...]
    beyond: bool
    refused: tuple[str, ...]  # one sentence per interface that cannot
    names: frozenset[str] = frozenset()  # of the interfaces that are used

    @property
    def dual_stack(self) -> bool:
        return any(":" in host for host in self.hosts)


def multicast_paths(selection: Selection) -> Paths:
    """Try every selected interface, and loopback where none of them can.

    Raises TransportError with the reason where none is left or port 5353 cannot be shared. Trying beforehand, on
    sockets of our own, is what gives a reason: the library skips an interface silently, or raises half-way with its
    sockets still open.
    """
    if not selection.used:
        raise TransportError(_none_left(selection))
    paths = _paths(selection.used)
    if not paths.hosts and selection.spare:
        spare = _paths(selection.spare)
        paths = Paths(spare.hosts, spare.beyond, (*paths.refused, *spare.refused), spare.names)
    if not paths.hosts:
        raise TransportError(f"no interface can multicast: {'; '.join(paths.refused)}")
    _try_port(paths.dual_stack)
    return paths


def refusals(interface: Interface) -> tuple[str, ...]:
    """Why one interface cannot multicast, in sentences; none where it can by at least one of its addresses."""
    paths = _paths((interface,))
    return () if paths.hosts else paths.refused


def _none_left(selection: Selection) -> str:
    if not selection.skipped:
        return "no network interface has an address"
    return f"every network interface is skipped: {'; '.join(f'{name}: {why}' for name, why in selection.skipped)}"


def _paths(interfaces: Sequence[Interface]) -> Paths:
    hosts: list[str] = []
    refused: list[str] = []
    names: set[str] = set()
    beyond = False
    for interface in interfaces[:MULTICAST_INTERFACES]:
        candidates = _candidates(interface)
        if not candidates:
            refused.append(f"{interface.name}: it has neither an IPv4 nor an IPv6 link-local address")
        for host in candidates:
            try:
                _try_group(host, interface.index)
            except OSError as error:
                refused.append(f"{interface.name} ({host}): {_why(error)}")
                continue
            hosts.append(host)
            names.add(interface.name)
            beyond = beyond or not interface.loopback
    return Paths(tuple(hosts), beyond, tuple(refused), frozenset(names))


def _candidates(interface: Interface) -> list[str]:
    """One IPv4 address and the IPv6 link-local one: answers from a global address would bring no scope along."""
    first = next((one.ip.compressed for one in interface.addresses if one.version == 4), None)
    return [host for host in (first, interface.link_local) if host is not None]


def _try_group(host: str, index: int) -> None:
    """Bind, join the group and look the route up as a send would; no datagram leaves.

    Binding fails while an IPv6 address is still tentative, for a second or two after its interface came up.
    """
    if ":" not in host:
        with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as trial:
            own = socket.inet_aton(host)
            trial.bind((host, 0))
            trial.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP_V4) + own)
            trial.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own)
            trial.connect((GROUP_V4, MDNS_PORT))
        return
    with closing(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)) as trial:
        trial.bind((host, 0, 0, index))
        scope = struct.pack("@I", index)
        group = socket.inet_pton(socket.AF_INET6, GROUP_V6)
        trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group + scope)
        trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, scope)
        trial.connect((GROUP_V6, MDNS_PORT, 0, index))


def _try_port(dual_stack: bool) -> None:
    """Port 5353 is shared by every responder of a machine, unless one of them does not let it."""
    with closing(socket.socket(socket.AF_INET6 if dual_stack else socket.AF_INET, socket.SOCK_DGRAM)) as trial:
        if dual_stack:
            trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "SO_REUSEPORT"):
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            trial.bind(("", MDNS_PORT))
        except OSError as error:
            raise TransportError(
                f"UDP port {MDNS_PORT} is taken by a program that does not share it ({_why(error)}); "
                "with avahi, set disallow-other-stacks=no in avahi-daemon.conf"
            ) from error


def hear_joined_only(listening: socket.socket) -> None:
    """Take multicast on the interfaces alone whose groups this very socket joined.

    Linux hands a socket what comes in by every interface on which any program of the machine joined the group: with
    avahi beside us we would hear, and answer, on the interfaces that we skip. Other systems do not.
    """
    if not sys.platform.startswith("linux"):
        return
    with suppress(OSError):  # an IPv4 socket has no option of IPv6, nor has an old kernel
        listening.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
        listening.setsockopt(socket.IPPROTO_IPV6, _IPV6_MULTICAST_ALL, 0)


def _why(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)

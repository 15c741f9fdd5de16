"""One UDP socket for both directions: dual stack where the platform has it, drained once per wake-up (profile §7).

Whatever leaves together goes down in as few calls as the platform allows (`endpoint_segments`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import socket
from collections.abc import Callable, Sequence

from meshnode.errors import TransportError
from meshnode.limits import HANDSHAKE_S
from meshnode.net.endpoint_fragments import forbid_fragments
from meshnode.net.endpoint_segments import Datagram, Segmentation, bursts, segment_size, taken_apart_untrusted
from meshnode.net.endpoint_source import Address, Sources
from meshnode.net.names import Names, named_host

DRAIN_DATAGRAMS = 64  # datagrams read before their connections get to answer and the loop gets to run
_DATAGRAM_BYTES = 65_535
_ANCILLARY_BYTES = 128  # packet information of either family, and the size of what came together
_BUFFER_BYTES = 4 * 1024 * 1024  # asked for; the kernel grants what it allows
_MAPPED = "::ffff:"
_ANY = ("", "::", "0.0.0.0")  # noqa: S104


def open_socket(host: str, port: int) -> socket.socket:
    """Bind; an unspecified host means every interface, IPv6 and IPv4 on one socket where possible."""
    if host in _ANY:
        with contextlib.suppress(OSError):
            return _bind(socket.AF_INET6, "::", port)
        return _bind(socket.AF_INET, "0.0.0.0", port)  # noqa: S104
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return _bind(family, host, port)


def _bind(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if host == "::" else 1)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
        sock.bind(socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)[0][4])
    except BaseException:
        sock.close()
        raise
    return sock


async def resolve(
    sock: socket.socket, host: str, port: int, names: Names | None = None, seconds: float = HANDSHAKE_S
) -> list[Address]:
    """The addresses of `host` in the form in which this socket reports its datagrams."""
    found = await (names or Names()).resolve(host, port, seconds)
    dual = sock.family == socket.AF_INET6 and not sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
    addresses: list[Address] = []
    for family, _, _, _, sockaddr in found:
        ip, ip_port = str(sockaddr[0]), int(sockaddr[1])
        if family == sock.family == socket.AF_INET:
            addresses.append((ip, ip_port))
        elif family == sock.family and len(sockaddr) == 4:
            # aioquic compares whole tuples, and the flow label that a resolver leaves is not the one that arrives.
            addresses.append((ip, ip_port, 0, int(sockaddr[3])))
        elif family == socket.AF_INET and dual:
            addresses.append((_MAPPED + ip, ip_port, 0, 0))
    if not addresses:
        raise TransportError(f"{named_host(host, port)}: no address that this socket can reach")
    return list(dict.fromkeys(addresses))


def address_text(address: Address) -> str:
    """`host:port` or `[v6%scope]:port`, an IPv4 peer of a dual-stack socket in its own form."""
    host = address[0].removeprefix(_MAPPED)
    if ":" not in host:
        return f"{host}:{address[1]}"
    scope = f"%{address[3]}" if len(address) == 4 and address[3] and "%" not in host else ""
    return f"[{host}{scope}]:{address[1]}"


def host_of(address: Address) -> str:
    """The host alone, as a name for notices: an IPv6 one by its /64, which is what one machine may have of it."""
    host = address[0].removeprefix(_MAPPED).partition("%")[0]
    with contextlib.suppress(ValueError):
        if ":" in host:
            return str(ipaddress.ip_network(f"{host}/64", strict=False))
    return host


class DatagramSocket:
    """Reads in batches and hands them up; sends without ever waiting, since QUIC repeats what was lost."""

    def __init__(self, sock: socket.socket, on_datagrams: Callable[[list[Datagram]], None]) -> None:
        self._sock = sock
        self._on_datagrams = on_datagrams
        self._loop = asyncio.get_running_loop()
        self._fallback: asyncio.DatagramTransport | None = None
        self._sources: Sources | None = None
        self._segmentation = Segmentation(sock)
        self._unfragmented = forbid_fragments(sock)
        self._closed = False

    async def start(self, *, readiness: bool = True) -> None:
        """Begin to read; event loops without readiness callbacks read through asyncio, one datagram at a time."""
        with contextlib.suppress(NotImplementedError):
            if readiness:
                with contextlib.suppress(OSError, AttributeError):
                    if ipaddress.ip_address(self._sock.getsockname()[0]).is_unspecified:
                        self._sources = Sources(self._sock)
                self._loop.add_reader(self._sock, self._drain)
                self._segmentation.listen(self._sock)
                return
        self._fallback, _ = await self._loop.create_datagram_endpoint(lambda: _Single(self), sock=self._sock)

    @property
    def port(self) -> int:
        """The UDP port that was bound."""
        return int(self._sock.getsockname()[1])

    @property
    def raw(self) -> socket.socket:
        """The socket itself, for what its family decides."""
        return self._sock

    @property
    def unfragmented(self) -> bool:
        """A datagram that is too large for its path is lost, never cut into fragments."""
        return self._unfragmented

    def send(self, data: bytes, address: Address) -> bool:
        """One datagram; a full buffer or an unreachable host is a loss like any other on the way.

        False where it is larger than the interface takes, which only another size makes better.
        """
        if self._closed:
            return True
        if self._fallback is not None:
            self._fallback.sendto(data, address)
            return True
        try:
            if self._sources is not None:
                self._sources.send(data, address)
            else:
                self._sock.sendto(data, address)
        except OSError as error:
            return error.errno != errno.EMSGSIZE
        return True

    def send_all(self, flight: Sequence[Datagram]) -> list[int]:
        """As `send`, many at a time; the sizes of those that are larger than the interface takes."""
        refused = []
        for burst in bursts(flight):
            if len(burst) == 1 or not self._send_burst(burst):
                refused += [len(data) for data, address in burst if not self.send(data, address)]
        return refused

    def _send_burst(self, burst: Sequence[Datagram]) -> bool:
        """Whether they all left in one call; none did where they did not."""
        if not self._segmentation.sends or self._closed or self._fallback is not None:
            return False
        address = burst[0][1]
        ancillary = [segment_size(burst), *(self._sources.pin(address) if self._sources is not None else ())]
        try:
            self._sock.sendmsg([data for data, _ in burst], ancillary, 0, address)
        except BlockingIOError:  # there may be room for some of them
            return False
        except OSError as error:
            self._segmentation.failed(error.errno)
            return False
        self._segmentation.sent()
        return True

    def rerouted(self) -> None:
        """Our own addresses changed."""
        self._segmentation.rerouted()
        if self._sources is not None:
            self._sources.forget()

    def close(self) -> None:
        """Stop reading and give the port back."""
        if self._closed:
            return
        self._closed = True
        if self._fallback is not None:
            self._fallback.close()
            return
        self._loop.remove_reader(self._sock)
        self._sock.close()

    def received(self, batch: list[Datagram]) -> None:
        """Hand up what was read."""
        if batch and not self._closed:
            self._on_datagrams(batch)

    def _drain(self) -> None:
        batch: list[Datagram] = []
        read = self._read_untrusted if self._sources is not None or self._segmentation.receives else self._read_one
        for _ in range(DRAIN_DATAGRAMS):
            try:
                read(batch)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:  # an ICMP error of an earlier datagram; there may be more to read
                continue
            if len(batch) >= DRAIN_DATAGRAMS:  # one read may bring many
                break
        self.received(batch)

    def _read_one(self, batch: list[Datagram]) -> None:
        batch.append(self._sock.recvfrom(_DATAGRAM_BYTES))

    def _read_untrusted(self, batch: list[Datagram]) -> None:
        data, ancillary, flags, address = self._sock.recvmsg(_DATAGRAM_BYTES, _ANCILLARY_BYTES)
        if self._sources is not None:
            self._sources.note(address, ancillary)
        batch.extend((each, address) for each in taken_apart_untrusted(data, ancillary, flags))


class _Single(asyncio.DatagramProtocol):
    def __init__(self, owner: DatagramSocket) -> None:
        self._owner = owner

    def datagram_received(self, data: bytes, address: Address) -> None:
        self._owner.received([(data, address)])

    def error_received(self, error: Exception) -> None:
        """As in `_drain`: a loss."""

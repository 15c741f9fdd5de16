"""Many datagrams in one call, where Linux has that: UDP segmentation out, reassembly in (`udp(7)`, GSO and GRO; §7).

Segmentation: buffers of one size, the last one perhaps smaller, leave by one `sendmsg` and travel as one packet as far
down as the network card. A card or a kernel that cannot says so (EIO, ENOPROTOOPT), and then they leave one by one.
Reassembly: the kernel hands up datagrams of one sender that follow each other as one, with their size beside it.
"""

from __future__ import annotations

import errno
import socket
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence

from meshnode.net.endpoint_source import Address

Datagram = tuple[bytes, Address]
Ancillary = tuple[int, int, bytes]

# Numbers of <linux/udp.h>; the socket module names none of them.
_SOL_UDP, _UDP_SEGMENT, _UDP_GRO = 17, 103, 104
SEGMENTS = 64  # UDP_MAX_SEGMENTS of all kernels that have it
SEGMENTED_BYTES = 65_000  # in one call: what a UDP datagram may have, less the headers of either family
_NEVER = frozenset({errno.EIO, errno.ENOPROTOOPT, errno.EOPNOTSUPP})  # no card, or no kernel, will do it
_FAILURES = 8  # of any other kind in a row, from which it is not tried any more
_LOST_TAIL = getattr(socket, "MSG_TRUNC", 0x20) | getattr(socket, "MSG_CTRUNC", 0x08)


class Segmentation:
    """Whether datagrams of one socket leave, and come, many at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self.sends = self._has_segments = _is_known(sock, _UDP_SEGMENT)
        self.receives = False
        self._failures = 0

    def listen(self, sock: socket.socket) -> None:
        """Let datagrams come together, for a reader that takes them apart; where the kernel will not, they come so."""
        if sys.platform == "linux":
            try:
                sock.setsockopt(_SOL_UDP, _UDP_GRO, 1)
            except OSError:
                return
            self.receives = True

    def sent(self) -> None:
        """A call with segments worked."""
        self._failures = 0

    def failed(self, number: int | None) -> None:
        """One did not, with this errno: the datagrams go one by one, and perhaps all from now on."""
        self._failures += 1
        if number in _NEVER or self._failures >= _FAILURES:
            self.sends = False

    def rerouted(self) -> None:
        """Another card may take what the one before did not."""
        self.sends, self._failures = self._has_segments, 0


def _is_known(sock: socket.socket, option: int) -> bool:
    """Whether the kernel knows the option; asking changes nothing."""
    if sys.platform != "linux":
        return False
    try:
        sock.getsockopt(_SOL_UDP, option)
    except OSError:
        return False
    return True


def bursts(flight: Sequence[Datagram]) -> Iterator[Sequence[Datagram]]:
    """The flight in order, cut into what may leave together: to one address, of one size but for a smaller last one."""
    begin = total = 0
    for index, (data, address) in enumerate(flight):
        first_data, first_address = flight[begin]
        fits = (
            address == first_address
            and len(data) <= len(first_data) == len(flight[index - 1][0])
            and index - begin < SEGMENTS
            and total + len(data) <= SEGMENTED_BYTES
        )
        if index > begin and not fits:
            yield flight[begin:index]
            begin = index
            total = 0
        total += len(data)
    if flight:
        yield flight[begin:]


def segment_size(burst: Sequence[Datagram]) -> Ancillary:
    """What tells the kernel where one datagram of a burst ends and the next one begins."""
    return (_SOL_UDP, _UDP_SEGMENT, struct.pack("=H", len(burst[0][0])))


def taken_apart_untrusted(data: bytes, ancillary: Iterable[Ancillary], flags: int) -> Iterator[bytes]:
    """The datagrams of one read. None where its ancillary data came cut off: where they end is not known then."""
    if flags & _LOST_TAIL:
        return
    size = next((_number(value) for level, kind, value in ancillary if (level, kind) == (_SOL_UDP, _UDP_GRO)), 0)
    if not 0 < size < len(data):
        yield data
        return
    for begin in range(0, len(data), size):
        yield data[begin : begin + size]


def _number(value: bytes) -> int:
    return int.from_bytes(value[:4], sys.byteorder, signed=True) if len(value) >= 4 else 0

"""Many datagrams in one call: what leaves together, what came together, and platforms without either (profile §7)."""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
import sys
from collections.abc import Iterable
from typing import Any

import pytest
from support.quic import ALICE, CAROL, PATIENCE_S, Station, station

from meshnode.net import endpoint_segments
from meshnode.net.endpoint_segments import (
    SEGMENTED_BYTES,
    SEGMENTS,
    Datagram,
    Segmentation,
    bursts,
    segment_size,
    taken_apart_untrusted,
)
from meshnode.net.endpoint_socket import DRAIN_DATAGRAMS, DatagramSocket, open_socket
from meshnode.net.endpoint_source import Address

HERE: Address = ("127.0.0.1", 1)
THERE: Address = ("127.0.0.1", 2)
GRO = (17, 104)


def of_sizes(*sizes: int, address: Address = HERE) -> list[Datagram]:
    return [(bytes([number % 251]) * size, address) for number, size in enumerate(sizes)]


def cut(*sizes: int) -> list[list[int]]:
    return [[len(data) for data, _ in burst] for burst in bursts(of_sizes(*sizes))]


def test_what_leaves_together() -> None:
    assert cut() == []
    assert cut(1200) == [[1200]]
    assert cut(1200, 1200, 300) == [[1200, 1200, 300]]
    assert cut(1200, 300, 300, 1200) == [[1200, 300], [300], [1200]], "a smaller one is the last of its burst"
    assert cut(300, 1200, 1200) == [[300], [1200, 1200]], "the probe of a size is larger than what went before it"
    assert [len(burst) for burst in cut(*[100] * 200)] == [SEGMENTS, SEGMENTS, SEGMENTS, 200 - 3 * SEGMENTS]
    assert all(sum(burst) <= SEGMENTED_BYTES for burst in cut(*[8952] * 40))
    flight = of_sizes(1200, 1200) + of_sizes(1200, 1200, address=THERE) + of_sizes(1200)
    assert [len(burst) for burst in bursts(flight)] == [2, 2, 1]
    assert [each for burst in bursts(flight) for each in burst] == flight


def apart(data: bytes, *ancillary: tuple[int, int, bytes], flags: int = 0) -> list[bytes]:
    return list(taken_apart_untrusted(data, ancillary, flags))


def test_what_came_together_is_taken_apart() -> None:
    size = (*GRO, struct.pack("=i", 4))
    assert apart(b"aaaabbbbcc", size) == [b"aaaa", b"bbbb", b"cc"]
    assert apart(b"aaaabbbb", (0, 8, b"address"), size) == [b"aaaa", b"bbbb"]
    assert apart(b"aaaa", size) == apart(b"aaaa") == [b"aaaa"]
    assert apart(b"") == [b""]


@pytest.mark.parametrize("value", [b"", b"\0", struct.pack("=i", 0), struct.pack("=i", -4), struct.pack("=i", 1 << 30)])
def test_a_size_that_is_none_takes_nothing_apart(value: bytes) -> None:
    assert apart(b"aaaabbbb", (*GRO, value)) == [b"aaaabbbb"]


@pytest.mark.skipif(not hasattr(socket, "MSG_CTRUNC"), reason="no ancillary data there")
def test_what_came_cut_off_is_lost() -> None:
    """Where one ends is not known then, and QUIC repeats what was lost."""
    assert apart(b"aaaabbbb", flags=socket.MSG_CTRUNC) == []
    assert apart(b"aaaabbbb", (*GRO, struct.pack("=i", 4)), flags=socket.MSG_TRUNC) == []


class Pair:
    """Two sockets of one family, and what the second got."""

    def __init__(self, host: str) -> None:
        self.got: list[bytes] = []
        self.batches: list[int] = []
        self.wanted = 0
        self.done = asyncio.Event()
        self.sender = DatagramSocket(open_socket(host, 0), lambda batch: None)
        self.receiver = DatagramSocket(open_socket(host, 0), self._take)
        there = host or ("::1" if self.receiver.raw.family == socket.AF_INET6 else "127.0.0.1")
        address = there, self.receiver.port
        self.address: Address = address if self.receiver.raw.family == socket.AF_INET else (*address, 0, 0)

    def _take(self, batch: list[Datagram]) -> None:
        self.batches.append(len(batch))
        self.got += [data for data, _ in batch]
        if len(self.got) >= self.wanted:
            self.done.set()

    async def carry(self, *sizes: int) -> None:
        """Send datagrams of these sizes at once; they arrive whole and in order."""
        flight = of_sizes(*sizes, address=self.address)
        self.got.clear()
        self.done.clear()
        self.wanted = len(flight)
        assert self.sender.send_all(flight) == []
        async with asyncio.timeout(PATIENCE_S):
            await self.done.wait()
        assert self.got == [data for data, _ in flight]

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()


def hosts() -> list[str]:
    """Those of both families, and every interface."""
    try:
        open_socket("::1", 0).close()
    except OSError:
        return ["127.0.0.1", ""]
    return ["127.0.0.1", "::1", ""]


@pytest.mark.parametrize("host", hosts())
async def test_flights_arrive_as_they_left(host: str) -> None:
    pair = Pair(host)
    await pair.sender.start()
    await pair.receiver.start()
    await pair.carry(1200, 1200, 1200, 1200, 500)
    await pair.carry(8952, 8952, 60, 60, 60, 1452, 1, 8952)
    await pair.carry(*[100] * 150)
    pair.close()
    assert pair.sender.send_all(of_sizes(1200, 1200, address=pair.address)) == []


async def test_one_wake_up_stays_bounded_however_many_come_together() -> None:
    pair = Pair("127.0.0.1")
    await pair.sender.start()
    flight = of_sizes(*[50] * 600, address=pair.address)
    pair.wanted = len(flight)
    pair.sender.send_all(flight)
    await pair.receiver.start()
    async with asyncio.timeout(PATIENCE_S):
        await pair.done.wait()
    assert max(pair.batches) < DRAIN_DATAGRAMS + 2 * SEGMENTS
    pair.close()


class Refusing:
    """A socket whose kernel or card takes no segments."""

    def __init__(self, sock: socket.socket, number: int) -> None:
        self._sock, self._number = sock, number
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def fileno(self) -> int:
        return self._sock.fileno()

    def sendmsg(
        self, buffers: Iterable[bytes], ancillary: Iterable[Any] = (), flags: int = 0, address: Any = None
    ) -> int:
        parts, beside = list(buffers), list(ancillary)
        if any(kind == 103 for _, kind, _ in beside):
            self.asked += 1
            raise OSError(self._number, "refused")
        return self._sock.sendmsg(parts, beside, flags, address)


@pytest.mark.skipif(sys.platform != "linux", reason="segments are of Linux")
@pytest.mark.parametrize(
    ("number", "asked"),
    [(errno.EIO, 1), (errno.ENOPROTOOPT, 1), (errno.EINVAL, 8), (errno.EAGAIN, 20)],
    ids=["card", "kernel", "again-and-again", "full"],
)
async def test_refused_segments_leave_one_by_one(number: int, asked: int) -> None:
    pair = Pair("127.0.0.1")
    pair.sender._segmentation.sends = True
    refusing = pair.sender._sock = Refusing(pair.sender._sock, number)  # type: ignore[assignment]
    await pair.receiver.start()
    for _ in range(20):
        await pair.carry(1200, 1200, 700)
    assert refusing.asked == asked
    pair.sender.rerouted()
    assert pair.sender._segmentation.sends is pair.sender._segmentation._has_segments
    pair.receiver.close()
    pair.sender._sock.close()


async def test_a_burst_that_is_too_large_says_which_sizes_are() -> None:
    with open_socket("127.0.0.1", 0) as plain:
        sender = DatagramSocket(plain, lambda batch: None)
        here = plain.getsockname()
        assert sender.send_all(of_sizes(65_530, 65_530, address=here)) == [65_530, 65_530]
        assert sender.send_all(of_sizes(1200, 1200, 65_530, address=here)) == [65_530]


async def test_a_kernel_without_either_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_segments, "_UDP_SEGMENT", 10_103)
    monkeypatch.setattr(endpoint_segments, "_UDP_GRO", 10_104)
    async with station(CAROL) as carol, station(ALICE) as alice:
        for here in (carol, alice):
            assert not here.endpoint._socket._segmentation.sends
            assert not here.endpoint._socket._segmentation.receives
        await bulk(alice, carol)


@pytest.mark.parametrize(("sends", "receives"), [(True, True), (True, False), (False, True), (False, False)])
async def test_a_bulk_stream_arrives_whatever_either_end_has(
    sends: bool, receives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not receives:
        monkeypatch.setattr(Segmentation, "listen", lambda self, sock: None)
    async with station(CAROL) as carol, station(ALICE) as alice:
        if not sends:
            alice.endpoint._socket._segmentation.sends = False
        await bulk(alice, carol)


async def bulk(alice: Station, carol: Station) -> None:
    """A stream of many datagrams, one way."""
    link = await alice.endpoint.dial("127.0.0.1", carol.endpoint.port)
    theirs = await carol.first()
    link.send_events(bytes(range(256)) * 4096)
    await carol.until(lambda: len(theirs.events) == 1 << 20)
    assert bytes(theirs.events) == bytes(range(256)) * 4096
    async with asyncio.timeout(PATIENCE_S):
        await link.drained(0)


def test_the_size_is_that_of_the_first() -> None:
    assert segment_size(of_sizes(1200, 1200, 5)) == (17, 103, struct.pack("=H", 1200))

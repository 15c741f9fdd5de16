"""Datagrams on real interfaces: as large as they take, also when that changes under a transfer (profile §7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
from support.lan import Lan, lan_available
from support.quic import ALICE, BOB, FAST, PATIENCE_S, Station, identity

from meshnode.model.site import SiteKey
from meshnode.net.endpoint import Endpoint, Link

pytestmark = pytest.mark.skipif(not lan_available(), reason="needs root and iproute2 to make network namespaces")

POURED = 2_000_000  # bytes; within the window that a link may have under way
RESUMED_S = 5.0


@pytest.fixture
def lan() -> Iterator[Lan]:
    with Lan(2) as made:
        yield made


@asynccontextmanager
async def on(lan: Lan, host: int, key: SiteKey) -> AsyncIterator[Station]:
    """An endpoint on every interface of a host."""
    here = Station({ALICE.site, BOB.site})
    with lan.inside(host):
        here.endpoint = await Endpoint.create(
            "", 0, identity=identity(key), admit=here.admit, on_link=here.on_link, on_notice=here.on_notice, config=FAST
        )
    try:
        yield here
    finally:
        await here.endpoint.close()


async def settled(link: Link, size: int) -> None:
    """Until the search is over, and nothing larger was found."""
    quic = link.connection.quic
    async with asyncio.timeout(PATIENCE_S):
        while quic._path_size._due < asyncio.get_running_loop().time():
            await link.ping(PATIENCE_S)
            await asyncio.sleep(0.01)
    assert quic.datagram_bytes == size


@pytest.mark.parametrize(("mtu", "size", "version"), [(1280, 1232, 6), (1500, 1452, 4)])
async def test_datagrams_are_as_large_as_the_interface_takes(lan: Lan, mtu: int, size: int, version: int) -> None:
    for host in (0, 1):
        lan.mtu(host, mtu)
    peer = lan.address(1) if version == 4 else f"{lan.link_local(1)}%{index_of(lan, 0)}"
    async with on(lan, 0, ALICE) as alice, on(lan, 1, BOB) as bob:
        link = await alice.endpoint.dial(peer, bob.endpoint.port)
        await settled(link, size)
        link.send_events(bytes(POURED))
        await bob.until(lambda: bool(bob.links) and len(bob.links[0].events) == POURED)
        assert bob.links[0].closed is None


def index_of(lan: Lan, host: int) -> int:
    return int(lan.configure(host, "-o", "link", "show", "dev", "eth0").partition(":")[0])


@pytest.mark.parametrize("lower", [Lan.mtu, Lan.narrow], ids=["interface", "cable"])
async def test_an_mtu_that_is_lowered_under_a_transfer(lan: Lan, lower: Callable[[Lan, int, int], None]) -> None:
    async with on(lan, 0, ALICE) as alice, on(lan, 1, BOB) as bob:
        link = await alice.endpoint.dial(lan.address(1), bob.endpoint.port)
        await settled(link, 1452)
        # A virtual bridge passes on what it need not cut up yet, whatever its MTU; a cable carries datagrams alone.
        alice.endpoint._socket._segmentation.sends = lower is Lan.mtu
        seen = await bob.first()
        link.send_events(bytes(POURED))
        await bob.until(lambda: len(seen.events) > POURED // 10)
        lower(lan, 0, 1280)
        async with asyncio.timeout(RESUMED_S):
            await bob.until(lambda: len(seen.events) == POURED)
        assert link.connection.quic.datagram_bytes < 1452
        assert link.ending is seen.closed is None
        assert [one.link.live for one in alice.links] == [True]

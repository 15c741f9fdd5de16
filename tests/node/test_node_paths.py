"""Nodes go on syncing within 5 s where an address changes under load, whoever dialed, and on every MTU (profile §7)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from support.lan import Lan, lan_available
from support.nodes import TABLE, free_port, linked, loopback, note, pair_of_homes, until

from meshnode import Config, Node
from meshnode.net.adapters import selection
from meshnode.net.interfaces import Selection
from meshnode.net.link import Link
from meshnode.node.finding import Finder

pytestmark = pytest.mark.skipif(not lan_available(), reason="needs root and iproute2 to make network namespaces")

RESUMED_S = 5.0
PORT = 4747
ROWS = 20  # of one batch, written every 50 ms at each end


@asynccontextmanager
async def pair(
    lan: Lan, folder: Path, smaller_dials: bool, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Node, Node]]:
    """The dialer of a link and its acceptor: nodes of this process, each in its own host; no mDNS."""
    homes = await pair_of_homes(folder, [free_port(), free_port()])
    sites = [await site_of(home) for home in homes]
    dialer = (0 if sites[0] < sites[1] else 1) if smaller_dials else (0 if sites[0] > sites[1] else 1)
    configs = [
        Config(
            name=home.name,
            port=PORT,
            mdns_enabled=False,
            peers=[f"{lan.address(1 - host)}:{PORT}"] * (host == dialer),
        )
        for host, home in enumerate(homes)
    ]
    hosts = {home.name: host for host, home in enumerate(homes)}

    def scan(finder: Finder) -> Selection:
        with lan.inside(hosts[finder._settings.name]):
            return selection()

    monkeypatch.setattr(Finder, "_scan", scan)
    async with AsyncExitStack() as stack:
        nodes = []
        for host, home in enumerate(homes):
            with lan.inside(host):
                nodes.append(await stack.enter_async_context(Node(home, config=configs[host])))
        await linked(nodes[0], nodes[1])
        yield nodes[dialer], nodes[1 - dialer]


async def site_of(home: Path) -> str:
    async with Node(home, config=loopback(name=home.name)) as node:
        return (await node.status()).site


async def write_on(node: Node, written: list[int], start: int) -> None:
    """Until cancelled; the keys that batches begin with go into `written`."""
    for first in range(start, start + 500_000, ROWS):
        await node.import_rows(TABLE, [note(first + row) for row in range(ROWS)])
        written.append(first)
        await asyncio.sleep(0.05)


async def has(node: Node, key: int) -> bool:
    return await node.get(TABLE, {"id": f"n{key:06}"}) is not None


@pytest.mark.parametrize(
    ("moves", "smaller_dials"),
    [("dialer", True), ("acceptor", True), ("acceptor", False)],
    ids=["dialer", "acceptor-smaller-dialed", "acceptor-larger-dialed"],
)
async def test_an_address_that_changes_under_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: str, smaller_dials: bool
) -> None:
    with Lan(2) as lan:
        async with pair(lan, tmp_path, smaller_dials, monkeypatch) as nodes, AsyncExitStack() as stack:
            mover, still = nodes if moves == "dialer" else reversed(nodes)
            written: dict[Node, list[int]] = {mover: [], still: []}
            for node, first in ((mover, 0), (still, 500_000)):
                stack.push_async_callback(cancelled, asyncio.create_task(write_on(node, written[node], first)))
            await until(mover, lambda: has(mover, 500_000))
            await until(still, lambda: has(still, 0))
            lan.readdress(0 if (await mover.status()).name == "a" else 1, "10.47.0.77/24")
            begun = time.monotonic()
            for node, other in ((mover, still), (still, mover)):  # what is written from now on arrives at the other
                key = written[node][-1] + ROWS
                await until(other, partial(has, other, key))
            took_s = time.monotonic() - begun
            print(f"{moves} moved: delivery went on after {took_s:.2f} s")
            assert took_s < RESUMED_S
            await until(still, partial(shown, still, f"10.47.0.77:{PORT}"))


async def test_a_path_that_carries_1280_bytes_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tunnel comes into the way under load; the interfaces would take more."""
    with Lan(2) as lan:
        async with pair(lan, tmp_path, True, monkeypatch) as nodes, AsyncExitStack() as stack:
            one, other = nodes
            for node in nodes:  # a virtual bridge lets a burst of segments past its MTU
                assert node._network is not None
                node._network._endpoint._socket._segmentation.sends = False
            written: list[int] = []
            stack.push_async_callback(cancelled, asyncio.create_task(write_on(one, written, 0)))
            await until(one, partial(sized, one, 1452))
            await until(other, partial(has, other, 0))
            lan.narrow(0, 1280)
            await until(other, partial(has, other, written[-1] + ROWS), RESUMED_S)
            await until(one, partial(sized, one, 1200), RESUMED_S)
            assert [link.live for link in (*links(one), *links(other))] == [True, True]
            for link in (*links(one), *links(other)):  # as a search begins a minute later, or on a new path
                link.connection.rerouted()
            await until(one, partial(sized, one, 1232))
            await until(other, partial(has, other, written[-1] + ROWS), RESUMED_S)


async def sized(node: Node, size: int) -> bool:
    return [link.connection.quic.datagram_bytes for link in links(node)] == [size]


def links(node: Node) -> list[Link]:
    assert node._network is not None
    return node._network._endpoint.links()


async def shown(node: Node, address: str) -> bool:
    return [peer.address for peer in await node.peers()] == [address]


async def cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

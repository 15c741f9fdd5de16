"""Two nodes with a bad path between them: losses, delays, a NAT that forgets (profile §7)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from support.nodes import TABLE, free_port, linked, loopback, note, pair_of_homes, until
from support.relay import Relay, Weather, relay

from meshnode import Node

EVENTS = 2000  # of the bulk
LIVE = 20  # writes meanwhile, at the other end
FLOOR = 100  # events a second; what Reno makes of such a path is 80 kB/s, three times as much
REBOUND_S = 5.0


@asynccontextmanager
async def through_relay(folder: Path, weather: Weather) -> AsyncIterator[tuple[Node, Node, Relay]]:
    """The dialer and the acceptor of a link that goes through the relay."""
    homes = await pair_of_homes(folder, [free_port(), free_port()])
    port = free_port()
    async with (
        relay(port, weather) as between,
        Node(homes[0], config=loopback(port=port, name="a")) as acceptor,
        Node(homes[1], config=loopback(between.port, name="b")) as dialer,
    ):
        await linked(dialer, acceptor)
        await linked(acceptor, dialer)
        yield dialer, acceptor, between


async def equal(one: Node, other: Node) -> bool:
    return await one.digest() == await other.digest()


async def has(node: Node, key: str) -> bool:
    return await node.get(TABLE, {"id": key}) is not None


async def test_a_path_that_loses_5_percent_and_delays_50_ms_each_way(tmp_path: Path) -> None:
    async with through_relay(tmp_path, Weather(loss=0.05, delay_s=0.05, carries=1472)) as (dialer, acceptor, between):
        links = [next(iter(node._network._endpoint.links())) for node in (dialer, acceptor)]  # type: ignore[union-attr]
        begun = time.monotonic()
        await acceptor.import_rows(TABLE, [note(number) for number in range(EVENTS)])
        for number in range(LIVE):
            await dialer.put(TABLE, {"id": f"live {number}"}, {"title": "meanwhile"})
            await asyncio.sleep(0.02)
        await until(acceptor, partial(has, acceptor, f"live {LIVE - 1}"))
        live_s = time.monotonic() - begun
        await until(dialer, partial(equal, dialer, acceptor))
        bulk_s = time.monotonic() - begun
        print(f"{EVENTS / bulk_s:.0f} events/s, the live writes there after {live_s:.2f} s, {between.lost} lost")
        assert between.lost > 10
        assert live_s < bulk_s < EVENTS / FLOOR
        assert all(link.live and not link.closed for link in links), "no link died of it"


async def test_a_nat_that_forgets_its_mapping_costs_a_moment(tmp_path: Path) -> None:
    async with through_relay(tmp_path, Weather(delay_s=0.005)) as (dialer, acceptor, between):
        (link,) = acceptor._network._endpoint.links()  # type: ignore[union-attr]
        assert link.remote_address == f"127.0.0.1:{between.back_port}"
        await between.rebind()
        begun = time.monotonic()
        await dialer.put(TABLE, {"id": "after"}, {"title": "from behind"})
        await until(acceptor, partial(has, acceptor, "after"))
        await acceptor.put(TABLE, {"id": "back"}, {"title": "to behind"})
        await until(dialer, partial(has, dialer, "back"))
        took_s = time.monotonic() - begun
        print(f"went on after {took_s:.2f} s")
        assert took_s < REBOUND_S
        assert link.live
        assert link.remote_address == f"127.0.0.1:{between.back_port}"
        assert [peer.address for peer in await acceptor.peers()] == [link.remote_address]

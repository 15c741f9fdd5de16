"""A link over a bad path lives as long as something gets through, and no longer (profile §7)."""

from __future__ import annotations

import asyncio

from support.quic import ALICE, CAROL, PATIENCE_S, station
from support.relay import Weather, relay

KEEP_ALIVE_S, SILENCE_S = 0.2, 1.5  # in the proportion of a path of 50 ms to 15 and 45 s


async def test_losses_neither_end_a_silent_link_nor_keep_a_dead_one() -> None:
    limits = {"keep_alive_s": KEEP_ALIVE_S, "silence_s": SILENCE_S}
    weather = Weather(loss=0.05, delay_s=0.02, carries=1472)
    async with (
        station(CAROL, **limits) as carol,
        station(ALICE, **limits) as alice,
        relay(carol.endpoint.port, weather) as between,
    ):
        link = await alice.endpoint.dial("127.0.0.1", between.port)
        seen = await carol.first()
        await asyncio.sleep(1.5 * SILENCE_S)  # the subject is that nothing happens
        assert link.ending is seen.closed is None
        carried = between.carried
        assert await link.ping(SILENCE_S)
        weather.loss = 1.0
        begun = asyncio.get_running_loop().time()
        await alice.until(lambda: alice.of(link).closed is not None)
        await carol.until(lambda: seen.closed is not None)
        assert asyncio.get_running_loop().time() - begun < 1.5 * SILENCE_S
        assert carried > 1.5 * SILENCE_S / KEEP_ALIVE_S, "keep-alives were what kept it"


async def test_a_peer_that_hops_from_address_to_address_is_followed_in_moderation() -> None:
    async with (
        station(CAROL) as carol,
        station(ALICE) as alice,
        relay(carol.endpoint.port) as between,
    ):
        link = await alice.endpoint.dial("127.0.0.1", between.port)
        seen = await carol.first()
        moves: list[str] = []
        seen.link.on_moved = lambda: moves.append(seen.link.remote_address)
        for _ in range(20):
            await between.rebind()
            assert await link.ping(PATIENCE_S)
            assert await seen.link.ping(PATIENCE_S), "datagrams follow every hop"
        assert moves
        assert len(moves) <= 3, "the node hears of one a second"
        assert seen.closed is None

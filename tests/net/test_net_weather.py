"""A link over a bad path lives as long as something gets through, and no longer (profile §7)."""

from __future__ import annotations

import asyncio

from support.quic import ALICE, CAROL, station
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

"""What a member that means harm, or is only broken, may cost the others: little, and never for long."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from support.foreign_bytes import now_ms
from support.foreign_node import running

FLOOD = 3000


async def test_a_flood_of_requests_is_a_few_writes_and_one_notice(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        written: list[object] = []
        write = here.node.storage.write

        async def counting(job, lane=None):  # type: ignore[no-untyped-def]
            written.append(job)
            return await write(job, lane)

        async with peer.greeted(here.port) as link:
            await link.took_until("records")
            here.node.storage.write = counting  # type: ignore[method-assign]
            for _ in range(FLOOD):
                link.say({"t": "request", "id": os.urandom(8), "what": "table", "schema": "main", "table": "none"})
            await link.wire.ping()
            async with asyncio.timeout(60):
                await here.put("a")
                while not await here.noticed("request-limit"):
                    await here.node.storage.changed.listen().wait()
        assert len(written) < FLOOD / 4, "each refused request was a transaction of its own"
    async with running(tmp_path) as here:
        assert await here.noticed("request-limit") > 100


async def test_a_lie_about_our_past_stops_authoring_no_longer_than_the_liar_stays(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        liar, honest = await here.member(), await here.member()
        async with honest.greeted(here.port):
            async with liar.greeted(here.port, max_hlc={liar.node: [now_ms() + 200_000, 0]}) as link:
                await link.control("request")
            while len([each for each in await here.node.peers() if each.linked]) > 1:
                await here.node.storage.changed.listen().wait()
            await here.put("a")
            async with liar.greeted(here.port, max_hlc={liar.node: [now_ms() + 250_000, 0]}):
                await here.put("b")


async def test_an_observer_of_twins_goes_on_publishing(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        twin, other = await here.member(), await here.member()
        async with twin.greeted(here.port) as first, other.greeted(here.port) as link:
            await link.took_until("records")
            twin.boot = os.urandom(8)
            async with twin.greeted(here.port) as second:
                assert (await second.wire.end())[0] == 11
                assert (await first.wire.end())[0] == 11
            await here.put("a")
            assert len(link.events_in(await link.took_until("batch"))) == 1
            assert (await here.node.status()).publishing

"""Whole nodes that are all linked: events wait to be offered, and whoever waits for them does not (profile §14)."""

from __future__ import annotations

import asyncio
from pathlib import Path

from support.nodes import PATIENCE_S, TABLE, until
from support.quic_mesh import counted, full_mesh

from meshnode.limits import OFFER_WAIT_MS


async def test_wait_ends_as_soon_as_everybody_has_everything(tmp_path: Path) -> None:
    async with full_mesh(tmp_path, 3) as nodes:
        for node in nodes:
            assert (await node.wait(timeout_s=PATIENCE_S)).complete
        with counted() as carried:
            begun = asyncio.get_running_loop().time()
            await nodes[0].put(TABLE, {"id": "n"}, {"title": "x"})
            for node in nodes:
                assert (await node.wait(timeout_s=PATIENCE_S)).complete
            assert asyncio.get_running_loop().time() - begun < OFFER_WAIT_MS / 1000 / 2
            assert carried().frames["batch"] == 2, "once to each"
            assert carried().frames["offer"] >= 1, "those two asked each other"
        assert len({view.digest for node in nodes for view in await node.digest()}) == 1


async def test_what_waits_to_be_offered_is_told_apart_from_what_a_peer_lacks(tmp_path: Path) -> None:
    async with full_mesh(tmp_path, 3) as nodes:
        for node in nodes:
            assert (await node.wait(timeout_s=PATIENCE_S)).complete
        await nodes[0].put(TABLE, {"id": "n"}, {"title": "x"})
        author = (await nodes[0].status()).site

        async def waits() -> bool:
            views = {view.site: view for node in nodes[1:] for view in await node.peers() if view.site != author}
            return {(view.behind, view.unconfirmed) for view in views.values()} == {(0, 1)}

        await until(nodes[1], waits)

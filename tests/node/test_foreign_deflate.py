"""The feature `deflate`, seen by an independent peer on the wire (profile §8)."""

from __future__ import annotations

from pathlib import Path

from support.foreign_bytes import digest, encode
from support.foreign_node import running
from support.foreign_peer import Got, Link


async def until(link: Link, t: str) -> Got:
    """The node's next frame of a kind, not acknowledged; those before it are."""
    while (got := await link.got()).t != t:
        link.keep(got)
    return got


async def test_batches_are_deflated_for_a_peer_that_can_inflate_them(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer, plain = await here.member(), await here.member("plain")
        async with here.node.transaction() as rows:
            for number in range(40):
                rows.put("notes", {"id": f"n{number}"}, {"title": "the same text " * 4})
        async with peer.greeted(here.port, features=["deflate"]) as link:
            deflated = await until(link, "batch")
            assert link.deflated == 1
            assert len(link.events_in([deflated])) == 40
        async with plain.greeted(here.port) as link:
            batch = await until(link, "batch")
            assert batch.frame["events"] == deflated.frame["events"]
            assert len(batch.data) > 2 * len(deflated.data)
            assert digest(encode(batch.frame)) == digest(batch.data)

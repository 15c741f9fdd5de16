"""A node whose database is an older copy: who it let in since comes in again without an invite (profile §7)."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.nodes import PATIENCE_S, TABLE, add_notes, free_port, linked, loopback, until

from meshnode import Node, join
from meshnode.errors import BusyError


async def equal(one: Node, other: Node) -> bool:
    return await one.digest() == await other.digest()


@pytest.mark.usefixtures("soon_again")
async def test_who_was_let_in_after_the_copy_was_made_is_a_member_again(tmp_path: Path) -> None:
    ports, homes = (free_port(), free_port()), (tmp_path / "a", tmp_path / "b")
    async with Node(homes[0], config=loopback(port=ports[0], name="a")) as a:
        await add_notes(a)
        database = a.home.database_path
    copy = database.read_bytes()
    async with Node(homes[0], config=loopback(port=ports[0])) as a:
        await join(homes[1], (await a.invite()).invite, name="b")
        async with Node(homes[1], config=loopback(ports[0], port=ports[1])) as b:
            await add_notes(b)
            await b.put(TABLE, {"id": "n1"}, {"title": "kept by b"})
            assert (await b.wait(timeout_s=PATIENCE_S)).complete
    database.write_bytes(copy)
    async with (
        Node(homes[1], config=loopback(ports[0], port=ports[1])) as b,
        Node(homes[0], config=loopback(port=ports[0])) as a,
    ):
        assert await a.peers() == []
        await linked(b, a)
        await until(a, lambda: equal(a, b))
        assert len(await a.peers()) == 1


async def test_a_bundle_that_answers_ends_the_wait_for_its_own_history_as_a_link_does(tmp_path: Path) -> None:
    async with Node(tmp_path / "a", config=loopback()) as a:
        await add_notes(a)
        await join(tmp_path / "b", (await a.invite()).invite, name="b")
        async with Node(tmp_path / "b", config=loopback()) as b:
            await b.set_online(False)
            await a.request_sync("b")
            assert a._network is not None
            a._network._own_history.claimed(b.storage.engine.context.site)  # as its link would say
            for giver, taker, name in ((a, b, "to b"), (b, a, "to a")):
                with pytest.raises(BusyError, match="restored"):
                    await a.put(TABLE, {"id": "n1"}, {"title": "too early"})
                assert [each async for each in giver.export_events(tmp_path / name)][-1].done
                assert [each async for each in taker.import_events(tmp_path / name)][-1].done
            await a.put(TABLE, {"id": "n1"}, {"title": "now"})

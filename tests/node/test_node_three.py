"""A mesh of three on loopback: who joined through one member syncs with another while the first is away."""

from __future__ import annotations

from pathlib import Path

from support.nodes import KEY, PATIENCE_S, TABLE, add_notes, free_port, linked, loopback, note

from meshnode import Node, join


async def test_c_joins_through_a_and_syncs_with_b_while_a_is_offline(tmp_path: Path) -> None:
    ports = free_port(), free_port(), free_port()
    async with Node(tmp_path / "a", config=loopback(port=ports[0], name="a")) as a:
        await add_notes(a)
        await join(tmp_path / "b", (await a.invite()).invite, name="b")
        async with Node(tmp_path / "b", config=loopback(port=ports[1])) as b:
            await add_notes(b)
            await b.import_rows(TABLE, [note(number, "b's") for number in range(600)])
            assert (await b.wait(timeout_s=PATIENCE_S)).complete
            await join(tmp_path / "c", (await a.invite()).invite, name="c")
            await a.set_online(False)  # B has not heard of C when it meets it: C shows its records
            await _meet_without(a, b, tmp_path / "c", ports)


async def _meet_without(a: Node, b: Node, home: Path, ports: tuple[int, int, int]) -> None:
    before = (await a.status()).events
    async with Node(home, config=loopback(ports[1], port=ports[2])) as c:
        await add_notes(c)
        await linked(c, b)
        await c.put(TABLE, {"id": "from c"}, {"title": "written with a away"})
        await c.put(TABLE, {"id": "n000007"}, {"title": "c's"})
        assert (await c.wait(timeout_s=PATIENCE_S, live_only=True)).complete
        assert (await b.wait(timeout_s=PATIENCE_S, live_only=True)).complete
        assert await b.digest() == await c.digest()
        got = await b.get(TABLE, {"id": "n000007"})
        assert got is not None
        assert got.columns == {"title": "c's", "done": 1}
        behind = await c.wait(timeout_s=0)
        assert [member.name for member in behind.behind] == ["a"]
        assert ((await a.status()).events, (await a.status()).online) == (before, False)
        await a.set_online(True)
        await linked(a, b, c)
        for node in (a, b, c):
            assert (await node.wait(timeout_s=PATIENCE_S)).complete
        assert await a.digest() == await b.digest() == await c.digest()
        assert len({(await node.status()).events for node in (a, b, c)}) == 1


async def test_what_was_paired_is_dialed_again_without_discovery_or_configured_peers(tmp_path: Path) -> None:
    async with Node(tmp_path / "a", config=loopback(name="a")) as a:
        invite = (await a.invite()).invite
        await join(tmp_path / "b", invite, name="b")
        async with Node(tmp_path / "b", config=loopback()) as b:
            await linked(b, a)
            (peer,) = await b.peers()
            assert (peer.name, peer.role, peer.opened_by_us) == ("a", "authority", True)
            assert (await a.peers())[0].role == "member"


async def test_tables_of_other_schemas_and_deletions_travel(tmp_path: Path) -> None:
    async with Node(tmp_path / "a", config=loopback(name="a")) as a:
        await join(tmp_path / "b", (await a.invite()).invite, name="b")
        async with Node(tmp_path / "b", config=loopback()) as b:
            for node in (a, b):
                await node.add_table("shop.items", KEY, {"price": "REAL", "raw": "BLOB"})
            await a.put("shop.items", {"id": "x"}, {"price": 1.5, "raw": b"\x00\xff"})
            await a.put("shop.items", {"id": "gone"}, {})
            await linked(a, b)
            await a.remove("shop.items", {"id": "gone"})
            assert (await a.wait(timeout_s=PATIENCE_S)).complete
            assert [row.flat() for row in await b.rows("shop.items")] == [{"id": "x", "price": 1.5, "raw": b"\x00\xff"}]
            assert await a.digest() == await b.digest()

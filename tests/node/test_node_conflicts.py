"""Conflicts between two running nodes: told to whoever follows, counted, and decided on one of them for both."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.nodes import PATIENCE_S, TABLE, free_port, linked, loopback, note, pair_of_homes, until

from meshnode import Node
from meshnode.errors import NotFoundError, UsageError
from meshnode.node import contested
from meshnode.node.home import Home
from meshnode.node.local import open_local


async def streams_stand(*nodes: Node) -> None:
    """Wait until each has taken an event of the other.

    A link may end before anything was settled on it; what was in flight then is sent anew, and no ack tells of it.
    """
    for number, node in enumerate(nodes):
        await node.put(TABLE, {"id": f"first of {number}"}, {"title": ""})
        assert (await node.wait(timeout_s=PATIENCE_S)).complete


async def test_a_conflict_is_told_counted_and_decided(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    homes = await pair_of_homes(tmp_path, ports)
    a_says, b_says = loopback(ports[1], port=ports[0], name="a"), loopback(ports[0], port=ports[1], name="b")
    async with Node(homes[0], config=a_says) as a, Node(homes[1], config=b_says) as b:
        await linked(a, b)
        await streams_stand(a, b)
        following = asyncio.ensure_future(anext(b.conflict_changes()))
        await asyncio.gather(a.set_online(False), b.set_online(False))
        await a.put(TABLE, {"id": "n1"}, {"title": "Milk", "done": 0})
        await b.put(TABLE, {"id": "n1"}, {"title": "Oat milk", "done": 0})
        await asyncio.gather(a.set_online(True), b.set_online(True))
        assert (await a.wait(timeout_s=PATIENCE_S)).complete
        async with asyncio.timeout(PATIENCE_S):
            told = await following
        assert (told.table, told.key, told.column) == (TABLE, {"id": "n1"}, "title")
        assert (told.ours.value, told.theirs.value, told.shown) == ("Oat milk", "Milk", "ours")
        assert (told.ours.name, told.theirs.name, told.value) == ("b", "a", "Oat milk")
        (at_a,) = await a.conflicts(TABLE)
        assert (at_a.id, at_a.status, at_a.shown, at_a.value) == (told.id, "open", "theirs", "Oat milk")
        assert ((await a.status()).conflicts.certain, (await b.status()).conflicts.certain) == (1, 1)
        with pytest.raises(NotFoundError, match="no table is called"):
            await a.conflicts("absent")
        for wrong, error in (("xyz", UsageError), ("0" * 32, NotFoundError)):
            with pytest.raises(error):
                await a.resolve_conflict(wrong, prefer="a")
        with pytest.raises(NotFoundError, match="no member is called"):
            await a.resolve_conflict(at_a.id, prefer="nobody")
        receipt = await a.resolve_conflict(at_a.id[:8], prefer="a")
        assert (receipt.id, receipt.status, receipt.shown) == (at_a.id, "resolved", "ours")
        assert receipt.event is not None

        async def ended() -> bool:
            return not await b.conflicts()

        await until(b, ended)
        assert [each.status for each in await b.conflicts(everything=True)] == ["resolved"]
        row = await b.get(TABLE, {"id": "n1"})
        assert row is not None
        assert row.columns["title"] == "Milk"
        await b.put(TABLE, {"id": "n1"}, {"title": "Bread"})
        (over,) = await b.conflicts(everything=True)
        assert (over.shown, over.other, over.value) == ("neither", "Bread", "Bread")
        assert (await b.check()).count == 0


async def test_large_values_are_listed_as_far_as_there_is_room_and_told_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that overwrites with a mebibyte each would fill the memory of whoever lists a thousand conflicts."""
    monkeypatch.setattr(contested, "CONFLICT_LIST_BYTES", 50_000)
    ports, rows, large = (free_port(), free_port()), 4, "x" * 30_000
    homes = await pair_of_homes(tmp_path, ports)
    for home, title in zip(homes, ("small", large), strict=True):
        async with open_local(Home.load(home), writing=True) as alone:
            await alone.import_rows(TABLE, [note(each, title) for each in range(rows)])
    a_says, b_says = loopback(ports[1], port=ports[0], name="a"), loopback(ports[0], port=ports[1], name="b")
    async with Node(homes[0], config=a_says) as a, Node(homes[1], config=b_says):
        following = a.conflict_changes(since=0)
        async with asyncio.timeout(PATIENCE_S):
            told = [await anext(following) for _ in range(rows)]
        assert [each.theirs.value for each in told] == [large] * rows
        listed = await a.conflicts()
        assert [each.theirs.left_out for each in listed] == [False] + [True] * (rows - 1)
        assert all(each.theirs.kept and each.ours.value == "small" and each.shown == "theirs" for each in listed)

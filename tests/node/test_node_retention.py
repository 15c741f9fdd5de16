"""Eviction, rehydration, forgetting and compaction on running nodes: what comes back from a peer, and what does not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.nodes import PATIENCE_S, TABLE, free_port, linked, loopback, note, pair_of_homes, until

from meshnode import Node
from meshnode.engine import retention
from meshnode.errors import NotFoundError, UsageError
from meshnode.model.hlc import Hlc
from meshnode.node.storage import wall_ms

KEY = {"id": "n000001"}


@asynccontextmanager
async def two_nodes(folder: Path) -> AsyncIterator[tuple[Node, Node]]:
    """A and B, linked, with 50 rows by A; the first of them was written twice."""
    ports = free_port(), free_port()
    homes = await pair_of_homes(folder, ports)
    async with (
        Node(homes[0], config=loopback(port=ports[0])) as a,
        Node(homes[1], config=loopback(ports[0], port=ports[1])) as b,
    ):
        await a.import_rows(TABLE, [note(number) for number in range(50)])
        await a.put(TABLE, KEY, {"title": "the second PRIVATE title"})
        await linked(b, a)
        await complete(a, b)
        yield a, b


async def complete(*nodes: Node) -> None:
    for node in nodes:
        result = await node.wait(timeout_s=PATIENCE_S)
        assert result.complete, result


async def events(node: Node) -> int:
    return (await node.status()).events


async def test_a_rehydrated_table_gets_its_history_from_the_peer(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (a, b):
        before = await b.digest()
        report = await b.evict(TABLE, before_ms=wall_ms() - 1, everything=True)
        assert (report.events, await events(b)) == (51, 0)
        assert (await b.tables())[0].horizon == report.horizon
        assert await b.digest() == before
        assert (await b.rehydrate(TABLE)).asked == 1

        async def whole() -> bool:
            return await events(b) == 51

        await until(b, whole)
        await complete(a, b)
        assert (await b.tables())[0].horizon is None
        assert await b.digest() == await a.digest() == before


async def test_a_forgotten_row_stays_away_until_undone(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (a, b):
        assert (await b.forget(TABLE, KEY)).events == 2
        files = [each for each in b.home.path.iterdir() if each.name.startswith(b.home.database_path.name)]
        assert [each.name for each in files if b"PRIVATE" in each.read_bytes()] == []
        await a.put(TABLE, KEY, {"done": True})
        await complete(a, b)
        assert await b.get(TABLE, KEY) is None
        assert await a.get(TABLE, KEY) is not None
        assert len(await b.rows(TABLE)) == 49
        with pytest.raises(UsageError, match="forgotten"):
            await b.put(TABLE, KEY, {"done": False})
        undone = await b.forget(TABLE, KEY, undo=True)
        assert (undone.undone, undone.asked) == (True, 1)

        async def back() -> bool:
            return await b.digest() == await a.digest()

        await until(b, back)
        await complete(a, b)
        row = await b.get(TABLE, KEY)
        assert row is not None
        assert row.columns == {"title": "the second PRIVATE title", "done": 1}
        with pytest.raises(NotFoundError):
            await b.forget(TABLE, KEY, undo=True)


async def test_compaction_and_eviction_do_not_disturb_delivery(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (a, b):
        await a.put(TABLE, KEY, {"title": "a third title", "done": 0})
        await complete(a, b)
        assert (await a.compact()).events == 2
        assert (await b.evict(TABLE, before_ms=wall_ms() - 1)).events == 2
        await a.put(TABLE, {"id": "later"}, {"title": "from a"})
        await b.put(TABLE, {"id": "later too"}, {"title": "from b"})
        await complete(a, b)
        assert await a.digest() == await b.digest()
        assert (await events(a), await events(b)) == (52, 52)


async def test_an_eviction_that_was_cut_short_is_finished_by_the_next_start(tmp_path: Path) -> None:
    async with Node(tmp_path / "n", config=loopback()) as node:
        await node.add_table(TABLE, {"id": "TEXT"}, {"title": "TEXT", "done": "INTEGER"})
        await node.import_rows(TABLE, [note(number) for number in range(10)])
        horizon = Hlc(wall_ms(), 0)
        await node.storage.write(
            lambda engine: retention.evict(engine.context, "main", TABLE, horizon, everything=True)
        )
        before = await events(node)
    assert before == 10
    async with Node(tmp_path / "n", config=loopback()) as node:

        async def gone() -> bool:
            return await events(node) < 10

        await until(node, gone)
        assert len(await node.rows(TABLE)) == 10

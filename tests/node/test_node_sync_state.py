"""What running nodes show of their delivery, and that asking again brings what is missing, at once."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from support.nodes import PATIENCE_S, TABLE, add_notes, free_port, linked, loopback, note, pair_of_homes, until

from meshnode import Node, join
from meshnode.engine.engine import Engine
from meshnode.errors import NotFoundError, UsageError
from meshnode.store import removed


@asynccontextmanager
async def two_nodes(folder: Path) -> AsyncIterator[tuple[Node, Node]]:
    """A and B, linked, with a row by each that the other has."""
    ports = free_port(), free_port()
    homes = await pair_of_homes(folder, ports)
    async with (
        Node(homes[0], config=loopback(port=ports[0])) as a,
        Node(homes[1], config=loopback(ports[0], port=ports[1])) as b,
    ):
        await linked(b, a)
        await a.import_rows(TABLE, [note(1)])
        await b.import_rows(TABLE, [note(2)])
        await complete(a, b)
        yield a, b


async def complete(*nodes: Node) -> None:
    for node in nodes:
        result = await node.wait(timeout_s=PATIENCE_S)
        assert result.complete, result


async def unlinked(node: Node) -> None:
    """Wait until this node has seen its only peer go."""

    async def gone() -> bool:
        return not (await node.sync_state())[0].linked

    await until(node, gone)


def sql(node: Node, *statements: str) -> None:
    """What somebody does to the file of a node that runs."""
    with closing(sqlite3.connect(node.home.database_path, isolation_level=None, timeout=10)) as connection:
        for statement in statements:
            connection.execute(statement)


async def test_everybody_is_shown_what_is_behind_and_what_is_not(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (a, b):

        async def settled() -> bool:
            """What the peer itself wrote is passed over after that, and this alone is not stored at once."""
            view = (await a.sync_state())[0]
            return view.cursor >= 1 and not view.staged

        await until(a, settled)
        (seen,) = await a.sync_state()
        assert (seen.name, seen.linked, seen.path, seen.staged, seen.stuck) == ("b", True, "quic", [], False)
        assert (seen.lag_events, seen.lag_records, seen.lag_ms, seen.reoffers, seen.asked) == (0, 0, 0, 0, [])
        assert seen.settled_no >= 2
        (back,) = await b.sync_state("a")
        assert back.next_inbound == seen.settled_no + 1
        own = await a.frontier()
        assert [each.site for each in own] == sorted(each.site for each in own)
        assert [each.counter > 0 for each in own] == [True, True]
        assert [each.name for each in own if each.local] == ["a"]
        (slot,) = await a.frontier(seen.short)
        assert (slot.name, slot.local, slot.evidence) == ("b", False, "ordering")
        await b.set_online(False)
        await unlinked(a)
        await a.import_rows(TABLE, [note(number) for number in range(3, 8)])
        (seen,) = await a.sync_state(seen.site)
        assert (seen.lag_events, seen.linked) == (5, False)
        assert 0 <= seen.lag_ms < PATIENCE_S * 1000


async def test_a_peer_is_named_by_site_or_name(tmp_path: Path) -> None:
    port = free_port()
    async with Node(tmp_path / "a", config=loopback(port=port, name="a")) as a:
        await add_notes(a)
        for folder in ("b", "c"):
            await join(tmp_path / folder, (await a.invite()).invite, name="twice")
        views = await a.sync_state()
        assert [each.name for each in views] == ["twice", "twice"]
        assert await a.sync_state(views[0].site.upper()) == await a.sync_state(views[0].short)
        with pytest.raises(UsageError, match="several members"):
            await a.sync_state("twice")
        with pytest.raises(NotFoundError, match="no other member"):
            await a.frontier("nobody")
        own = (await a.status()).short
        with pytest.raises(NotFoundError, match="no other member"):
            await a.request_sync(own)
        asked = (await a.request_sync(views[1].short, table=TABLE)).asked
        assert [(each.site, each.table, each.linked) for each in asked] == [(views[1].site, TABLE, False)]
        (state,) = await a.sync_state(views[1].short)
        assert [(each.id, each.what) for each in state.asked] == [(asked[0].id, f"table {TABLE}")]
        assert len((await a.request_sync()).asked) == 2
        assert [len(each.asked) for each in await a.sync_state()] == [1, 2]
        await a.classify(TABLE, "private")
        with pytest.raises(UsageError, match="does not come in"):
            await a.request_sync(table=TABLE)


async def test_what_is_missing_is_asked_for_and_comes_at_once(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (a, b):

        def lose(engine: Engine) -> None:
            """The node loses a row without knowing it."""
            with engine.context.transaction() as tx:
                (position,) = tx.execute("SELECT position FROM meshnode_log WHERE site_no <> 1 LIMIT 1").fetchone()
                tx.execute("DELETE FROM meshnode_log")
                removed.record(tx, range(1, engine.context.next_position), removed.EVICTED)
                tx.execute("DELETE FROM meshnode_rows")
                tx.execute(f"DELETE FROM {TABLE}")
                assert position

        await b.storage.write(lose)
        assert await b.rows(TABLE) == []
        receipt = await b.request_sync("a", table=TABLE)
        assert [(each.name, each.table, each.linked) for each in receipt.asked] == [("a", TABLE, True)]

        async def back() -> bool:
            return await a.digest() == await b.digest()

        await until(b, back)
        await complete(a, b)
        assert (await b.sync_state())[0].asked == []


async def test_a_stream_that_stands_still_is_named_and_goes_on_when_it_is_repaired(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (a, b):
        newest = "position = (SELECT max(position) FROM meshnode_log)"
        await b.set_online(False)
        await unlinked(a)  # the link that ends is not the one that gets stuck
        await a.import_rows(TABLE, [note(3)])
        sql(a, f"UPDATE meshnode_log SET event = CAST(event || x'00' AS BLOB) WHERE {newest}")
        await b.set_online(True)

        async def stuck() -> bool:
            (peer,) = await a.peers()
            return peer.linked and peer.stuck

        await until(a, stuck)
        (seen,) = await a.sync_state()
        assert seen.stuck
        assert "log position" in seen.why
        assert "check --repair" in seen.last_error

        async def noticed() -> bool:
            return any(each.kind == "unreadable-state" for each in (await a.status()).notices)

        await until(a, noticed)
        behind = await a.wait(timeout_s=0)
        assert "log position" in behind.behind[0].reason
        await b.import_rows(TABLE, [note(4)])

        async def arrived() -> bool:
            return await a.get(TABLE, {"id": "n000004"}) is not None

        await until(a, arrived)
        sql(
            a, f"UPDATE meshnode_log SET event = CAST(substr(event, 1, length(event) - 1) AS BLOB) WHERE position = {3}"
        )
        await a.request_sync("b")
        await complete(a, b)
        (seen,) = await a.sync_state()
        assert (seen.stuck, seen.why) == (False, "")
        assert "log position" in seen.last_error, "what happened last is still told"
        assert await a.digest() == await b.digest()

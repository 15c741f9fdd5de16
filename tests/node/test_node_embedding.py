"""Node as a program embeds it: its life, its errors, and subscriptions that resume without a gap."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path

import pytest
from support.nodes import (
    COLUMNS,
    KEY,
    PATIENCE_S,
    TABLE,
    add_notes,
    changes_until,
    free_port,
    ids,
    linked,
    loopback,
    note,
    take,
    until,
)

import meshnode
from meshnode import Config, Home, Node, RowChange, join
from meshnode.errors import BusyError, IdentityError, NotFoundError, StoreError, TransportError, UsageError


async def test_entering_founds_a_mesh_and_leaving_gives_everything_back(tmp_path: Path) -> None:
    port = free_port()
    async with Node(tmp_path / "n", config=loopback(port=port, name="desk")) as node:
        status = await node.status()
        assert (status.running, status.online, status.name, status.port) == (True, True, "desk", port)
        assert (status.role, status.pid, status.peers, status.rows) == ("authority", os.getpid(), [], 0)
        assert status.addresses == [f"127.0.0.1:{port}"]
        await add_notes(node)
        receipt = await node.put(TABLE, {"id": "n1"}, {"title": "Milk"})
        assert (receipt.events, len(receipt.event_ids[0])) == (1, 64)
        site = status.site
    await node.wait_closed()
    async with Node(str(tmp_path / "n"), config=loopback(port=port)) as again:  # lock and port are free
        assert (await again.status()).site == site
        row = await again.get(TABLE, {"id": "n1"})
        assert row is not None
        assert row.columns == {"title": "Milk"}  # a column that no write reached is absent
    assert Home.load(tmp_path / "n").recovery_key_path.exists()


async def test_a_node_that_fails_to_start_lets_go_of_its_home(tmp_path: Path) -> None:
    async with Node(tmp_path / "a", config=loopback()) as a:
        taken = (await a.status()).port
        assert taken is not None
        with pytest.raises(TransportError, match=str(taken)):
            async with Node(tmp_path / "b", config=loopback(port=taken)):
                pass
    async with Node(tmp_path / "b", config=loopback(), patience_s=0):
        pass
    (tmp_path / "b" / "meshnode.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match=r"meshnode\.db"):
        async with Node(tmp_path / "b", config=loopback()):
            pass
    (tmp_path / "a" / "site.key").unlink()
    with pytest.raises(IdentityError, match=r"site\.key"):
        async with Node(tmp_path / "a", config=loopback()):
            pass


async def test_a_second_node_on_one_home_names_the_holder(tmp_path: Path) -> None:
    async with Node(tmp_path / "n", config=loopback()) as node:
        with pytest.raises(BusyError, match=rf"process {os.getpid()} \(an embedded Node\) holds the node in .*/n:"):
            async with Node(tmp_path / "n", config=loopback(), patience_s=0.1):
                pass
        await add_notes(node)  # the first one did not notice


async def test_errors_of_writing_and_reading_name_what_is_wrong(tmp_path: Path) -> None:
    async with Node(tmp_path / "n", config=loopback()) as node:
        await add_notes(node)
        with pytest.raises(NotFoundError, match="'nodes' is not registered"):
            await node.put("nodes", {"id": "x"}, {})
        with pytest.raises(UsageError, match="no column 'tilte'"):
            await node.put(TABLE, {"id": "x"}, {"tilte": "x"})
        with pytest.raises(UsageError, match="key columns id"):
            await node.put(TABLE, {"no": 1}, {})
        with pytest.raises(UsageError, match="part of the key"):
            await node.put(TABLE, {"id": "x"}, {"id": "y"})
        for value in (float("nan"), 2**63, ["nested"], {"a": 1}, object()):
            with pytest.raises(UsageError):
                await node.put(TABLE, {"id": "x"}, {"title": value})
        for key in (None, True, 1.5, float("inf")):
            with pytest.raises(UsageError):
                await node.put(TABLE, {"id": key}, {})
        with pytest.raises(UsageError, match="1048576"):
            await node.put(TABLE, {"id": "x"}, {"title": "x" * 2**20})
        with pytest.raises(UsageError, match="nothing to write"):
            await node.import_rows(TABLE, [])
        with pytest.raises(UsageError):  # all rows of one call or none
            await node.import_rows(TABLE, [note(1), RowChange(key={"id": "x"}, columns={"zzz": 1})])
        with pytest.raises(NotFoundError, match="no row"):
            await node.remove(TABLE, {"id": "x"})
        with pytest.raises(UsageError, match="names no table"):
            await node.get("a.b.c", {"id": "x"})
        with pytest.raises(UsageError, match="exactly the columns id"):
            await node.get(TABLE, {"id": "x", "title": "y"})
        with pytest.raises(NotFoundError):
            await anext(node.changes(table="nodes"))
        assert await node.get(TABLE, {"id": "x"}) is None
        status = await node.status()
        assert (status.rows, status.events) == (0, 0)
        await node.put(TABLE, {"id": "x"}, {"title": "x" * 1_000_000})


async def test_only_an_authority_invites(tmp_path: Path) -> None:
    async with Node(tmp_path / "a", config=loopback(name="a")) as a:
        await join(tmp_path / "b", (await a.invite()).invite, name="b")
        with pytest.raises(UsageError, match="live for some time"):
            await a.invite(0)
        async with Node(tmp_path / "b", config=loopback()) as b:
            with pytest.raises(UsageError, match="no authority"):
                await b.invite(60_000)
            with pytest.raises(UsageError, match="already"):
                await join(tmp_path / "b", (await a.invite()).invite, name="b")


async def test_offline_a_node_goes_on_writing_and_catches_up_when_it_is_back(tmp_path: Path) -> None:
    async with Node(tmp_path / "a", config=loopback(name="a")) as a:
        await join(tmp_path / "b", (await a.invite()).invite, name="b")
        async with Node(tmp_path / "b", config=loopback()) as b:
            await add_notes(a, b)
            await linked(a, b)
            await b.set_online(False)
            await b.set_online(False)  # twice is once
            status = await b.status()
            assert (status.online, status.running, [peer.linked for peer in status.peers]) == (False, True, [False])

            async def alone() -> bool:
                return not any(peer.linked for peer in await a.peers())

            await until(a, alone)
            await b.put(TABLE, {"id": "offline"}, {"title": "b's"})
            await a.put(TABLE, {"id": "meanwhile"}, {"title": "a's"})
            waited = await b.wait(timeout_s=0)
            assert (waited.complete, waited.behind[0].linked, waited.behind[0].behind >= 1) == (False, False, True)
            live = await b.wait(timeout_s=0, live_only=True)
            assert (live.complete, live.reason) == (False, "no member is linked")
            await b.set_online(True)
            await b.set_online(True)
            for node in (a, b):
                assert (await node.wait(timeout_s=PATIENCE_S)).complete
            assert await a.digest() == await b.digest()
            assert (await a.digest())[0].rows == 2


async def test_changes_resume_without_a_gap_across_a_restart(tmp_path: Path) -> None:
    async with Node(tmp_path / "n", config=loopback()) as node:
        await add_notes(node)
        await node.add_table("other", KEY, COLUMNS)
        await node.import_rows(TABLE, [note(number) for number in range(400)])  # more than one page of changes
        seen = await take(node.changes(since=0), 150)
        following = node.changes(since=seen[-1].seq)
    async with Node(tmp_path / "n", config=loopback()) as node:
        await node.put("other", {"id": "elsewhere"}, {})
        await node.remove(TABLE, {"id": "n000000"})
        rest = await changes_until(node, "n000000", since=seen[-1].seq)
        assert [change.seq for change in [*seen, *rest]] == list(range(1, 403))
        assert (rest[-1].op, rest[-1].exists) == ("delete", False)
        only = await take(node.changes(since=400, table="other"), 1)
        assert (only[0].table, only[0].seq) == ("other", 401)
    assert [change async for change in following] == []  # its node ended: it does too
    with pytest.raises(UsageError, match="was left"):
        await node.get(TABLE, {"id": "n000001"})
    with pytest.raises(UsageError, match="was left"):
        await node.put(TABLE, {"id": "n000001"}, {})


async def test_changes_end_with_the_node_and_begin_now_where_no_number_is_given(tmp_path: Path) -> None:
    async with Node(tmp_path / "n", config=loopback()) as node:
        await add_notes(node)
        await node.put(TABLE, {"id": "before"}, {})
        changes = node.changes()
        assert ids(await take(node.changes(since=0), 1)) == ["before"]
        waiting = asyncio.ensure_future(anext(changes))
        await node.put(TABLE, {"id": "after"}, {"done": 1})
        change = await waiting
        assert (change.key, change.columns, change.site) == ({"id": "after"}, {"done": 1}, (await node.status()).site)
    with pytest.raises(StopAsyncIteration):
        await anext(changes)


async def test_a_subscriber_older_than_the_kept_changes_gets_every_row_and_can_stop_in_between(tmp_path: Path) -> None:
    async with Node(tmp_path / "n", config=loopback()) as node:
        await add_notes(node)
        await node.import_rows(TABLE, [note(number) for number in range(20)])
        await node.remove(TABLE, {"id": "n000003"})
    with sqlite3.connect(tmp_path / "n" / "meshnode.db") as database:  # as trimming does
        database.execute("DELETE FROM meshnode_changes WHERE seq <= 15")
    database.close()
    async with Node(tmp_path / "n", config=loopback()) as node:
        part = await take(node.changes(since=5), 7)  # and then it is interrupted
        rest = await take(node.changes(since=part[-1].seq), 20)
        assert set(ids([*part, *rest])) == {f"n{number:06}" for number in range(20)}
        gone = next(change for change in rest if change.key == {"id": "n000003"})
        assert (gone.op, gone.exists) == ("delete", False)
        await node.put(TABLE, {"id": "new"}, {})
        assert ids(await take(node.changes(since=rest[-1].seq), 1)) == ["new"]
        assert ids(await take(node.changes(since=15), 7)) == [
            *(f"n{number:06}" for number in range(15, 20)),
            "n000003",
            "new",
        ]
        everything = await take(node.changes(since=10**9, table=TABLE), 21)  # a number of another, newer copy
        assert everything[-1].seq == 22


def test_the_public_names_exist() -> None:
    for name in meshnode.__all__:
        assert getattr(meshnode, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = meshnode.nothing  # type: ignore[attr-defined]
    assert Config().mdns_enabled

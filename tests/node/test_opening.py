"""`Node.open(…)`: settings by name, a mesh to join, the program's own database; and what misuse is told."""

from __future__ import annotations

import asyncio
import gc
import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from support.embedded import in_a_fork
from support.nodes import free_port, linked, until

from meshnode import Config, Node
from meshnode.errors import BehindError, BusyError, ClosedError, ConfigError, InviteError, NotFoundError, UsageError
from meshnode.node import home
from meshnode.node.opening import Settings
from meshnode.node.table import Table
from meshnode.node.where import Where
from meshnode.store.database import Tx


def alone(*peers: int) -> Settings:
    """Settings that hear and say nothing beyond loopback."""
    dialed = [f"127.0.0.1:{peer}" for peer in peers]
    return {"listen": "127.0.0.1", "port": free_port(), "mdns_enabled": False, "peers": dialed}


def test_every_setting_can_be_given_but_the_database_which_is_a_path() -> None:
    hints = {name: getattr(hint, "__origin__", hint) for name, hint in get_type_hints(Config).items()}
    del hints["database"]
    assert {name: getattr(hint, "__origin__", hint) for name, hint in get_type_hints(Settings).items()} == hints


async def test_a_node_joins_by_its_invite_once_and_both_wait_for_each_other(tmp_path: Path) -> None:
    async with Node.open(tmp_path / "a", name="desk", **alone()) as desk:
        invite = (await desk.invite()).invite
        port = (await desk.status()).port or 0
        for _ in range(2):  # the program is started again with the same words
            async with Node.open(tmp_path / "b", name="lap", invite=invite, **alone(port)) as lap:
                assert (await lap.status()).name == "lap"
                await linked(lap, desk)
                for node in (desk, lap):
                    await node.add_table("t", {"id": "TEXT"}, {"n": "INTEGER"})
                await desk.put("t", {"id": "a"}, {"n": 1})
                assert (await desk.wait_synced("lap", timeout_s=60)).complete
                assert await lap.get("t", {"id": "a"}) is not None
                assert (await lap.wait_synced()).members == 1
                with pytest.raises(NotFoundError):
                    await desk.wait_synced("nobody")

        async def gone() -> bool:
            return not any(peer.linked for peer in await desk.peers())

        await until(desk, gone)
        await desk.put("t", {"id": "b"}, {"n": 2})
        with pytest.raises(BehindError, match=r"not everything is everywhere after 0 s: lap: not linked, 1 of ours"):
            await desk.wait_synced(timeout_s=0)
    async with Node.open(tmp_path / "c", name="other", **alone()) as other:
        elsewhere = (await other.invite()).invite
    with pytest.raises(UsageError, match="in another mesh than that of the invite"):
        await _enter(Node.open(tmp_path / "a", invite=elsewhere, **alone()))
    with pytest.raises(InviteError):
        await _enter(Node.open(tmp_path / "d", invite="meshnode-invite:typo", **alone()))
    assert not (tmp_path / "d").exists() or not any((tmp_path / "d").glob("site.key"))


async def test_the_program_keeps_its_own_database(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as own:
        own.execute("CREATE TABLE mine (x)")
    for _ in range(2):
        async with Node.open(tmp_path / "n", database=path, **alone()) as node:
            assert (await node.status()).database == str(path)
    with closing(sqlite3.connect(path)) as own:
        names = {name for (name,) in own.execute("SELECT name FROM sqlite_master")}
    assert {"mine", "meshnode_log"} <= names
    async with Node.open(tmp_path / "n", **alone()) as node:  # it is remembered
        assert (await node.status()).database == str(path)
    with pytest.raises(ConfigError, match=r"keeps its tables in .*app\.db, not in .*other\.db"):
        await _enter(Node.open(tmp_path / "n", database=tmp_path / "other.db", **alone()))


async def test_what_is_loaded_is_frozen_once_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen: list[int] = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: len(frozen))
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(1))
    for freeze, count in ((False, 0), (True, 1), (True, 1)):
        await _enter(Node.open(tmp_path / "n", freeze=freeze, **alone()))
        assert len(frozen) == count


async def test_settings_stand_for_one_run_and_cannot_be_anything(tmp_path: Path) -> None:
    async with Node.open(tmp_path / "n", name="once", max_links=3, **alone()) as node:
        config = {each.setting: (each.value, each.source) for each in (await node.config()).settings}
        assert config["max_links"] == (3, "command line")
    with pytest.raises(ConfigError, match="did you mean 'max_links'"):
        Node.open(tmp_path / "n", max_link=3)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="max_links is a number from 1 to 64, not 0"):
        Node.open(tmp_path / "n", max_links=0)


async def test_misuse_is_told_what_to_do(tmp_path: Path) -> None:
    early = Node.open(tmp_path / "n", **alone())
    with pytest.raises(ClosedError, match="enter the node first"):
        await early.put("t", {"id": "a"}, {})
    async with early as node:
        with pytest.raises(BusyError, match=r"holds the node in .*/n: "):
            await _enter(Node.open(tmp_path / "n", patience_s=0.0))
        await node.add_table("t", {"id": "TEXT"}, {"n": "INTEGER"})
        table = node.table("t")
        async with node.transaction() as rows:
            rows.upsert(table, {"id": "a", "n": 1}, {"id": "b"})
            rows.patch(table, "a", n=2)
            rows.delete(table, "b")
            for wrong in (
                table.upsert({"id": "c"}),
                node.put("t", {"id": "c"}, {}),
                node.remove("t", {"id": "a"}),
                _enter(node.transaction()),
            ):
                with pytest.raises(UsageError, match="in the middle of a transaction"):
                    await wrong
            await asyncio.create_task(node.put("t", {"id": "other task"}, {}))
        assert (rows.receipt.events, await table.get("a")) == (4, {"id": "a", "n": 2})
        with pytest.raises(NotFoundError, match=r"no row .* to patch"):
            await _upsert_and_patch(node, table)
        assert await table.get("z") is None
        assert in_a_fork(lambda: node.storage).startswith("this node belongs to process")
        with pytest.raises(UsageError, match="belongs to another event loop"):
            await asyncio.to_thread(lambda: asyncio.run(node.status()))
        await node.close()
        await node.close()
    with pytest.raises(ClosedError, match="was left"):
        await table.get("a")
    with pytest.raises(ClosedError, match="entered once"):
        await _enter(node)
    assert [row async for row in node.live("SELECT 1 AS n")] == []


async def _upsert_and_patch(node: Node, table: Table[dict[str, Any]]) -> None:
    async with node.transaction() as rows:
        rows.upsert(table, {"id": "z"})
        rows.patch(table, "none", n=1)


async def _enter(context: Any) -> None:
    async with context:
        pass


async def test_nothing_of_the_disk_is_waited_for_on_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From founding to leaving: statements, connections, syncs and new keys, each on some other thread."""
    here: list[str] = []
    loop_thread = threading.get_ident()

    def watched(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def call(*arguments: Any, **named: Any) -> Any:
            if threading.get_ident() == loop_thread:
                here.append(f"{name} {arguments[-1] if arguments else ''}"[:200])
            return real(*arguments, **named)

        monkeypatch.setattr(owner, name, call)

    for owner, name in ((Tx, "execute"), (Tx, "executemany"), (sqlite3, "connect"), (os, "fsync"), (home, "write_key")):
        watched(owner, name)
    async with Node.open(tmp_path / "n", **alone()) as node:
        notes = node.table("t")
        await node.add_table("t", {"id": "TEXT"}, {"n": "INTEGER"})
        await notes.upsert(*({"id": str(number), "n": number} for number in range(300)))
        await notes.patch("1", n=2)
        await notes.delete("2")
        assert len([row async for row in notes.rows(Where("n > ?", 5))]) == 294
        assert (await anext(notes.changes(since=0))).row == {"id": "0", "n": 0}
        assert len(await anext(node.live("SELECT * FROM t"))) == 299
        for call in (node.status, node.peers, node.notices, node.conflicts, node.tables, node.metrics, node.invite):
            await call()
        await node.set_config({"max_links": 3})
        await node.evict("t", before_ms=1)
        await node.wait(timeout_s=0)
    assert here == []

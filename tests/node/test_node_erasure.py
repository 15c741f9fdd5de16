"""An erasure that is due is finished by the node itself: at its next start, and as soon as nobody reads any more."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.nodes import TABLE, add_notes, loopback, note, until

from meshnode import Node
from meshnode.engine.forget import ERASURE_DUE
from meshnode.errors import BusyError, StoreError
from meshnode.node.home import Home
from meshnode.node.local import LocalNode, open_local

KEY = {"id": "n000001"}


async def filled(node: Node) -> None:
    await add_notes(node)
    await node.import_rows(TABLE, [note(number) for number in range(30)])
    await node.put(TABLE, KEY, {"title": "SECRET " * 1000})


def found(home: Home) -> list[str]:
    """The files of the database that hold the text."""
    files = [each for each in home.path.iterdir() if each.name.startswith(home.database_path.name)]
    assert home.database_path in files
    return [each.name for each in files if b"SECRET" in each.read_bytes()]


async def told(node: LocalNode) -> bool:
    return ERASURE_DUE in {notice.kind for notice in (await node.status()).notices}


def no_disk(point: str) -> None:
    if point == "VACUUM":
        raise sqlite3.OperationalError("database or disk is full")


async def left_due(home: Path) -> Home:
    """A home whose node forgot a row, could not erase it, and ended."""
    async with Node(home, config=loopback()) as node:
        await filled(node)
        database = node.storage.engine.context.db
        database._connection.execute("PRAGMA secure_delete = OFF")
        database._fault = no_disk
        with pytest.raises(StoreError, match="disk is full"):
            await node.forget(TABLE, KEY)
        assert await told(node)
        assert found(node.home)
        return node.home


async def test_the_next_start_finishes_it(tmp_path: Path) -> None:
    home = await left_due(tmp_path / "n")
    assert found(home)
    async with Node(home.path, config=loopback()) as node:

        async def erased() -> bool:
            return not found(home) and not await told(node)

        await until(node, erased)
        assert len(await node.rows(TABLE)) == 29


async def test_a_verb_that_writes_finishes_it_without_a_node(tmp_path: Path) -> None:
    home = await left_due(tmp_path / "n")
    async with open_local(home, writing=True) as local:
        assert not await told(local)
        assert not found(home)


async def test_a_running_node_finishes_it_once_nobody_reads_any_more(tmp_path: Path) -> None:
    async with Node(tmp_path / "n", config=loopback()) as node:
        await filled(node)
        node.storage.engine.context.db._connection.execute("PRAGMA busy_timeout = 50")
        with closing(sqlite3.connect(node.home.database_path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute(f"SELECT count(*) FROM {TABLE}").fetchone()
            with pytest.raises(BusyError):
                await node.forget(TABLE, KEY)
            assert await told(node)
            assert found(node.home)
            await node.put(TABLE, {"id": "meanwhile"}, {"title": "goes on"})

        async def erased() -> bool:
            return not found(node.home) and not await told(node)

        await until(node, erased)
        assert await node.get(TABLE, KEY) is None
        assert (await node.get(TABLE, {"id": "meanwhile"})) is not None

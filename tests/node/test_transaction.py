"""`node.transaction()`: several rows of several tables, all of them or none."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from meshnode.errors import NotFoundError, UsageError
from meshnode.node.config import Config
from meshnode.node.founding import found
from meshnode.node.home import Home
from meshnode.node.local import LocalNode, open_local
from meshnode.node.transaction import Transaction


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[LocalNode]:
    home = Home(tmp_path / "n", Config())
    home.prepare()
    await found(home, name="desk")
    async with open_local(Home.load(home.path), writing=True) as node:
        await node.add_table("a", {"id": "TEXT"}, {"n": "INTEGER"})
        await node.add_table("s.b", {"id": "TEXT"}, {"n": "INTEGER"})
        yield node


async def events(node: LocalNode) -> int:
    return (await node.status()).events


async def test_rows_of_several_tables_are_written_together(node: LocalNode) -> None:
    await node.put("a", {"id": "old"}, {"n": 0})
    async with node.transaction() as rows:
        rows.put("a", {"id": "x"}, {"n": 1})
        rows.put("s.b", {"id": "y"}, {"n": 2})
        rows.remove("a", {"id": "old"})
        rows.put("a", {"id": "x"}, {"n": 3})
        assert await events(node) == 1
        with pytest.raises(UsageError, match="ask after it"):
            _ = rows.receipt
    assert (rows.receipt.table, rows.receipt.events, len(rows.receipt.event_ids)) == ("a, s.b", 4, 4)
    assert [row.flat() for row in await node.rows("a")] == [{"id": "x", "n": 3}]
    assert [row.flat() for row in await node.rows("s.b")] == [{"id": "y", "n": 2}]


async def write(node: LocalNode, *asked: tuple[str, str, dict[str, Any] | None]) -> Transaction:
    async with node.transaction() as rows:
        for table, name, columns in asked:
            if columns is None:
                rows.remove(table, {"id": name})
            else:
                rows.put(table, {"id": name}, columns)
    return rows


async def test_an_error_in_the_block_writes_nothing(node: LocalNode) -> None:
    transactions = []

    async def block() -> None:
        async with node.transaction() as rows:
            transactions.append(rows)
            rows.put("a", {"id": "x"}, {"n": 1})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await block()
    assert await events(node) == 0
    with pytest.raises(UsageError, match="nothing of this transaction was written: an error ended it"):
        _ = transactions[0].receipt
    with pytest.raises(UsageError, match="has ended"):
        transactions[0].put("a", {"id": "x"}, {"n": 1})


async def test_one_row_that_cannot_be_written_keeps_all_others_out(node: LocalNode) -> None:
    with pytest.raises(NotFoundError):
        await write(node, ("a", "x", {"n": 1}), ("s.b", "none", None))
    with pytest.raises(UsageError, match="no column"):
        await write(node, ("s.b", "y", {"n": 1}), ("a", "x", {"unknown": 1}))
    with pytest.raises(UsageError, match="names no table"):
        await write(node, ("s.b", "y", {"n": 1}), ("a.b.c", "x", {}))
    assert await events(node) == 0


async def test_a_row_that_its_table_refuses_keeps_all_others_out(node: LocalNode) -> None:
    with closing(sqlite3.connect(node.storage.file.path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE c (id TEXT PRIMARY KEY, n NOT NULL)")
    await node.add_table("c", {}, {})
    with pytest.raises(UsageError, match="does not allow"):
        await write(node, ("a", "x", {"n": 1}), ("c", "x", {"n": None}))
    assert (await events(node), await node.rows("a")) == (0, [])


async def test_an_empty_transaction(node: LocalNode) -> None:
    receipt = (await write(node)).receipt
    assert (receipt.table, receipt.events, receipt.event_ids) == ("", 0, [])
    assert await events(node) == 0

"""SSP/1 §13.6 at a running node: the application alters its tables, and nobody has to tell the node."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from support.nodes import PATIENCE_S, TABLE, add_notes, loopback, note, until

from meshnode import Node
from meshnode.limits import BATCH_EVENTS
from meshnode.node.bell import Bell

ROWS = BATCH_EVENTS * 10


def _alter(node: Node, *statements: str) -> None:
    with closing(sqlite3.connect(node.home.database_path, timeout=10)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


async def test_a_large_table_that_was_dropped_comes_back_by_itself(tmp_path: Path) -> None:
    async with Node(tmp_path / "n", config=loopback()) as node:
        await add_notes(node)
        for start in range(0, ROWS, BATCH_EVENTS):
            await node.import_rows(TABLE, [note(number) for number in range(start, start + BATCH_EVENTS)])
        digest = await node.digest(TABLE)
        sql = await node.storage.read(
            lambda tx: tx.execute("SELECT sql FROM sqlite_master WHERE name = ?", (TABLE,)).fetchone()[0]
        )
        _alter(node, f"DROP TABLE {TABLE}", sql)

        async def whole() -> bool:
            return await node.digest(TABLE) == digest

        await until(node, whole)


async def test_an_idle_node_notices_and_rebuilds_a_gained_column(tmp_path: Path) -> None:
    async with Node(tmp_path / "n", config=loopback()) as node:
        await add_notes(node)
        await node.put(TABLE, {"id": "n1"}, {"title": "Milk"})
        rung = node.storage.changed.listen()
        _alter(node, f"ALTER TABLE {TABLE} DROP COLUMN title", f"ALTER TABLE {TABLE} ADD COLUMN title TEXT")
        await Bell.wait(rung, PATIENCE_S)  # nobody reads or writes meanwhile
        with closing(sqlite3.connect(node.home.database_path)) as connection:
            assert connection.execute(f"SELECT title FROM {TABLE}").fetchall() == [("Milk",)]

"""A disk that is full: its owner reads so in `status`, and what did not fit comes once there is room."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from support.nodes import PATIENCE_S, TABLE, add_notes, loopback, until

from meshnode import Node, join


def full(point: str) -> None:
    if point.startswith("INSERT INTO meshnode_log"):
        raise sqlite3.OperationalError("database or disk is full")


async def test_a_full_disk_is_named_on_the_device_that_has_it_and_to_nobody_else(tmp_path: Path) -> None:
    async with Node(tmp_path / "a", config=loopback()) as a:
        await add_notes(a)
        await join(tmp_path / "b", (await a.invite()).invite, name="b")
        async with Node(tmp_path / "b", config=loopback()) as b:
            await add_notes(b)
            assert (await a.wait(timeout_s=PATIENCE_S)).complete
            database = b.storage.engine.context.db
            usual, database._fault = database._fault, full
            await a.put(TABLE, {"id": "n"}, {})

            async def notes(node: Node, text: str) -> bool:
                return text in (await node.peers())[0].note

            await until(b, lambda: notes(b, "disk is full"), seconds=20)
            await until(a, lambda: notes(a, "the last link ended: internal error"), seconds=20)
            database._fault = usual
            assert (await a.wait(timeout_s=PATIENCE_S)).complete
            assert await b.get(TABLE, {"id": "n"}) is not None

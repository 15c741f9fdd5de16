"""A home, and a node in memory that answers the verbs there as if it ran in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.memory_node import MemoryNode

from meshnode.control.server import ControlServer
from meshnode.node.config import Config
from meshnode.node.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "n", Config())
    home.prepare()
    home.write_incarnation(bytes(16))
    return home


@pytest.fixture
async def node(home: Home) -> AsyncIterator[MemoryNode]:
    node = MemoryNode()
    await node.add_table("notes", {"id": "TEXT"}, {"title": "TEXT", "done": "INTEGER", "raw": "BLOB"})
    async with ControlServer(node, home):
        yield node

"""A node without its network, as a program embeds it: its tables, transactions and live queries."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from meshnode.node.config import Config
from meshnode.node.databases import database_of
from meshnode.node.embedding import Embedding
from meshnode.node.founding import found
from meshnode.node.home import Home
from meshnode.node.storage import Storage


@asynccontextmanager
async def embedded(folder: Path) -> AsyncIterator[Embedding]:
    """A mesh of one, founded in this folder."""
    home = Home(folder, Config())
    home.prepare()
    await found(home, name="desk")
    home = Home.load(folder)
    storage = Storage.open(database_of(home), home.site_key())
    node = Embedding(home, storage)
    try:
        yield node
    finally:
        await storage.close()

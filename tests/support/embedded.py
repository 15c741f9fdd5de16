"""A node without its network, as a program embeds it: its tables, transactions and live queries."""

from __future__ import annotations

import os
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from meshnode.errors import ClosedError
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


def in_a_fork(misused: Callable[[], object]) -> str:
    """What it is told there."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():  # Python 3.12 warns of threads, which nothing here waits for
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:  # nothing of the parent may run on here
        with suppress(BaseException):
            try:
                misused()
            except ClosedError as error:
                os.write(writing, str(error).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        text = told.read()
    os.waitpid(pid, 0)
    return text

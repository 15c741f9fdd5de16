"""An app that is attached to a node, as tests have it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from meshnode import Attached, Config, Home, Node, attach
from meshnode.control.server import ControlServer
from meshnode.node.bell import Bell
from support.nodes import PATIENCE_S, loopback


@dataclass
class Item:
    """A row of the tables of the apps here."""

    id: str
    title: str = ""
    number: int = 0


@asynccontextmanager
async def serving_node(home: Path, config: Config | None = None) -> AsyncIterator[Node]:
    """A node that answers over its control socket, as `meshnode up` has it."""
    async with Node(home, config=config or loopback(name=home.name)) as node, ControlServer(node, Home(home, Config())):
        yield node


def attached(folder: Path, home: Path, schema: str = "notes", *, patience_s: float = PATIENCE_S) -> Attached:
    """An app with a file of its own, named after its schema."""
    return attach(folder / f"{schema}.db", schema=schema, home=home, patience_s=patience_s)


async def shows(app: Attached, holds: Callable[[dict[str, Item]], bool], table: str = "items") -> dict[str, Item]:
    """The rows of a table, by id, once it holds of them."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            rung = app.storage.changed.listen()
            if table in {each.table for each in await app.tables()}:
                found = {row.id: row async for row in app.table(table, Item).rows()}
                if holds(found):
                    return found
            await Bell.wait(rung, 1.0)

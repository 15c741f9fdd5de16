"""Two members of one mesh for the peers that run this project's own engine: A makes both homes, B opens its own."""

from __future__ import annotations

from pathlib import Path

from peer import FOLDER, PORT

from meshnode.bench.homes import founded, joined
from meshnode.node.home import Home
from meshnode.node.local import open_local

TABLE = "changes"
COLUMNS = {"i": "INTEGER", "title": "TEXT", "body": "TEXT", "done": "INTEGER", "rank": "REAL"}
ADDRESS = f"127.0.0.1:{PORT}"


async def both() -> Home:
    """A's home; B's is in B's folder then."""
    home = await founded(Path(FOLDER) / "home")
    (other,) = await joined(home, [Path(FOLDER).parent / "b" / "home"], ADDRESS)
    for each in (home, other):
        async with open_local(each, writing=True) as node:
            await node.add_table(TABLE, {"id": "TEXT"}, COLUMNS)
    return home


def own() -> Home:
    """B's home."""
    return Home.load(Path(FOLDER) / "home")

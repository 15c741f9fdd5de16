"""Homes for the nodes of a scenario: a founder, and members that it vouched for without a ceremony."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from meshnode.bench.workload import add_table
from meshnode.errors import CloseCode, StoreError
from meshnode.model.site import SiteKey
from meshnode.node.config import Config
from meshnode.node.founding import SEED_BYTES, Found, found, settle_joined
from meshnode.node.home import JOINING, Home
from meshnode.node.jobs import StoreJobs
from meshnode.node.local import LocalNode, open_local


async def founded(folder: Path) -> Home:
    """A home with a mesh of its own, and the table."""
    home = Home(folder, Config())
    home.prepare()
    await found(home, name=folder.name)
    async with open_local(home.reloaded(), writing=True) as node:
        await add_table(node)
    return home.reloaded()


async def joined(founder: Home, folders: list[Path], address: str) -> list[Home]:
    """Homes of further members, with the table, that know at which address the founder answers."""
    async with open_local(founder, writing=True) as node:
        homes = [await _let_in(node, folder, address) for folder in folders]
    for home in homes:
        async with open_local(home, writing=True) as node:
            await add_table(node)
    return homes


async def _let_in(node: LocalNode, folder: Path, address: str) -> Home:
    home = Home(folder, Config())
    home.prepare()
    home.begin(JOINING)
    key = home.write_site_key(secrets.token_bytes(SEED_BYTES))
    records = await StoreJobs(node.storage).let_in(key.public_key, folder.name)
    if isinstance(records, CloseCode):
        raise StoreError(f"the member {folder.name} could not be let in: {records.name.lower()}")
    context = node.storage.engine.context
    settle_joined(home, key, Found(context.mesh_id, context.founder, context.site, records, address), folder.name)
    return home.reloaded()


def new_author() -> SiteKey:
    """A member whose events a scenario makes itself."""
    return SiteKey.from_seed(secrets.token_bytes(SEED_BYTES))


@contextmanager
def looking_at(path: Path) -> Iterator[sqlite3.Connection]:
    """The database of a node that may run, for looks that cost it nothing."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)) as connection:
        yield connection


def number(connection: sqlite3.Connection, sql: str, *values: object) -> float:
    """One number out of it, 0 where there is none."""
    return float((connection.execute(sql, values).fetchone() or (0,))[0] or 0)


def event_bytes(connection: sqlite3.Connection) -> float:
    """How long the events at the end of its log are, on average."""
    return number(
        connection, "SELECT avg(length(event)) FROM (SELECT event FROM meshnode_log ORDER BY position DESC LIMIT 1000)"
    )


def log_end(connection: sqlite3.Connection) -> int:
    """The last position of its log."""
    return int(number(connection, "SELECT max(position) FROM meshnode_log"))


def database_bytes(connection: sqlite3.Connection) -> int:
    """Its size once the WAL is in it."""
    return int(number(connection, "PRAGMA page_count") * number(connection, "PRAGMA page_size"))

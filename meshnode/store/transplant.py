"""The node's tables go from one SQLite file into another one: into an application's, and out of it again.

One transaction of the file that they go to; the one that they come from is only read. Whoever calls it lets the copy
count, and takes the tables out of the other file, in that order: wherever that is cut short, one of the two is whole
and is the one that the settings name.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Final

from meshnode.errors import StoreError
from meshnode.store import meta, schema
from meshnode.store.capture import is_trigger
from meshnode.store.database import Tx
from meshnode.store.tables import quote

_BROUGHT: Final = "adopted_with"
JOURNAL: Final = "adopted_journal"
"""In `meshnode_meta`: how the application's file kept its journal before."""


def site_in(tx: Tx) -> bytes | None:
    """The site whose tables the file holds."""
    if not schema.is_present(tx):
        return None
    site = meta.read(tx, meta.SITE)
    return site if isinstance(site, bytes) else None


def bring(tx: Tx, tables: Collection[str]) -> None:
    """Copy the node's tables, and these that the mesh has, from `source`; StoreError where one is there already."""
    for name in tables:
        if tx.execute("SELECT 1 FROM main.sqlite_master WHERE name = ? COLLATE NOCASE", (name,)).fetchone():
            raise StoreError(
                f"both databases have a table {name!r}, and the mesh has the node's: rename or drop one of them first"
            )
    found = tx.execute(
        "SELECT type, name, tbl_name, sql FROM source.sqlite_master WHERE sql IS NOT NULL "
        "ORDER BY CASE type WHEN 'table' THEN 0 WHEN 'index' THEN 1 ELSE 2 END, rowid"
    ).fetchall()
    for kind, name, table, sql in found:
        if not (table in schema.OWN or table in tables) or is_trigger(name):
            continue
        if kind == "table":
            tx.execute(sql)
            columns = ", ".join(
                quote(column)
                for (column,) in tx.execute(
                    "SELECT name FROM pragma_table_xinfo(?, 'source') WHERE hidden = 0", (name,)
                )
            )
            copied = f"INSERT INTO main.{quote(name)} ({columns}) SELECT {columns} FROM source.{quote(name)}"  # noqa: S608
            tx.execute(copied)
        elif kind in ("index", "trigger"):
            tx.execute(sql)
    meta.write(tx, _BROUGHT, json.dumps(list(tables)))


def clear(tx: Tx) -> None:
    """Take out all that `bring` brought: the copy does not count."""
    if schema.is_present(tx):
        for name in json.loads(meta.read(tx, _BROUGHT) or "[]"):
            tx.execute(f"DROP TABLE IF EXISTS main.{quote(name)}")
    take_out(tx)


def take_out(tx: Tx) -> None:
    """Drop the node's tables and the triggers that capture; everything else stays."""
    for (name,) in tx.execute("SELECT name FROM main.sqlite_master WHERE type = 'trigger'").fetchall():
        if is_trigger(name):
            tx.execute(f"DROP TRIGGER main.{quote(name)}")
    schema.remove(tx)


def unregister(tx: Tx, tables: Collection[str]) -> None:
    """These are tables of the mesh no longer; events about them are held, and their clocks are kept."""
    tx.execute("DELETE FROM meshnode_captured")
    tx.execute("DELETE FROM meshnode_adopted")
    for name in tables:
        tx.execute(
            "UPDATE meshnode_tables SET registered = 0 WHERE CASE schema WHEN 'main' THEN name "
            "ELSE schema || '.' || name END = ?",
            (name,),
        )

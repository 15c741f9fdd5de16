"""Watermarks that peers told, kept over restarts and while they are away: evidence for people (SSP/1 §14.2).

No cursor and no watermark of this node depends on them. A group that a peer told nothing of is not here: it counts as
not applied there, never as up to date.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from meshnode.model.delivery import GroupName, Told
from meshnode.model.hlc import Hlc
from meshnode.store import schema
from meshnode.store.database import Tx
from meshnode.store.u64 import from_sql, to_sql

TOLD_FORMAT: Final = 2  # of the database, from which they are kept


class ToldRow(NamedTuple):
    """One group as a peer told it; its author by number."""

    site_no: int
    schema: str
    table: str
    told: Told


def of_peer(tx: Tx, peer: bytes) -> dict[GroupName, Told]:
    """Everything that a peer told."""
    if schema.format_of(tx) < TOLD_FORMAT:
        return {}
    found = tx.execute(
        "SELECT s.site, t.schema, t.name, t.physical, t.logical, t.told_ms FROM meshnode_told AS t"
        " JOIN meshnode_sites AS p ON p.no = t.peer_no JOIN meshnode_sites AS s ON s.no = t.site_no WHERE p.site = ?",
        (peer,),
    )
    return {(row[0], row[1], row[2]): Told(Hlc(from_sql(row[3]), from_sql(row[4])), row[5]) for row in found}


def keep(tx: Tx, peer_no: int, rows: Iterable[ToldRow]) -> None:
    """Keep these in place of what the peer told of the same groups before."""
    tx.executemany(
        "INSERT OR REPLACE INTO meshnode_told (peer_no, site_no, schema, name, physical, logical, told_ms)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (peer_no, *row[:3], to_sql(row.told.hlc.physical), to_sql(row.told.hlc.logical), row.told.told_ms)
            for row in rows
        ],
    )


def forget(tx: Tx, peer_no: int) -> None:
    """The peer begins to tell anew: only its last word counts."""
    tx.execute("DELETE FROM meshnode_told WHERE peer_no = ?", (peer_no,))


def has(tx: Tx, peer_no: int, site_no: int, group: tuple[str, str]) -> bool:
    """Whether the peer told something of this group."""
    row = tx.execute(
        "SELECT 1 FROM meshnode_told WHERE peer_no = ? AND site_no = ? AND schema = ? AND name = ?",
        (peer_no, site_no, *group),
    ).fetchone()
    return row is not None


def unknown_groups(tx: Tx, peer_no: int, site_no: int) -> int:
    """How many groups of one author that the peer told are of tables which do not take part here."""
    row = tx.execute(
        "SELECT count(*) FROM meshnode_told AS t LEFT JOIN meshnode_tables AS k"
        " ON k.schema = t.schema AND k.name = t.name AND k.registered = 1"
        " WHERE t.peer_no = ? AND t.site_no = ? AND k.no IS NULL",
        (peer_no, site_no),
    ).fetchone()
    return int(row[0])

"""Sites whose events are being taken back, with how many are out so far: it goes on after a restart (profile §9)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from meshnode.store import schema
from meshnode.store.database import Tx

_FORMAT: Final = 2  # that brought the table: a reader may meet a database that no program of it has opened yet


def start(tx: Tx, sites: Iterable[bytes]) -> None:
    """Events of these sites are no longer acceptable; what was begun before goes on counting."""
    tx.executemany("INSERT OR IGNORE INTO meshnode_takebacks VALUES (?, 0)", [(site,) for site in sites])


def pending(tx: Tx) -> dict[bytes, int]:
    """The sites, each with the number of its events that were taken out of the log."""
    if schema.format_of(tx) < _FORMAT:
        return {}
    return dict(tx.execute("SELECT site, events FROM meshnode_takebacks ORDER BY site").fetchall())


def count(tx: Tx, site: bytes, events: int) -> None:
    """So many more are out."""
    tx.execute("UPDATE meshnode_takebacks SET events = events + ? WHERE site = ?", (events, site))


def finish(tx: Tx) -> None:
    """All of it is done."""
    tx.execute("DELETE FROM meshnode_takebacks")

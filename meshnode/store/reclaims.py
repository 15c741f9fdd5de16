"""Evictions under way: they go on after a restart (profile §5)."""

from __future__ import annotations

from meshnode.store.database import Tx


def start(tx: Tx, table_no: int, *, everything: bool) -> None:
    """The events of this table below its horizon are to be taken out; what was to go altogether stays so."""
    tx.execute(
        "INSERT INTO meshnode_reclaims VALUES (?, ?) "
        "ON CONFLICT (table_no) DO UPDATE SET everything = max(everything, excluded.everything)",
        (table_no, int(everything)),
    )


def pending(tx: Tx) -> dict[int, bool]:
    """Table numbers, and whether everything is to go."""
    found = tx.execute("SELECT table_no, everything FROM meshnode_reclaims")
    return {table_no: bool(everything) for table_no, everything in found}


def finish(tx: Tx, table_no: int) -> None:
    """Done, or not wanted any more."""
    tx.execute("DELETE FROM meshnode_reclaims WHERE table_no = ?", (table_no,))

"""Up to which clock events of a site may come (again) that had been seen here when ours were written.

Our own events that a peer brings were written by this device before its database was restored: what it had seen then is
not known any more. Events of others were seen and left the log: evicted, compacted, forgotten, taken back.
"""

from __future__ import annotations

from collections.abc import Iterable

from meshnode.model.hlc import ZERO, Hlc
from meshnode.store.database import Tx
from meshnode.store.u64 import from_sql, to_sql


def up_to(tx: Tx, site_no: int) -> Hlc | None:
    """The highest such clock of a site."""
    row = tx.execute("SELECT physical, logical FROM meshnode_repeats WHERE site_no = ?", (site_no,)).fetchone()
    return None if row is None else Hlc(from_sql(row[0]), from_sql(row[1]))


def note(tx: Tx, site_no: int, hlc: Hlc) -> None:
    """Events up to `hlc` may be repeats from now on."""
    before = up_to(tx, site_no)
    if before is None or hlc > before:
        values = (site_no, to_sql(hlc.physical), to_sql(hlc.logical))
        tx.execute("INSERT OR REPLACE INTO meshnode_repeats (site_no, physical, logical) VALUES (?, ?, ?)", values)


def note_removed(tx: Tx, own: bytes, removed: Iterable[tuple[bytes, Hlc]]) -> None:
    """Events of these sites and clocks leave the log; of our own ones it is only known once they come back."""
    newest: dict[bytes, Hlc] = {}
    for site, hlc in removed:
        if site != own and hlc > newest.get(site, ZERO):
            newest[site] = hlc
    for site, hlc in newest.items():
        row = tx.execute("SELECT no FROM meshnode_sites WHERE site = ?", (site,)).fetchone()
        if row is not None:
            note(tx, row[0], hlc)

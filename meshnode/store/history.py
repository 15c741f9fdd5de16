"""What a changed membership has to know of the log and of the peers that filled it (profile §9)."""

from __future__ import annotations

from collections.abc import Iterable

from meshnode.store.database import Tx
from meshnode.store.u64 import to_sql

Bound = tuple[int, int] | None


def peers_that_sent(tx: Tx) -> list[int]:
    """The site numbers of the peers whose stream this node holds a part of."""
    return [row[0] for row in tx.execute("SELECT DISTINCT site_no FROM meshnode_inbound ORDER BY site_no")]


def add_request(tx: Tx, request_id: bytes, site_no: int, body: bytes) -> None:
    """Keep a request to one peer until it is answered (profile §8)."""
    tx.execute(
        "INSERT INTO meshnode_requests (request_id, site_no, body) VALUES (?, ?, ?)", (request_id, site_no, body)
    )


def events_outside(tx: Tx, site: bytes, spans: Iterable[tuple[Bound, Bound]]) -> int:
    """How many events of `site` in the log have an HLC in none of `spans` (above the first, up to the second)."""
    row = tx.execute("SELECT no FROM meshnode_sites WHERE site = ?", (site,)).fetchone()
    if row is None:
        return 0
    total = int(tx.execute("SELECT count(*) FROM meshnode_log WHERE site_no = ?", row).fetchone()[0])
    return total - sum(_events_within(tx, row[0], above, up_to) for above, up_to in spans) if total else 0


def _events_within(tx: Tx, site_no: int, above: Bound, up_to: Bound) -> int:
    lower, upper = above or (-1, 0), up_to or (2**64 - 1, 2**64 - 1)
    row = tx.execute(
        "SELECT count(*) FROM meshnode_log WHERE site_no = ?"
        " AND (physical, logical) > (?, ?) AND (physical, logical) <= (?, ?)",
        (site_no, to_sql(lower[0]), to_sql(lower[1]), to_sql(upper[0]), to_sql(upper[1])),
    ).fetchone()
    return int(row[0])

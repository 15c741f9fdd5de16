"""What a changed membership has to know of the log and of the peers that filled it (profile §9)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from meshnode.store.database import Tx
from meshnode.store.u64 import to_sql

Bound: TypeAlias = tuple[int, int] | None

Found: TypeAlias = tuple[int, int, int, int]
"""Position, table, state and size of one event in the log."""


def peers_that_sent(tx: Tx) -> list[int]:
    """The site numbers of the peers whose stream this node holds a part of."""
    return [row[0] for row in tx.execute("SELECT DISTINCT site_no FROM meshnode_inbound ORDER BY site_no")]


def add_request(tx: Tx, request_id: bytes, site_no: int, body: bytes, *, restored: bool = False) -> None:
    """Keep a request to one peer until it is answered (profile §8).

    `restored`: this copy may have lost what others wrote; of what the peer itself wrote nothing was dropped here.
    """
    tx.execute(
        "INSERT INTO meshnode_requests (request_id, site_no, body, restored) VALUES (?, ?, ?, ?)",
        (request_id, site_no, body, int(restored)),
    )


def doubt_peer(tx: Tx, request_id: bytes) -> None:
    """Of what the peer itself wrote something may be missing too, until it answered this request."""
    tx.execute("UPDATE meshnode_requests SET restored = 0 WHERE request_id = ? AND restored <> 0", (request_id,))


def requests(tx: Tx) -> list[tuple[bytes, int, object]]:
    """Every request that is not answered: its id, the peer's number and, where it can be read, the frame's CBOR."""
    return tx.execute("SELECT request_id, site_no, body FROM meshnode_requests").fetchall()  # type: ignore[no-any-return]


def remove_request(tx: Tx, request_id: bytes) -> None:
    """Ask nobody for this any more."""
    tx.execute("DELETE FROM meshnode_requests WHERE request_id = ?", (request_id,))


def complement(spans: Iterable[tuple[Bound, Bound]]) -> list[tuple[Bound, Bound]]:
    """What lies in none of these disjoint ascending spans, each above its first bound and up to its second."""
    gaps: list[tuple[Bound, Bound]] = []
    above: Bound = None
    for lower, upper in spans:
        if lower is not None:
            gaps.append((above, lower))
        if upper is None:
            return gaps
        above = upper
    return [*gaps, (above, None)]


def events_within(tx: Tx, site_no: int, span: tuple[Bound, Bound], limit: int) -> list[Found]:
    """The first events of a site with an HLC above the first bound and up to the second, in the order of clocks."""
    lower, upper = span[0] or (-1, 0), span[1] or (2**64 - 1, 2**64 - 1)
    return tx.execute(  # type: ignore[no-any-return]
        "SELECT position, table_no, state, length(event) FROM meshnode_log WHERE site_no = ?"
        " AND (physical, logical) > (?, ?) AND (physical, logical) <= (?, ?) ORDER BY physical, logical LIMIT ?",
        (site_no, to_sql(lower[0]), to_sql(lower[1]), to_sql(upper[0]), to_sql(upper[1]), limit),
    ).fetchall()

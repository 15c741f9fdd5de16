"""How many events the log retains, by chunk of positions, author and table, kept by triggers (`store/schema.py`).

Whoever asks how far behind a peer is looks at one chunk of the log at most, however long that is.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from meshnode.store import meta, removed
from meshnode.store.database import Tx
from meshnode.store.delivery import Reads

CHUNK_BITS: Final = 13  # 8,192 positions a chunk: what one answer may read of the log itself


class Part(NamedTuple):
    """The events of one author in one table."""

    table_no: int
    site_no: int
    events: int


def total(reads: Reads) -> int:
    """How many events the log retains."""
    return int(reads.execute("SELECT coalesce(sum(events), 0) FROM meshnode_log_counts").fetchone()[0])


def lost(tx: Tx) -> int:
    """How many positions of the log have no event, beyond those that were taken out on purpose; as it is counted."""
    return max(meta.read_counter(tx, meta.NEXT_POSITION) - 1 - total(tx) - removed.count(tx), 0)


def every(reads: Reads) -> dict[tuple[int, int, int], tuple[int, int]]:
    """Events and unresolved ones by chunk, author and table."""
    found = reads.execute("SELECT chunk, site_no, table_no, events, unresolved FROM meshnode_log_counts")
    return {tuple(row[:3]): (row[3], row[4]) for row in found if row[3] or row[4]}


def count_again(tx: Tx) -> None:
    """Forget what was counted, and count all of it."""
    tx.execute("DELETE FROM meshnode_log_counts")
    tx.execute(
        "INSERT INTO meshnode_log_counts"
        " SELECT position >> ?, site_no, table_no, count(*), sum(state = 2) FROM meshnode_log GROUP BY 1, 2, 3",
        (CHUNK_BITS,),
    )


def parts_after(reads: Reads, position: int, author_no: int, *, of_author: bool) -> list[Part]:
    """The events beyond a position that may be offered: those of one author, or those of all others."""
    whose = "site_no = ?" if of_author else "site_no <> ?"
    next_chunk = (position >> CHUNK_BITS) + 1
    found = reads.execute(
        "SELECT table_no, site_no, sum(events) FROM ("  # noqa: S608  # our own text
        f"SELECT table_no, site_no, events - unresolved AS events FROM meshnode_log_counts WHERE chunk >= ? AND {whose}"
        " UNION ALL SELECT table_no, site_no, 1 FROM meshnode_log NOT INDEXED"
        f" WHERE position > ? AND position < ? AND {whose} AND state <> 2) GROUP BY table_no, site_no",
        (next_chunk, author_no, position, next_chunk << CHUNK_BITS, author_no),
    )
    return [Part(*row) for row in found if row[2]]

"""Rows of what a peer is offered again, and of its requests that are not answered yet (profile §8)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from meshnode.errors import CorruptStateError
from meshnode.store import delivery
from meshnode.store.database import Tx
from meshnode.store.delivery import ANSWERED, EVENTS_AGAIN, OFFERED, RECORDS, RECORDS_AGAIN, Items, Reads, Stream

EVENT: Final = 0
RECORD: Final = 1


def add(tx: Tx, stream: Stream, kind: int, positions: Iterable[int], *, waiting: bool) -> None:
    """Offer these again: at once, or (`waiting`) from the next cycle on."""
    tx.executemany(
        "INSERT INTO meshnode_reoffers (site_no, path, kind, position, waiting) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET waiting = min(waiting, excluded.waiting)",
        [(*stream.key, kind, position, int(waiting)) for position in positions],
    )


def start_cycle(tx: Tx, stream: Stream, cursor: int) -> None:
    """What was rejected is offered again from here on; an event beyond the cursor comes with the log first."""
    tx.execute(
        "UPDATE meshnode_reoffers SET waiting = 0"
        " WHERE site_no = ? AND path = ? AND waiting = 1 AND (kind = ? OR position <= ?)",
        (*stream.key, RECORD, cursor),
    )


def rewind(tx: Tx, stream: Stream) -> None:
    """The stream begins at genesis: events wait until it has passed them, but for the peer's own, which it skips.

    A peer that begins anew may take this node's stream for whole (profile §6): its latest events first would be a hole.
    """
    tx.execute(
        "UPDATE meshnode_reoffers SET waiting = 1 WHERE site_no = ? AND path = ? AND kind = ? AND NOT EXISTS"
        " (SELECT 1 FROM meshnode_log AS l WHERE l.position = meshnode_reoffers.position AND l.site_no = ?)",
        (*stream.key, EVENT, stream.no),
    )


def due(tx: Tx, stream: Stream, kind: int, limit: int) -> list[int]:
    """The next positions to offer again."""
    rows = tx.execute(
        "SELECT position FROM meshnode_reoffers INDEXED BY meshnode_reoffers_due"
        " WHERE site_no = ? AND path = ? AND kind = ? AND waiting = 0"
        " ORDER BY position LIMIT ?",
        (*stream.key, kind, limit),
    )
    return [row[0] for row in rows]


def lowest(tx: Reads, stream: Stream, kind: int) -> int | None:
    """The first position that is to be offered again, None where there is none."""
    row = tx.execute(
        "SELECT min(position) FROM meshnode_reoffers WHERE site_no = ? AND path = ? AND kind = ?", (*stream.key, kind)
    ).fetchone()
    return None if row[0] is None else int(row[0])


def holds(tx: Reads, stream: Stream, position: int) -> bool:
    """Whether the event of a position is among them."""
    row = tx.execute(
        "SELECT 1 FROM meshnode_reoffers WHERE site_no = ? AND path = ? AND kind = ? AND position = ?",
        (*stream.key, EVENT, position),
    ).fetchone()
    return row is not None


def count(tx: Reads, stream: Stream) -> tuple[int, int]:
    """How many there are, and how many of them wait for the next cycle."""
    row = tx.execute(
        "SELECT count(*), coalesce(sum(waiting), 0) FROM meshnode_reoffers WHERE site_no = ? AND path = ?", stream.key
    ).fetchone()
    return int(row[0]), int(row[1])


def owed(tx: Tx, positions: Sequence[int]) -> set[int]:
    """Those of these events that some peer rejected or asked for and has not got, or may still reject: in flight."""
    found: set[int] = set()
    for site_no, path, site in tx.execute(
        "SELECT o.site_no, o.path, s.site FROM meshnode_outbound AS o JOIN meshnode_sites AS s ON s.no = o.site_no"
    ).fetchall():
        stream = Stream(bytes(site), site_no, path)
        try:
            outbound = delivery.read_outbound(tx, stream)
            staged = delivery.read_staged(tx, stream, outbound) if outbound else []
        except CorruptStateError:
            staged = []  # that stream is stopped and said so: what it had in flight is not known
        whole = [row.items for row in staged if kind_of(row.items) == EVENT and row.items.kind != OFFERED]
        found.update(each for items in whole for each in items.positions)
        sql = "SELECT 1 FROM meshnode_reoffers WHERE site_no = ? AND path = ? AND kind = ? AND position = ?"
        found.update(each for each in positions if tx.execute(sql, (*stream.key, EVENT, each)).fetchone())
    return found.intersection(positions)


def remove(tx: Tx, stream: Stream, kind: int, positions: Iterable[int]) -> None:
    """These were staged, or may not be offered any more."""
    tx.executemany(
        "DELETE FROM meshnode_reoffers WHERE site_no = ? AND path = ? AND kind = ? AND position = ?",
        [(*stream.key, kind, position) for position in positions],
    )


def restore(tx: Tx, stream: Stream, items: Items) -> None:
    """A staged frame is discarded: what no cursor would bring back goes back to where it came from."""
    if items.kind == ANSWERED:
        add_answer(tx, stream, items.request_id)
    elif items.kind in (EVENTS_AGAIN, RECORDS_AGAIN):
        add(tx, stream, kind_of(items), items.positions, waiting=False)


def kind_of(items: Items) -> int:
    """Whether a staged frame carries events or records."""
    return RECORD if items.kind in (RECORDS, RECORDS_AGAIN) else EVENT


def add_answer(tx: Tx, stream: Stream, request_id: bytes) -> None:
    """A request whose positions are queued and not yet marked answered."""
    tx.execute(
        "INSERT OR IGNORE INTO meshnode_answers (site_no, path, request_id) VALUES (?, ?, ?)",
        (*stream.key, request_id),
    )


def answers(tx: Tx, stream: Stream, limit: int = -1) -> list[bytes]:
    """The requests that are to be marked answered once everything else is staged."""
    rows = tx.execute(
        "SELECT request_id FROM meshnode_answers WHERE site_no = ? AND path = ? LIMIT ?", (*stream.key, limit)
    )
    return [row[0] for row in rows]


def remove_answer(tx: Tx, stream: Stream, request_id: bytes) -> None:
    """`answered` was staged."""
    tx.execute(
        "DELETE FROM meshnode_answers WHERE site_no = ? AND path = ? AND request_id = ?", (*stream.key, request_id)
    )

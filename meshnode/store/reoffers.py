"""Rows of what a peer is offered again, and of its requests that are not answered yet (profile §8)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from meshnode.store.database import Tx
from meshnode.store.delivery import ANSWERED, EVENTS_AGAIN, RECORDS, RECORDS_AGAIN, Items, Stream

EVENT: Final = 0
RECORD: Final = 1


def add(tx: Tx, stream: Stream, kind: int, positions: Iterable[int], *, waiting: bool) -> None:
    """Offer these again: at once, or (`waiting`) from the next cycle on."""
    tx.executemany(
        "INSERT INTO meshnode_reoffers (site_no, path, kind, position, waiting) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET waiting = min(waiting, excluded.waiting)",
        [(*stream.key, kind, position, int(waiting)) for position in positions],
    )


def add_matching(
    tx: Tx, stream: Stream, where: str, values: Sequence[object], up_to: int, *, carries: int | None = None
) -> None:
    """Offer the log rows of a request: those that the stream has passed, and those that it never carries whole.

    Those are the peer's own; where the stream offers what others than the site number `carries` wrote, all of these.
    """
    never = "site_no = ?" if carries is None else "site_no <> ?"
    tx.execute(
        "INSERT INTO meshnode_reoffers (site_no, path, kind, position, waiting)"  # noqa: S608  # `where` is our own text
        f" SELECT ?, ?, {EVENT}, position, 0 FROM meshnode_log"
        f" WHERE (position <= ? OR {never}) AND state <> 2 AND {where}"
        " ON CONFLICT DO UPDATE SET waiting = 0",
        (*stream.key, up_to, stream.no if carries is None else carries, *values),
    )


def start_cycle(tx: Tx, stream: Stream) -> None:
    """What was rejected is offered again from here on."""
    tx.execute("UPDATE meshnode_reoffers SET waiting = 0 WHERE site_no = ? AND path = ? AND waiting = 1", stream.key)


def due(tx: Tx, stream: Stream, kind: int, limit: int) -> list[int]:
    """The next positions to offer again."""
    rows = tx.execute(
        "SELECT position FROM meshnode_reoffers INDEXED BY meshnode_reoffers_due"
        " WHERE site_no = ? AND path = ? AND kind = ? AND waiting = 0"
        " ORDER BY position LIMIT ?",
        (*stream.key, kind, limit),
    )
    return [row[0] for row in rows]


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

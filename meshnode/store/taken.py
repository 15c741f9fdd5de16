"""Rows of what each peer's acks tell of our own events (`model/taken.py`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from meshnode.limits import TAKEN_RANGES
from meshnode.model.hlc import Hlc
from meshnode.model.taken import MERGED, SENT, Taken, pruned
from meshnode.store.database import Tx
from meshnode.store.delivery import Stream
from meshnode.store.u64 import from_sql, to_sql

_LOOKED_AT_EVERY: Final = 16  # frames of a stream from one look at how many ranges it has to the next


def of_peer(tx: Tx, peer_no: int) -> list[Taken]:
    """Every range, of all paths to the peer."""
    rows = tx.execute("SELECT first, last, physical, logical, kind FROM meshnode_taken WHERE peer_no = ?", (peer_no,))
    return [_taken(*row) for row in rows]


def bounds_of(tx: Tx, stream: Stream) -> tuple[int, int] | None:
    """From where to where the ranges in the order of the log go, None where there are none."""
    sql = f"SELECT min(first), max(last) FROM meshnode_taken WHERE peer_no = ? AND path = ? AND kind <= {MERGED}"  # noqa: S608
    first, last = tx.execute(sql, stream.key).fetchone()
    return None if first is None else (first, last)


def add(tx: Tx, stream: Stream, ranges: Iterable[Taken], frames: tuple[int, int]) -> None:
    """Keep what the frames from one number to another tell; of two that are alike the first ack stands."""
    tx.executemany("INSERT OR IGNORE INTO meshnode_taken VALUES (?, ?, ?, ?, ?, ?, ?)", _rows(stream, ranges))
    first, last = frames
    if (first - 1) // _LOOKED_AT_EVERY != last // _LOOKED_AT_EVERY:
        _prune(tx, stream)


def begin_again(tx: Tx, stream: Stream, sent_to: int, *, forget: bool) -> None:
    """Another epoch: up to `sent_to` a frame may have been taken without our knowing it.

    `forget` where the peer may have lost what it acknowledged.
    """
    before = [each for each in _of_stream(tx, stream) if not forget or each.kind == SENT]
    end = max([sent_to, *(each.last for each in before if each.kind == SENT)])
    _replace(tx, stream, [each for each in before if each.kind != SENT] + [Taken(0, end, None, SENT)])


def _prune(tx: Tx, stream: Stream) -> None:
    ranges = _of_stream(tx, stream)
    if len(ranges) > TAKEN_RANGES:
        _replace(tx, stream, pruned(ranges, TAKEN_RANGES))


def _of_stream(tx: Tx, stream: Stream) -> list[Taken]:
    sql = "SELECT first, last, physical, logical, kind FROM meshnode_taken WHERE peer_no = ? AND path = ?"
    return [_taken(*row) for row in tx.execute(sql, stream.key)]


def _replace(tx: Tx, stream: Stream, ranges: Iterable[Taken]) -> None:
    tx.execute("DELETE FROM meshnode_taken WHERE peer_no = ? AND path = ?", stream.key)
    tx.executemany("INSERT OR IGNORE INTO meshnode_taken VALUES (?, ?, ?, ?, ?, ?, ?)", _rows(stream, ranges))


def _rows(stream: Stream, ranges: Iterable[Taken]) -> list[tuple[object, ...]]:
    return [
        (*stream.key, each.first, each.last, each.kind, *((None, None) if each.hlc is None else map(to_sql, each.hlc)))
        for each in ranges
    ]


def _taken(first: int, last: int, physical: int | bytes | None, logical: int | bytes | None, kind: int) -> Taken:
    hlc = None if physical is None or logical is None else Hlc(from_sql(physical), from_sql(logical))
    return Taken(first, last, hlc, kind)

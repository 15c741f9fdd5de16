"""Rows of what is still to be offered to a peer again: a request of its, or a table that was opted in (profile §8).

Each stands for any number of positions; they reach the re-offer set a bounded step at a time, as the peer takes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from meshnode.store.database import Tx
from meshnode.store.delivery import Reads, Stream

START: Final = b""
_COLUMNS: Final = "no, schema, name, author, covering, own, passed, passed_others, last, place"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be offered again: events of a table (`*` is every one), of one author or (empty) of all."""

    schema: str
    name: str
    author: bytes = b""
    covering: bool = False  # what the states of the rows need, not their history
    own: bool = False  # events that the peer itself authored too


@dataclass(frozen=True, slots=True)
class Backfill:
    """One of them and how far it has come."""

    no: int
    wanted: Wanted
    passed: int  # log position that the stream had passed of what this node wrote
    passed_others: int  # likewise of what others wrote
    last: int
    place: bytes


def add(tx: Tx, stream: Stream, wanted: Wanted, *, passed: int, passed_others: int, last: int) -> None:
    """Begin, or begin again where the same was under way: what the peer was sent before may have been in vain."""
    tx.execute(
        "INSERT INTO meshnode_backfills (site_no, path, schema, name, author, covering, own, passed,"
        " passed_others, last, place) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (site_no, path, schema, name, author, covering, own)"
        " DO UPDATE SET passed = excluded.passed, passed_others = excluded.passed_others, last = excluded.last,"
        " place = excluded.place",
        (
            *stream.key,
            wanted.schema,
            wanted.name,
            wanted.author,
            int(wanted.covering),
            int(wanted.own),
            passed,
            passed_others,
            last,
            START,
        ),
    )


def pending(tx: Reads, stream: Stream, limit: int = -1) -> list[Backfill]:
    """What is under way for a stream, the oldest first; CorruptStateError where that cannot be read."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM meshnode_backfills WHERE site_no = ? AND path = ? ORDER BY no LIMIT ?",  # noqa: S608
        (*stream.key, limit),
    ).fetchall()
    return [_read(stream, row) for row in rows]


def any_pending(tx: Reads, stream: Stream) -> bool:
    """Whether anything is under way for a stream."""
    sql = "SELECT 1 FROM meshnode_backfills WHERE site_no = ? AND path = ? LIMIT 1"
    return tx.execute(sql, stream.key).fetchone() is not None


def rewind(tx: Tx, stream: Stream) -> None:
    """The stream begins at genesis: all that it had passed comes with it, what the peer wrote itself does not."""
    tx.execute(
        "UPDATE meshnode_backfills SET passed = 0, passed_others = CASE WHEN own THEN passed_others ELSE 0 END"
        " WHERE site_no = ? AND path = ?",
        stream.key,
    )


def move(tx: Tx, no: int, place: bytes) -> None:
    """It has come so far."""
    tx.execute("UPDATE meshnode_backfills SET place = ? WHERE no = ?", (place, no))


def finish(tx: Tx, no: int) -> None:
    """All of it is in the re-offer set, or was."""
    tx.execute("DELETE FROM meshnode_backfills WHERE no = ?", (no,))


def _read(stream: Stream, row: tuple[object, ...]) -> Backfill:
    no, schema, name, author, covering, own, passed, passed_others, last, place = row
    if not (
        isinstance(no, int)
        and isinstance(schema, str)
        and isinstance(name, str)
        and isinstance(author, bytes)
        and isinstance(passed, int)
        and isinstance(passed_others, int)
        and isinstance(last, int)
        and isinstance(place, bytes)
    ):
        stream.unreadable("what is to be offered again")
    wanted = Wanted(schema, name, author, bool(covering), bool(own))
    return Backfill(no, wanted, passed, passed_others, last, place)

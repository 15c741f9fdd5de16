"""The log as somebody looks through it: which rows are meant is found before their events are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from meshnode.model.hlc import Hlc
from meshnode.store.database import Tx
from meshnode.store.u64 import from_sql

SCAN_ROWS: Final = 16_384  # rows looked at in one snapshot: a long one lets the WAL grow


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows are meant; None is any."""

    table_no: int | None = None
    site_no: int | None = None
    since_ms: int | None = None  # by the event's own clock, both included
    until_ms: int | None = None
    state: int | None = None  # store.log: APPLIED and so on


class Entry(NamedTuple):
    """One row of the log, without its event."""

    position: int
    site_no: int
    hlc: Hlc
    table_no: int
    state: int
    size: int


class Found(NamedTuple):
    """The next rows that are meant."""

    entries: list[Entry]
    position: int  # up to which the log was looked through
    more: bool  # whether there may be rows beyond it


def entries_after(tx: Tx, position: int, wanted: Wanted, limit: int, size: int) -> Found:
    """At most `limit` rows, and no more than what fills `size` bytes of events, beyond a position."""
    return _looked_through(_rows(tx, position), position, wanted, limit, size)


def entries_before(tx: Tx, position: int, wanted: Wanted, limit: int, size: int) -> Found:
    """The same below a position, the newest first."""
    return _looked_through(_rows_back(tx, position), position, wanted, limit, size)


def _looked_through(rows: Any, position: int, wanted: Wanted, limit: int, size: int) -> Found:
    found: list[Entry] = []
    seen = 0
    for row in rows:
        seen += 1
        entry = Entry(row[0], row[1], Hlc(from_sql(row[2]), from_sql(row[3])), row[4], row[5], row[6])
        position = entry.position
        if _is_wanted(entry, wanted):
            found.append(entry)
            size -= entry.size
            if len(found) >= limit or size <= 0:
                return Found(found, position, True)
    return Found(found, position, seen >= SCAN_ROWS)


def _rows(tx: Tx, position: int) -> Any:
    return tx.execute(
        "SELECT position, site_no, physical, logical, table_no, state, length(event) FROM meshnode_log"
        " WHERE position > ? ORDER BY position LIMIT ?",
        (position, SCAN_ROWS),
    )


def _rows_back(tx: Tx, position: int) -> Any:
    return tx.execute(
        "SELECT position, site_no, physical, logical, table_no, state, length(event) FROM meshnode_log"
        " WHERE position < ? ORDER BY position DESC LIMIT ?",
        (position, SCAN_ROWS),
    )


def _is_wanted(entry: Entry, wanted: Wanted) -> bool:
    return (
        wanted.table_no in (None, entry.table_no)
        and wanted.site_no in (None, entry.site_no)
        and (wanted.since_ms is None or entry.hlc.physical >= wanted.since_ms)
        and (wanted.until_ms is None or entry.hlc.physical <= wanted.until_ms)
        and wanted.state in (None, entry.state)
    )


def event_at(tx: Tx, position: int) -> tuple[int, bytes]:
    """The id prefix and the bytes of a row that this snapshot has."""
    row = tx.execute(
        "SELECT id_prefix, CAST(event AS BLOB) FROM meshnode_log WHERE position = ?", (position,)
    ).fetchone()
    return row[0], bytes(row[1] or b"")

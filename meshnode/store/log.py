"""The event log: exact bytes at positions that are never used again (SSP/1 §2, profile §1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from meshnode.codec.digest import blake3_256
from meshnode.model.event import Event, parse_event_untrusted, split_event_untrusted
from meshnode.model.hlc import ZERO, Hlc
from meshnode.store.database import Tx
from meshnode.store.u64 import from_sql, to_sql

APPLIED: Final = 0
HELD: Final = 1
UNRESOLVED: Final = 2

LogRow: TypeAlias = tuple[int, int, int | bytes, int | bytes, int, int, int, bytes]


class Logged(NamedTuple):
    """One retained event as a sender reads it."""

    position: int
    site_no: int
    table_no: int
    event: bytes


def row(position: int, site_no: int, table_no: int, state: int, event: Event) -> LogRow:
    """The row of one event."""
    physical, logical = event.hlc
    return (
        position,
        site_no,
        to_sql(physical),
        to_sql(logical),
        id_prefix(event.event_id),
        table_no,
        state,
        event.data,
    )


def id_prefix(event_id: bytes) -> int:
    """The first 8 bytes of an event id as SQLite's signed integer."""
    return int.from_bytes(event_id[:8], "big", signed=True)


def append(tx: Tx, rows: Iterable[LogRow]) -> None:
    """Write the rows of one batch."""
    tx.executemany("INSERT INTO meshnode_log VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)


def find(tx: Tx, site_no: int, hlc: Hlc, event_id: bytes) -> list[tuple[int, bytes]]:
    """`(position, bytes)` of the events with this clock whose ids begin alike; the caller compares."""
    found = tx.execute(
        "SELECT position, event FROM meshnode_log WHERE site_no = ? AND physical = ? AND logical = ? AND id_prefix = ?",
        (site_no, to_sql(hlc.physical), to_sql(hlc.logical), id_prefix(event_id)),
    )
    return [(position, bytes(event)) for position, event in found]


def position_of(tx: Tx, site_no: int, hlc: Hlc, short_id: bytes) -> int | None:
    """Where the event of this site and clock whose id begins so is, None where it is not here."""
    for position, event in find(tx, site_no, hlc, short_id):
        if blake3_256(event)[: len(short_id)] == short_id:
            return position
    return None


def has_clock(tx: Tx, site_no: int, hlc: Hlc) -> bool:
    """Whether any event of the site has this clock."""
    found = tx.execute(
        "SELECT 1 FROM meshnode_log WHERE site_no = ? AND physical = ? AND logical = ? LIMIT 1",
        (site_no, to_sql(hlc.physical), to_sql(hlc.logical)),
    )
    return found.fetchone() is not None


def newest(tx: Tx, site_no: int) -> Hlc | None:
    """The highest clock of a site."""
    found = tx.execute(
        "SELECT physical, logical FROM meshnode_log WHERE site_no = ? ORDER BY physical DESC, logical DESC LIMIT 1",
        (site_no,),
    ).fetchone()
    return None if found is None else Hlc(from_sql(found[0]), from_sql(found[1]))


def newest_of_all(tx: Tx) -> Hlc:
    """The highest clock of any site."""
    numbers = tx.execute("SELECT no FROM meshnode_sites").fetchall()
    return max((found for (number,) in numbers if (found := newest(tx, number)) is not None), default=ZERO)


def read_table_after(tx: Tx, table_no: int, state: int, position: int, limit: int) -> list[Logged]:
    """The next events of one table in one state after `position`."""
    index = "INDEXED BY meshnode_log_held" if state == HELD else ""
    found = tx.execute(
        f"SELECT position, site_no, table_no, event FROM meshnode_log {index} "  # noqa: S608
        f"WHERE table_no = ? AND state = {int(state)} AND position > ? ORDER BY position LIMIT ?",
        (table_no, position, limit),
    )
    return [Logged(*each) for each in found]


def read_table_within(tx: Tx, table_no: int, above: int, up_to: int) -> list[Logged]:
    """The events of one table at positions above the first and up to the second that are not held, newest first."""
    found = tx.execute(
        "SELECT position, site_no, table_no, event FROM meshnode_log WHERE position > ? AND position <= ? "
        "AND table_no = ? AND state <> 1 ORDER BY position DESC",
        (above, up_to, table_no),
    )
    return [Logged(*each) for each in found]


def read_at(tx: Tx, position: int) -> bytes | None:
    """The bytes of one event, None where it is not in the log any more."""
    row = tx.execute("SELECT event FROM meshnode_log WHERE position = ?", (position,)).fetchone()
    return None if row is None else bytes(row[0])


def remove(tx: Tx, positions: Iterable[int]) -> None:
    """Take events out; whoever does records their positions (store/removed.py)."""
    tx.executemany("DELETE FROM meshnode_log WHERE position = ?", [(each,) for each in positions])


def scan(tx: Tx, table_no: int, state: int, after: int, limit: int) -> Iterator[tuple[int, bytes | None]]:
    """The next `limit` positions of the log, each with its event where it is one of the table in this state."""
    found = tx.execute(
        "SELECT position, CASE WHEN table_no = ? AND state = ? THEN event END FROM meshnode_log "
        "WHERE position > ? ORDER BY position LIMIT ?",
        (table_no, state, after, limit),
    )
    yield from found


def set_states(tx: Tx, state: int, positions: Iterable[int]) -> None:
    """Note what became of events that had been held."""
    tx.executemany("UPDATE meshnode_log SET state = ? WHERE position = ?", [(state, each) for each in positions])


def parse(data: bytes) -> Event:
    """A stored event: its signature was verified before it got here."""
    return parse_event_untrusted(split_event_untrusted(data), data)

"""The event log: exact bytes at positions that are never used again (SSP/1 §2, profile §1)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple, NoReturn, TypeAlias

from meshnode.codec.digest import blake3_256
from meshnode.errors import CorruptStateError, EnvelopeError
from meshnode.model.event import Event, parse_event_untrusted, split_event_untrusted
from meshnode.model.hlc import ZERO, Hlc
from meshnode.store.database import Tx
from meshnode.store.u64 import from_sql, to_sql

APPLIED: Final = 0
HELD: Final = 1
UNRESOLVED: Final = 2
HOW_TO_GO_ON: Final = "`meshnode check --repair` goes on without it, and asks the other members for it"
NEWEST_LOOKED_AT: Final = 256  # of a site's last events, where those of some tables do not count

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
    """`(position, bytes)` of the events with this clock whose ids begin alike; the caller compares.

    A row that holds no bytes is not the event that it was: like other bytes, it does not keep that from coming again.
    """
    found = tx.execute(
        "SELECT position, event FROM meshnode_log WHERE site_no = ? AND physical = ? AND logical = ? AND id_prefix = ?",
        (site_no, to_sql(hlc.physical), to_sql(hlc.logical), id_prefix(event_id)),
    )
    return [(position, event) for position, event in found if type(event) is bytes]


def holds(tx: Tx, site_no: int, hlc: Hlc, event_id: bytes) -> bool:
    """Whether an event with this clock, whose id begins alike, is in the log."""
    found = tx.execute(
        "SELECT 1 FROM meshnode_log WHERE site_no = ? AND physical = ? AND logical = ? AND id_prefix = ? LIMIT 1",
        (site_no, to_sql(hlc.physical), to_sql(hlc.logical), id_prefix(event_id)),
    )
    return found.fetchone() is not None


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


def newest_outside(tx: Tx, site_no: int, tables: Collection[int | None]) -> Hlc | None:
    """The highest clock of a site in none of these tables, among its last events: a hint, found in bounded time."""
    found = tx.execute(
        "SELECT physical, logical, table_no FROM meshnode_log WHERE site_no = ?"
        " ORDER BY physical DESC, logical DESC LIMIT ?",
        (site_no, NEWEST_LOOKED_AT),
    )
    clocks = (Hlc(from_sql(row[0]), from_sql(row[1])) for row in found if row[2] not in tables)
    return next(clocks, None)


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


def read_table_down(tx: Tx, table_no: int, above: int, from_: int, size: int) -> tuple[list[Logged], int]:
    """The events of one table that are not held, from a position down to beyond another, newest first.

    No more than it takes to fill `size` bytes; with the position below which it did not read.
    """
    events, cut = _fill(tx, "position DESC", table_no, above, from_, size)
    return events, events[-1].position - 1 if cut else above


def read_table_up(tx: Tx, table_no: int, above: int, up_to: int, size: int) -> tuple[list[Logged], int]:
    """The same from beyond a position up to another, oldest first; with the position up to which it read."""
    events, cut = _fill(tx, "position", table_no, above, up_to, size)
    return events, events[-1].position if cut else up_to


def _fill(tx: Tx, order: str, table_no: int, above: int, up_to: int, size: int) -> tuple[list[Logged], bool]:
    found = tx.execute(
        "SELECT position, site_no, table_no, event FROM meshnode_log WHERE position > ? AND position <= ? "  # noqa: S608
        f"AND table_no = ? AND state <> 1 ORDER BY {order}",
        (above, up_to, table_no),
    )
    events: list[Logged] = []
    for row in found:
        events.append(Logged(*row))
        size -= len(events[-1].event)
        if size <= 0:
            found.close()
            return events, True
    return events, False


def read_at(tx: Tx, position: int) -> bytes | None:
    """The bytes of one event, None where it is not in the log any more."""
    row = tx.execute("SELECT event FROM meshnode_log WHERE position = ?", (position,)).fetchone()
    return None if row is None else bytes(row[0])


def outline_after(tx: Tx, after: int, up_to: int, limit: int) -> list[tuple[int, int, int, int]]:
    """`(position, table, site, state)` of the next events beyond one position and up to another."""
    return tx.execute(  # type: ignore[no-any-return]
        "SELECT position, table_no, site_no, state FROM meshnode_log WHERE position > ? AND position <= ?"
        " ORDER BY position LIMIT ?",
        (after, up_to, limit),
    ).fetchall()


def read_row(tx: Tx, position: int) -> Event | None:
    """One event, None where it is not in the log any more; CorruptStateError where its bytes are not what was kept."""
    row = tx.execute("SELECT event, id_prefix FROM meshnode_log WHERE position = ?", (position,)).fetchone()
    if row is None:
        return None
    try:
        return parse(checked(position, *row))
    except EnvelopeError:
        unreadable(position)


def checked(position: int, data: object, prefix: object) -> bytes:
    """The bytes of a row, if they are those that were kept: the id of the event says so (SSP/1 §3)."""
    if type(data) is not bytes or id_prefix(blake3_256(data)) != prefix:
        unreadable(position)
    return data


def unreadable(position: int) -> NoReturn:
    """Stop whoever needs this event (NEOTH commit contract)."""
    raise CorruptStateError(
        f"the event at log position {position} cannot be read: streams that have to carry it stop there. {HOW_TO_GO_ON}"
    )


def remove(tx: Tx, positions: Iterable[int]) -> None:
    """Take events out; whoever does records their positions (store/removed.py)."""
    tx.log_touched = True
    tx.executemany("DELETE FROM meshnode_log WHERE position = ?", [(each,) for each in positions])


def label(tx: Tx, position: int, site_no: int, table_no: int, event: Event) -> None:
    """Make the columns of a row those of its event again."""
    tx.log_touched = True
    tx.execute(
        "UPDATE meshnode_log SET site_no = ?, physical = ?, logical = ?, id_prefix = ?, table_no = ?"
        " WHERE position = ?",
        (*row(position, site_no, table_no, APPLIED, event)[1:6], position),
    )


def scan(tx: Tx, table_no: int, state: int, after: int, limit: int) -> Iterator[tuple[int, bytes | None]]:
    """The next `limit` positions of the log, each with its event where it is one of the table in this state."""
    found = tx.execute(
        "SELECT position, CASE WHEN table_no = ? AND state = ? THEN event END FROM meshnode_log "
        "WHERE position > ? ORDER BY position LIMIT ?",
        (table_no, state, after, limit),
    )
    yield from found


def set_states(tx: Tx, state: int, positions: Iterable[int]) -> int:
    """Note what became of events that had been held, or had named no row; how many were in another state before."""
    tx.log_touched = True
    changed = "UPDATE meshnode_log SET state = ? WHERE position = ? AND state <> ?"
    return int(tx.executemany(changed, [(state, each, state) for each in positions]).rowcount)


def parse(data: bytes) -> Event:
    """A stored event: its signature was verified before it got here."""
    return parse_event_untrusted(split_event_untrusted(data), data)

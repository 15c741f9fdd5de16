"""What there is to offer to a peer: log and record rows in the order of their positions (SSP/1 §14.1, profile §8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, NamedTuple

from meshnode.codec.digest import blake3_256
from meshnode.errors import CorruptStateError
from meshnode.limits import BATCH_BYTES, BATCH_EVENTS, MIB
from meshnode.model.hlc import Hlc
from meshnode.store import log, removed
from meshnode.store.database import Tx
from meshnode.store.u64 import from_sql

SCAN_ROWS: Final = 8_192  # log rows looked at for one frame; more wait for the next transaction
SCAN_BYTES: Final = 16 * MIB  # bytes of events read for one frame and not offered; likewise

Allowed = Callable[[int, "int | bytes"], bool]
"""Whether the peer may get an event, by the number of its table and its HLC's milliseconds as SQLite holds them."""


@dataclass(slots=True)
class Offer:
    """The content of one frame to be, filled up to the bounds of a batch; one entry always fits."""

    positions: list[int]
    data: list[bytes]
    scanned_to: int
    exhausted: bool = False
    most: int = BATCH_EVENTS
    _bytes: int = 0

    @classmethod
    def after(cls, position: int, most: int = BATCH_EVENTS) -> Offer:
        """An empty one, for at most so many; fewer events may have that much fewer bytes."""
        return cls([], [], position, most=most)

    def add(self, position: int, data: bytes) -> bool:
        """Take one more; False where it does not fit."""
        total = self._bytes + len(data)
        if self.positions and (len(self.positions) >= self.most or total * BATCH_EVENTS > BATCH_BYTES * self.most):
            return False
        self.positions.append(position)
        self.data.append(data)
        self._bytes = total
        return True


def events_after(
    tx: Tx,
    position: int,
    peer_no: int,
    allowed: Allowed,
    last: int,
    most: int = BATCH_EVENTS,
    *,
    author_no: int | None = None,
) -> Offer:
    """The next events of the log that the peer gets: not its own, nothing unresolved, nothing that is filtered out.

    With `author_no`, only what that site wrote. `last` is the last position given out. CorruptStateError at one that is
    gone though nobody removed it on purpose.
    """
    offer = Offer.after(position, most)
    passed = "site_no = ?" if author_no is None else "site_no <> ?"
    rows = tx.execute(
        "SELECT position, table_no, physical, id_prefix,"  # noqa: S608  # our own text
        f" CASE WHEN {passed} OR state = 2 THEN NULL ELSE event END"
        " FROM meshnode_log WHERE position > ? ORDER BY position LIMIT ?",
        (peer_no if author_no is None else author_no, position, SCAN_ROWS),
    )
    scanned = passed_bytes = 0
    upcoming = position + 1
    for row_position, table_no, physical, prefix, event in rows:
        if row_position != upcoming:
            pass_over(tx, upcoming, row_position - 1)
        upcoming = row_position + 1
        if event is not None:
            if not allowed(table_no, physical):
                passed_bytes += len(event) if type(event) is bytes else 0
            elif not offer.add(row_position, log.checked(row_position, event, prefix)):
                return offer
        offer.scanned_to = row_position
        scanned += 1
        if passed_bytes > SCAN_BYTES:
            return offer
    offer.exhausted = scanned < SCAN_ROWS
    if offer.exhausted:
        pass_over(tx, upcoming, last)
    return offer


class Foreign(NamedTuple):
    """One event that another site than this one and the peer wrote."""

    position: int
    site_no: int
    hlc: Hlc
    data: bytes


def foreign_after(
    tx: Tx, position: int, up_to: int, but: tuple[int, int], allowed: Allowed
) -> Iterator[tuple[int, Foreign | None]]:
    """Each position of the log after `position`, and the event there if it may be offered to the peer.

    `but` are this node's and the peer's site numbers. At most SCAN_ROWS rows; events are read one at a time.
    """
    rows = tx.execute(
        "SELECT position, site_no, table_no, physical, logical, id_prefix,"
        " CASE WHEN site_no IN (?, ?) OR state = 2 THEN NULL ELSE event END"
        " FROM meshnode_log WHERE position > ? AND position <= ? ORDER BY position LIMIT ?",
        (*but, position, up_to, SCAN_ROWS),
    )
    for row_position, site_no, table_no, physical, logical, prefix, event in rows:
        if event is None or not allowed(table_no, physical):
            yield row_position, None
            continue
        data = log.checked(row_position, event, prefix)
        yield row_position, Foreign(row_position, site_no, Hlc(from_sql(physical), from_sql(logical)), data)


def authors_after(tx: Tx, position: int, but: tuple[int, int], allowed: Allowed) -> Iterator[tuple[int, int | None]]:
    """As `foreign_after`, but only who wrote each event, which needs none of its bytes."""
    rows = tx.execute(
        "SELECT position, table_no, physical, CASE WHEN site_no IN (?, ?) OR state = 2 THEN NULL ELSE site_no END"
        " FROM meshnode_log WHERE position > ? ORDER BY position LIMIT ?",
        (*but, position, SCAN_ROWS),
    )
    for row_position, table_no, physical, site_no in rows:
        yield row_position, site_no if site_no is not None and allowed(table_no, physical) else None


class Passable(NamedTuple):
    """The next rows of the log, where none of them may be offered: how many, the last one, whether any is missing."""

    rows: int
    last: int
    whole: bool


def none_after(tx: Tx, position: int, but: tuple[int, int]) -> Passable | None:
    """The rows that `authors_after` would look at, in one step, where it would name no author; else None."""
    rows, last, others = tx.execute(
        "SELECT count(*), max(position), total(site_no NOT IN (?, ?) AND state <> 2) FROM"
        " (SELECT position, site_no, state FROM meshnode_log WHERE position > ? ORDER BY position LIMIT ?)",
        (*but, position, SCAN_ROWS),
    ).fetchone()
    if others:
        return None
    return Passable(rows, last, last - position == rows) if rows else Passable(0, position, True)


def events_at(tx: Tx, positions: Iterable[int], allowed: Allowed, most: int = BATCH_EVENTS) -> tuple[Offer, list[int]]:
    """Events at these positions, and which are done with: staged, gone, or not for the peer any more."""
    offer, done = Offer.after(0, most), []
    for position in positions:
        row = tx.execute(
            "SELECT table_no, physical, state, id_prefix, event FROM meshnode_log WHERE position = ?", (position,)
        ).fetchone()
        if row is None:
            pass_over(tx, position, position)
        elif row[2] != 2 and allowed(row[0], row[1]) and not offer.add(position, log.checked(position, row[4], row[3])):
            break
        done.append(position)
    return offer, done


def newest_of(tx: Tx, site_no: int, after: int, limit: int) -> list[int]:
    """The positions of a site's latest events, the last one first, down to `after`: at most `limit`."""
    rows = tx.execute(
        "SELECT position FROM meshnode_log WHERE site_no = ?"
        " ORDER BY physical DESC, logical DESC, id_prefix DESC LIMIT ?",
        (site_no, limit),
    )
    return [row[0] for row in takewhile(lambda row: row[0] > after, rows)]


def records_after(tx: Tx, position: int) -> Offer:
    """The next records; every stored one goes to every peer (profile §9)."""
    offer = Offer.after(position)
    rows = tx.execute(
        "SELECT position, record, record_id FROM meshnode_records WHERE position > ? ORDER BY position LIMIT ?",
        (position, BATCH_EVENTS + 1),
    )
    for row_position, record, record_id in rows:
        if not offer.add(row_position, _checked_record(row_position, record, record_id)):
            return offer
        offer.scanned_to = row_position
    offer.exhausted = True
    return offer


def records_at(tx: Tx, positions: Iterable[int]) -> tuple[Offer, list[int]]:
    """Records to offer again, and the positions that are done with."""
    offer, done = Offer.after(0), []
    for position in positions:
        row = tx.execute("SELECT record, record_id FROM meshnode_records WHERE position = ?", (position,)).fetchone()
        if row is not None and not offer.add(position, _checked_record(position, *row)):
            break
        done.append(position)
    return offer, done


def _checked_record(position: int, record: object, record_id: object) -> bytes:
    if type(record) is not bytes or blake3_256(record) != record_id:
        raise CorruptStateError(
            f"the membership record at position {position} cannot be read: streams that have to carry it stop there. "
            "Restore the database from a backup"
        )
    return record


def pass_over(tx: Tx, first: int, last: int) -> None:
    """These positions are not in the log: only those recorded as removed may be passed over (profile §8)."""
    lost = removed.first_unrecorded(tx, first, last)
    if lost is not None:
        raise CorruptStateError(
            f"the event at log position {lost} is missing, and nothing says that it was removed: streams that have to "
            f"carry it stop there. {log.HOW_TO_GO_ON}"
        )

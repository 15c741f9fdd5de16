"""What there is to offer to a peer: log and record rows in the order of their positions (SSP/1 §14.1, profile §8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, NoReturn

from meshnode.errors import CorruptStateError
from meshnode.limits import BATCH_BYTES, BATCH_EVENTS, MIB
from meshnode.model.hlc import Hlc
from meshnode.store import removed
from meshnode.store.database import Tx
from meshnode.store.u64 import from_sql

SCAN_ROWS: Final = 8_192  # log rows looked at for one frame; more wait for the next transaction
SCAN_BYTES: Final = 16 * MIB  # bytes of events read for one frame and not offered; likewise

Allowed = Callable[[int], bool]
"""Whether the peer may get events of the table of this number."""


@dataclass(slots=True)
class Offer:
    """The content of one frame to be, filled up to the bounds of a batch; one entry always fits."""

    positions: list[int]
    data: list[bytes]
    scanned_to: int
    exhausted: bool = False
    _bytes: int = 0

    @classmethod
    def after(cls, position: int) -> Offer:
        """An empty one."""
        return cls([], [], position)

    def add(self, position: int, data: bytes) -> bool:
        """Take one more; False where it does not fit."""
        total = self._bytes + len(data)
        if self.positions and (len(self.positions) >= BATCH_EVENTS or total > BATCH_BYTES):
            return False
        self.positions.append(position)
        self.data.append(data)
        self._bytes = total
        return True


def events_after(
    tx: Tx, position: int, peer_no: int, allowed: Allowed, last: int, *, author_no: int | None = None
) -> Offer:
    """The next events of the log that the peer gets: not its own, nothing unresolved, nothing that is filtered out.

    With `author_no`, only what that site wrote. `last` is the last position given out. CorruptStateError at one that is
    gone though nobody removed it on purpose.
    """
    offer = Offer.after(position)
    passed = "site_no = ?" if author_no is None else "site_no <> ?"
    rows = tx.execute(
        f"SELECT position, table_no, CASE WHEN {passed} OR state = 2 THEN NULL ELSE event END"  # noqa: S608  # our own
        " FROM meshnode_log WHERE position > ? ORDER BY position LIMIT ?",
        (peer_no if author_no is None else author_no, position, SCAN_ROWS),
    )
    scanned = passed_bytes = 0
    upcoming = position + 1
    for row_position, table_no, event in rows:
        if row_position != upcoming:
            pass_over(tx, upcoming, row_position - 1)
        upcoming = row_position + 1
        if event is not None:
            if type(event) is not bytes or not event:
                _unreadable_event(row_position)
            if not allowed(table_no):
                passed_bytes += len(event)
            elif not offer.add(row_position, event):
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
        "SELECT position, site_no, table_no, physical, logical,"
        " CASE WHEN site_no IN (?, ?) OR state = 2 THEN NULL ELSE event END"
        " FROM meshnode_log WHERE position > ? AND position <= ? ORDER BY position LIMIT ?",
        (*but, position, up_to, SCAN_ROWS),
    )
    for row_position, site_no, table_no, physical, logical, event in rows:
        if event is None or not allowed(table_no):
            yield row_position, None
            continue
        if type(event) is not bytes or not event:
            _unreadable_event(row_position)
        yield row_position, Foreign(row_position, site_no, Hlc(from_sql(physical), from_sql(logical)), event)


def authors_after(tx: Tx, position: int, but: tuple[int, int], allowed: Allowed) -> Iterator[tuple[int, int | None]]:
    """As `foreign_after`, but only who wrote each event, which needs none of its bytes."""
    rows = tx.execute(
        "SELECT position, table_no, CASE WHEN site_no IN (?, ?) OR state = 2 THEN NULL ELSE site_no END"
        " FROM meshnode_log WHERE position > ? ORDER BY position LIMIT ?",
        (*but, position, SCAN_ROWS),
    )
    for row_position, table_no, site_no in rows:
        yield row_position, site_no if site_no is not None and allowed(table_no) else None


def events_at(tx: Tx, positions: Iterable[int], allowed: Allowed) -> tuple[Offer, list[int]]:
    """Events to offer again, and the positions that are done with: staged, gone, or not for the peer any more."""
    offer, done = Offer.after(0), []
    for position in positions:
        row = tx.execute("SELECT table_no, state, event FROM meshnode_log WHERE position = ?", (position,)).fetchone()
        if row is None:
            pass_over(tx, position, position)
        elif row[1] != 2 and allowed(row[0]):
            if type(row[2]) is not bytes or not row[2]:
                _unreadable_event(position)
            if not offer.add(position, row[2]):
                break
        done.append(position)
    return offer, done


def records_after(tx: Tx, position: int) -> Offer:
    """The next records; every stored one goes to every peer (profile §9)."""
    offer = Offer.after(position)
    rows = tx.execute(
        "SELECT position, record FROM meshnode_records WHERE position > ? ORDER BY position LIMIT ?",
        (position, BATCH_EVENTS + 1),
    )
    for row_position, record in rows:
        if type(record) is not bytes or not record:
            raise CorruptStateError(f"the membership record at position {row_position} cannot be read")
        if not offer.add(row_position, record):
            return offer
        offer.scanned_to = row_position
    offer.exhausted = True
    return offer


def records_at(tx: Tx, positions: Iterable[int]) -> tuple[Offer, list[int]]:
    """Records to offer again, and the positions that are done with."""
    offer, done = Offer.after(0), []
    for position in positions:
        row = tx.execute("SELECT record FROM meshnode_records WHERE position = ?", (position,)).fetchone()
        if row is not None and not offer.add(position, row[0]):
            break
        done.append(position)
    return offer, done


def pass_over(tx: Tx, first: int, last: int) -> None:
    """These positions are not in the log: only those recorded as removed may be passed over (profile §8)."""
    lost = removed.first_unrecorded(tx, first, last)
    if lost is not None:
        raise CorruptStateError(
            f"the event at log position {lost} is missing, and nothing says that it was removed: streams that have to "
            "carry it stop there. Restore the database from a backup"
        )


def _unreadable_event(position: int) -> NoReturn:
    raise CorruptStateError(
        f"the event at log position {position} cannot be read: streams that have to carry it stop there. "
        "Restore the database from a backup"
    )

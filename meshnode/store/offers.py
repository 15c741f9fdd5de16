"""What there is to offer to a peer: log and record rows in the order of their positions (SSP/1 §14.1, profile §8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, NoReturn

from meshnode.errors import CorruptStateError
from meshnode.limits import BATCH_BYTES, BATCH_EVENTS, MIB
from meshnode.store import removed
from meshnode.store.database import Tx

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


def events_after(tx: Tx, position: int, peer_no: int, allowed: Allowed, last: int, most: int = BATCH_EVENTS) -> Offer:
    """The next events of the log that the peer gets: not its own, nothing unresolved, nothing that is filtered out.

    `last` is the last position given out. CorruptStateError at one that is gone though nobody removed it on purpose.
    """
    offer = Offer.after(position, most)
    rows = tx.execute(
        "SELECT position, table_no, CASE WHEN site_no = ? OR state = 2 THEN NULL ELSE event END"
        " FROM meshnode_log WHERE position > ? ORDER BY position LIMIT ?",
        (peer_no, position, SCAN_ROWS),
    )
    scanned = passed_bytes = 0
    upcoming = position + 1
    for row_position, table_no, event in rows:
        if row_position != upcoming:
            _pass_over(tx, upcoming, row_position - 1)
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
        _pass_over(tx, upcoming, last)
    return offer


def events_at(tx: Tx, positions: Iterable[int], allowed: Allowed, most: int = BATCH_EVENTS) -> tuple[Offer, list[int]]:
    """Events at these positions, and which are done with: staged, gone, or not for the peer any more."""
    offer, done = Offer.after(0, most), []
    for position in positions:
        row = tx.execute("SELECT table_no, state, event FROM meshnode_log WHERE position = ?", (position,)).fetchone()
        if row is None:
            _pass_over(tx, position, position)
        elif row[1] != 2 and allowed(row[0]):
            if type(row[2]) is not bytes or not row[2]:
                _unreadable_event(position)
            if not offer.add(position, row[2]):
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


def _pass_over(tx: Tx, first: int, last: int) -> None:
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

"""One pass over the log of a table that takes events out, in small transactions (profile §5, §8).

Two phases: the table's events are brought together by row, and then, row by row from the highest rank down, those that
`Choice` names are removed and their positions recorded. Other work may be done between two steps; what comes into the
log meanwhile is not looked at, and what left it is passed over. A process that ends in the middle leaves less removed
and nothing wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from meshnode.engine.context import Context
from meshnode.limits import BATCH_EVENTS
from meshnode.merge.needed import Needed
from meshnode.model.event import Event
from meshnode.model.hlc import Hlc
from meshnode.store import log, removed, reoffers, repeats, rows
from meshnode.store.affinity import acceptance
from meshnode.store.database import Tx
from meshnode.store.gathered import FIRST, Gathered

SCAN_ROWS: Final = 4096  # log rows looked at in one transaction
_NAME_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Row:
    """What a choice may know of the row that an event is about."""

    needed: bool  # some future of the row can still depend on this event
    withheld: bool  # its values are in the log and nowhere else


Choice = Callable[[Event, Row], bool]
"""Whether this event is to be removed."""


class Sweep:
    """Call `step` until it returns False; `finish` afterwards, or instead."""

    def __init__(self, context: Context, table_no: int, choice: Choice, why: str) -> None:
        self.events = 0
        self.bytes = 0
        self._context = context
        self._table_no = table_no
        self._choice = choice
        self._why = why
        self._gathered = Gathered(context.env.random_bytes(_NAME_BYTES).hex())
        self._created = False
        self._scanned: int | None = 0  # None: everything is gathered
        self._place = FIRST
        self._needed: dict[bytes, Needed] = {}  # by key, of the rows at `_place`

    def step(self) -> bool:
        """One small transaction; whether there is more to do."""
        if self._scanned is not None:
            with self._context.transaction() as tx:
                scanned = self._gather(tx, self._scanned)
            self._created, self._scanned = True, scanned
            return True
        with self._context.transaction() as tx:
            more, events, size = self._remove(tx)
        self.events += events
        self.bytes += size
        return more

    def finish(self) -> None:
        """Drop what was gathered."""
        if self._created:
            with self._context.transaction() as tx:
                self._gathered.drop(tx)
            self._created = False

    def _gather(self, tx: Tx, after: int) -> int | None:
        if not self._created:
            self._gathered.create(tx)
        found, seen = [], 0
        for position, data in log.scan(tx, self._table_no, log.APPLIED, after, SCAN_ROWS):
            after, seen = position, seen + 1
            if data is not None:
                found.append((position, self._table_no, log.parse(data)))
                if len(found) == BATCH_EVENTS:
                    self._gathered.add(tx, found)
                    found = []
        self._gathered.add(tx, found)
        return after if seen == SCAN_ROWS else None

    def _remove(self, tx: Tx) -> tuple[bool, int, int]:
        places = self._gathered.after(tx, self._place, BATCH_EVENTS)
        withheld: dict[bytes, bool] = {}
        chosen: dict[int, int] = {}  # position to size
        clocks: dict[int, tuple[bytes, Hlc]] = {}
        for place in places:
            data = log.read_at(tx, place.position)
            if place.row != self._place.row:
                self._needed.clear()
            self._place = place
            if data is None:
                continue
            event = log.parse(data)
            if self._context.membership.judge(event.site, event.hlc) is not None:
                continue  # it is being taken back (profile §9), and what it supersedes will be needed
            key = event.key_bytes
            if key not in withheld:
                withheld = {key: _is_withheld(tx, self._table_no, key)}
            if key not in self._needed:
                self._needed[key] = Needed(acceptance)
            if self._choice(event, Row(self._needed[key].needs(event.columns), withheld[key])):
                chosen[place.position] = len(data)
                clocks[place.position] = event.site, event.hlc
        # A peer that rejected an event waits for it: without it, its watermark of the author would stand for ever.
        gone = sorted(chosen.keys() - reoffers.owed(tx, list(chosen)))
        log.remove(tx, gone)
        removed.record(tx, gone, self._why)
        repeats.note_removed(tx, self._context.site, [clocks[position] for position in gone])
        return len(places) == BATCH_EVENTS, len(gone), sum(chosen[position] for position in gone)


def _is_withheld(tx: Tx, table_no: int, key: bytes) -> bool:
    found = rows.load(tx, table_no, [key]).get(key)
    return found is not None and found[1] is not None

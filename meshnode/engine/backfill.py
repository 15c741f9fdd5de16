"""What a peer is offered again, put into its re-offer set one bounded step at a time (profile §8, "Requests").

A request is answered with every position that it names. What this node opted in, and what a peer that opted in asks
for, is a *covering set*: of each row the events that its state can need, whatever the peer's schema is, chosen on the
clocks and never on the values (SSP/1 §13.1; proof in merge/needed.py). That takes the events of a table together by
row, which the log does not: they are gathered in a temporary table first, shared by the streams that need it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from meshnode.engine.context import Context
from meshnode.limits import BATCH_EVENTS
from meshnode.merge.needed import Needed
from meshnode.model.event import Event
from meshnode.model.scope import WILDCARD
from meshnode.store import backfills, log, offers, reoffers
from meshnode.store.affinity import acceptance
from meshnode.store.backfills import Backfill
from meshnode.store.database import Tx
from meshnode.store.delivery import Stream
from meshnode.store.gathered import FIRST, Gathered, Placed

GATHER_ROWS: Final = 512  # log rows looked at in one step while events are brought together
_NAME_BYTES: Final = 8
_POSITION: Final = struct.Struct(">Q")


def step(context: Context, tx: Tx, stream: Stream) -> bool:
    """One step of the oldest backfill of a stream; whether any is left. Called when nothing else is due."""
    found = backfills.pending(tx, stream, 2)
    if not found:
        return False
    first = found[0]
    tables = _Tables(tx, first)
    place = None
    if tables:  # of a table that nobody named there is nothing to look for
        place = (_cover if first.wanted.covering else _scan)(context, tx, stream, first, tables)
    if place is None:
        backfills.finish(tx, first.no)
    else:
        backfills.move(tx, first.no, place)
    return place is not None or len(found) > 1


class Coverage:
    """The events of some tables, brought together by row, and how far each backfill has walked through them.

    Lives in memory and in the writer's temporary tables: after a restart, or a transaction that failed, it is made
    again. A walk that goes on in the middle of a row takes the rest of that row as if nothing stood above it.
    """

    def __init__(self, context: Context) -> None:
        self.scanned = 0
        self._walks: dict[int, _Walk] = {}
        self._gathered = Gathered(context.env.random_bytes(_NAME_BYTES).hex())
        self._created = False

    def gather(self, tx: Tx, tables: _Tables, up_to: int) -> None:
        """Look at some more of the log."""
        if not self._created:
            self._gathered.create(tx)
            self._created = True
        self._gathered.add(tx, self._events(tx, tables, up_to))

    def _events(self, tx: Tx, tables: _Tables, up_to: int) -> Iterator[tuple[int, int, Event]]:
        """The next events, one in memory at a time."""
        outline = log.outline_after(tx, self.scanned, up_to, GATHER_ROWS)
        size = 0
        for position, table_no, _, state in outline:
            self.scanned = position
            if table_no in tables and state != log.UNRESOLVED:
                event = log.read_row(tx, position)
                assert event is not None
                yield position, table_no, event
                size += len(event.data)
            if size > offers.SCAN_BYTES:
                return
        if len(outline) < GATHER_ROWS:
            self.scanned = up_to

    def walk(self, backfill: Backfill) -> _Walk:
        """Where a backfill is."""
        walk = self._walks.get(backfill.no)
        if walk is None or walk.stored != backfill.place:
            walk = self._walks[backfill.no] = _Walk(backfill.place)
        return walk

    def after(self, tx: Tx, place: Placed) -> list[Placed]:
        """The next events in the order by row."""
        return self._gathered.after(tx, place, BATCH_EVENTS) if self._created else []  # the log was empty

    def left(self, backfill: Backfill) -> bool:
        """A backfill is at its end; whether nobody walks here any more."""
        del self._walks[backfill.no]
        return not self._walks

    def drop(self, tx: Tx) -> None:
        """Take away what was gathered."""
        self._gathered.drop(tx)


class _Walk:
    """Lives as long as its backfill, unless that begins again."""

    def __init__(self, stored: bytes) -> None:
        self.stored = stored
        self.place = _unpack(stored)
        self.needed: dict[tuple[int, bytes], Needed] = {}  # of the rows at `place`


class _Tables:
    """Which tables, by number, a backfill is about; looked up within one transaction."""

    def __init__(self, tx: Tx, backfill: Backfill) -> None:
        wanted = backfill.wanted
        self._every = wanted.schema == wanted.name == WILDCARD
        rows = tx.execute(
            "SELECT no FROM meshnode_tables WHERE (? OR schema = ?) AND (? OR name = ?)",
            (wanted.schema == WILDCARD, wanted.schema, wanted.name == WILDCARD, wanted.name),
        )
        self._numbers = frozenset() if self._every else frozenset(row[0] for row in rows)

    def __bool__(self) -> bool:
        return self._every or bool(self._numbers)

    def __contains__(self, table_no: int) -> bool:
        return self._every or table_no in self._numbers


def _scan(context: Context, tx: Tx, stream: Stream, backfill: Backfill, tables: _Tables) -> bytes | None:
    """The history: the next part of the log, in order. None at its end."""
    scanned = _POSITION.unpack(backfill.place)[0] if backfill.place else 0
    wanted = backfill.wanted
    author = context.sites.find(tx, wanted.author) if wanted.author else None
    if wanted.author and author is None:
        return None
    own_no, found, seen = context.sites.number(tx, context.site), [], 0
    for position, table_no, site_no, state in log.outline_after(tx, scanned, backfill.last, offers.SCAN_ROWS):
        scanned, seen = position, seen + 1
        wants = author in (None, site_no) and table_no in tables and state != log.UNRESOLVED
        if wants and _comes_again(backfill, stream, own_no, position, site_no):
            found.append(position)
    reoffers.add(tx, stream, reoffers.EVENT, found, waiting=False)
    return _POSITION.pack(scanned) if seen == offers.SCAN_ROWS else None


def _cover(context: Context, tx: Tx, stream: Stream, backfill: Backfill, tables: _Tables) -> bytes | None:
    """The covering sets of the next rows. None after the last one."""
    name = (backfill.wanted.schema, backfill.wanted.name)
    coverage = context.coverages.get(name)
    if coverage is None:
        coverage = context.coverages[name] = Coverage(context)
    walk = coverage.walk(backfill)
    if coverage.scanned < backfill.last:
        coverage.gather(tx, tables, backfill.last)
        return backfill.place
    places = coverage.after(tx, walk.place)
    own_no = context.sites.number(tx, context.site)
    found = [place.position for place in places if _is_needed(tx, stream, backfill, walk, place, own_no)]
    reoffers.add(tx, stream, reoffers.EVENT, found, waiting=False)
    if len(places) == BATCH_EVENTS:
        walk.stored = _pack(walk.place)
        return walk.stored
    if coverage.left(backfill):
        del context.coverages[name]
        coverage.drop(tx)
    return None


def _is_needed(tx: Tx, stream: Stream, backfill: Backfill, walk: _Walk, place: Placed, own_no: int) -> bool:
    if place.row != walk.place.row:
        walk.needed.clear()
    walk.place = place
    outline = log.outline_after(tx, place.position - 1, place.position, 1)
    if not outline:
        return False  # it was removed meanwhile
    _, table_no, site_no, _ = outline[0]
    event = log.read_row(tx, place.position)
    assert event is not None
    key = (table_no, event.key_bytes)
    if key not in walk.needed:
        walk.needed[key] = Needed(acceptance)
    return walk.needed[key].needs(event.columns) and _comes_again(backfill, stream, own_no, place.position, site_no)


def _comes_again(backfill: Backfill, stream: Stream, own_no: int, position: int, site_no: int) -> bool:
    """What the stream has passed, and in answer to a request the peer's own events, which it never carries."""
    if site_no == stream.no:
        return backfill.wanted.own
    return position <= (backfill.passed if site_no == own_no else backfill.passed_others)


def _pack(place: Placed) -> bytes:
    return place.row + place.rank + _POSITION.pack(place.position)


def _unpack(packed: bytes) -> Placed:
    if not packed:
        return FIRST
    row, rank, position = packed[:16], packed[16:-8], packed[-8:]
    return Placed(row, rank, _POSITION.unpack(position)[0])

"""A subscriber's way through the durable change sequence, one page over one snapshot at a time.

Whoever is further behind than the changes are kept is told every row instead, page by page, and goes on with the
changes from where it began to be told them. Rows read later may be newer than that: what changed meanwhile is told once
more, and each change stands for itself, so the end is the same. No page holds more than its rows in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

import msgspec

from meshnode.node.api import PAGE_BYTES
from meshnode.node.paging import values_size
from meshnode.node.views import ChangeView, table_text
from meshnode.store import changes, meta, queries
from meshnode.store.database import Tx
from meshnode.store.tables import Destination

ROWS_AT_ONCE: Final = 16  # clocks of rows read at a time: their keys may be a megabyte each
_ANOTHER_COPY: Final = -1

Wanted: TypeAlias = Callable[[str], bool]
"""Whether the subscriber is told of the table of this name."""


class RowPlace(NamedTuple):
    """In the middle of the rows."""

    seq: int  # where the changes go on once all rows are told
    table_no: int  # the rows up to this key of this table are told
    key_bytes: bytes


class Place(NamedTuple):
    """How far a subscriber is."""

    seq: int  # the changes up to here are told
    rows: RowPlace | None = None


def begin(tx: Tx, since: int | None) -> Place:
    """Beyond the changes up to `since`; with None, beyond those there are."""
    newest = queries.last_change(tx)
    if since is None:
        return Place(newest)
    # A number of another, newer copy of this node: everything may be news, and nothing goes beyond it.
    return Place(since if since <= newest else _ANOTHER_COPY)


def every_row() -> Place:
    """Where somebody begins who has nothing: with every row."""
    return Place(_ANOTHER_COPY)


def read_on(tx: Tx, place: Place, wanted: Wanted, limit: int) -> tuple[list[ChangeView], Place]:
    """What comes next of these tables, and where to go on then; the same place where there is nothing."""
    if place.rows is None and is_kept(tx, place.seq):
        page = queries.changes_since(tx, place.seq, limit, PAGE_BYTES)
        own = meta.read_bytes(tx, meta.SITE)
        told = [_change_view(each, own) for each in page if wanted(table_text(each.schema, each.table))]
        return told, Place(page[-1].seq) if page else place
    return _rows_on(tx, place.seq, place.rows or RowPlace(queries.last_change(tx), 0, b""), wanted, limit)


def is_kept(tx: Tx, seq: int) -> bool:
    """Whether the change sequence still reaches back to what follows `seq`."""
    return queries.oldest_change(tx) <= seq + 1


def _rows_on(tx: Tx, seq: int, rows: RowPlace, wanted: Wanted, limit: int) -> tuple[list[ChangeView], Place]:
    """The next rows as if each had just changed, all under the number that the subscriber came with.

    Only the last one carries the new number: whoever stops before it and goes on from what it saw gets all rows again.
    """
    told: list[ChangeView] = []
    room, place = PAGE_BYTES, rows
    for at, view in _rows(tx, seq, rows, wanted, ROWS_AT_ONCE):
        if len(told) >= limit or room <= 0:
            return told, Place(seq, place)
        told.append(view)
        room -= len(at.key_bytes) + values_size(view.columns)
        place = at
    if told:
        told[-1] = msgspec.structs.replace(told[-1], seq=rows.seq)
    return told, Place(rows.seq)


def _rows(tx: Tx, seq: int, place: RowPlace, wanted: Wanted, at_once: int) -> Iterator[tuple[RowPlace, ChangeView]]:
    """Every row that there ever was: what went away meanwhile, deleted or withheld, is told too."""
    registered = [(found.no, entry) for entry, found in queries.registered_tables(tx) if isinstance(found, Destination)]
    for number, entry in sorted(registered, key=lambda each: each[0]):
        if number < place.table_no or not wanted(entry.text):
            continue
        after = place.key_bytes if number == place.table_no else b""
        for stored in queries.Table(tx, entry.schema, entry.name).every(after, at_once):
            yield place._replace(table_no=number, key_bytes=stored.key_bytes), _row_as_change(entry.text, stored, seq)


def _row_as_change(table: str, stored: queries.Stored, seq: int) -> ChangeView:
    row = stored.row
    if row is None:
        op = changes.WITHHOLD if stored.state.exists else changes.DELETE
        return ChangeView(seq=seq, table=table, key=queries.key_of(stored.key_bytes), op=op, exists=False)
    return ChangeView(
        seq=seq,
        table=table,
        key=row.key,
        op=changes.UPSERT,
        exists=True,
        columns=row.columns,
        cleared=row.cleared,
        unmaterialized=row.unmaterialized,
    )


def _change_view(change: queries.Change, own_site: bytes) -> ChangeView:
    row = change.change
    cleared = row.cleared if row.exists else []
    values = {**dict.fromkeys(cleared), **row.values} if row.exists else {}
    return ChangeView(
        seq=change.seq,
        table=table_text(change.schema, change.table),
        key=change.key,
        op=row.op,
        exists=row.exists,
        columns={name: queries.presentable(value) for name, value in values.items()},
        old=row.old,
        cleared=cleared,
        unmaterialized=list(row.unmaterialized),
        partial=row.partial,
        local=row.site == own_site,
        site=row.site.hex() or None,
        hlc=(row.physical, row.logical),
    )

"""Reads what is compared with another member, once: sums of ranges, and where in the store a range's items are (§15).

The log and the rows are read in one snapshot, in slices, on whatever thread the caller has. What is kept of an item is
the number of its smallest range, two bytes, and where every 32nd of them lies: a range is listed by reading those few
slices again that its items are in.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from meshnode.limits import COMPARED_ITEMS
from meshnode.model.comparison import (
    EVENTS,
    FROZEN,
    ITEM_BYTES,
    ROWS,
    SETS,
    Agreement,
    Range,
    TableTotals,
    Total,
    item_of,
    items_of,
)
from meshnode.model.hlc import RANK_BYTES
from meshnode.model.range_tree import LEAVES, RangeTree, leaf_of, leaves_of
from meshnode.store import compared, meta
from meshnode.store.compared import ComparedRow, ComparedTable, LoggedRow
from meshnode.store.database import Tx
from meshnode.store.destinations import open_destination
from meshnode.store.names import TableNumbers
from meshnode.store.u64 import from_sql

SLICE: Final = 4096  # events or rows between two breaths
STRIDE: Final = 32  # items between two places that are kept
_PAIR: Final = struct.Struct(">QQ")
_LEAF_SHIFT: Final = 8 * (ITEM_BYTES - 2)

Breath = Callable[[int], None]
"""Called every slice with how many items were read; raises to end it."""


class Place(NamedTuple):
    """Where an item is: an event's position, or a row's key in a table of the agreement."""

    set: int
    table: int
    position: int = 0
    key: bytes = b""


class _Sums:
    """One set as it is read."""

    def __init__(self, tables: int) -> None:
        self.leaves = [0] * LEAVES
        self.counts = [0] * LEAVES
        self.tables = [0] * tables
        self.sizes = [0] * tables

    def add(self, table: int, items: Sequence[int]) -> None:
        """Items of one table."""
        leaves, counts, total = self.leaves, self.counts, 0
        for item in items:
            leaf = item >> _LEAF_SHIFT
            leaves[leaf] ^= item
            counts[leaf] += 1
            total ^= item
        self.tables[table] ^= total
        self.sizes[table] += len(items)

    def total(self, table: int) -> Total:
        return Total(self.sizes[table], self.tables[table].to_bytes(ITEM_BYTES, "big"))

    def tree(self) -> RangeTree:
        return RangeTree(self.leaves, self.counts) if any(self.sizes) else RangeTree.empty()


class _Order:
    """The smallest range of each item in the order in which they are read, and the item that each slice begins with."""

    def __init__(self) -> None:
        self.leaves = array("H")
        self.starts = array("Q")

    def add(self, items: Sequence[int]) -> range:
        """Some more, in slices of their own; returns which of them begin one."""
        begins = range(0, len(items), STRIDE)
        self.starts.extend(len(self.leaves) + at for at in begins)
        self.leaves.extend(item >> _LEAF_SHIFT for item in items)
        return begins

    def slices(self, wanted: bytearray) -> list[int]:
        """The slices that items of the marked ranges are in."""
        found = {bisect_right(self.starts, at) - 1 for at, leaf in enumerate(self.leaves) if wanted[leaf]}
        return sorted(found)


class Scan:
    """One side of a comparison as it was in one snapshot."""

    def __init__(self, tx: Tx, agreement: Agreement, breath: Breath) -> None:
        self.agreement = agreement
        self._last = meta.read_counter(tx, meta.NEXT_POSITION) - 1
        self._events, self._positions = _Order(), array("Q")  # of the first event of each slice
        self._rows = _Order()
        self._keys: list[tuple[int, bytes]] = []  # table and key of the first row of each slice
        sums = [_Sums(len(agreement.tables)) for _ in SETS]
        chosen = Chosen(tx, agreement)
        self._read_events(tx, chosen, sums[EVENTS], breath)
        for table in range(len(agreement.tables)):
            self._read_rows(tx, table, sums, breath)
        self._trees = [each.tree() for each in sums]
        self._totals = tuple(
            TableTotals(tuple(each.total(at) for each in sums), chosen.above[at], chosen.below[at])
            for at in range(len(agreement.tables))
        )

    # --- what is asked of it

    def totals(self) -> tuple[TableTotals, ...]:
        """What this side has of each table."""
        return self._totals

    def children(self, wanted: Range) -> bytes:
        """The sums of the ranges that one is divided into."""
        return self._trees[wanted.set].children(wanted)

    def items(self, tx: Tx, wanted: Sequence[Range]) -> list[dict[bytes, Place]]:
        """What the first of these ranges hold now, at least one of them and as many as fit one answer."""
        lists: list[dict[bytes, Place]] = []
        marks = {each: bytearray(LEAVES) for each in SETS}
        owners: dict[tuple[int, int], int] = {}
        size = 0
        for each in wanted:
            size += self._trees[each.set].total(each).size
            if lists and size > COMPARED_ITEMS:
                break
            for leaf in leaves_of(each):
                marks[each.set][leaf] = 1
                owners[each.set, leaf] = len(lists)
            lists.append({})
        for item, place in self._marked(tx, marks):
            of = lists[owners[place.set, leaf_of(item)]]
            if len(of) < COMPARED_ITEMS:
                of[item] = place
        return lists

    def _marked(self, tx: Tx, marks: dict[int, bytearray]) -> Iterator[tuple[bytes, Place]]:
        if any(marks[EVENTS]):
            yield from self._events_in(tx, marks[EVENTS])
        rows = bytearray(one | other for one, other in zip(marks[ROWS], marks[FROZEN], strict=True))
        if any(rows):
            found = self._rows_in(tx, rows)
            yield from ((item, place) for item, place in found if marks[place.set][leaf_of(item)])

    # --- events

    def _read_events(self, tx: Tx, chosen: Chosen, sums: _Sums, breath: Breath) -> None:
        key = self.agreement.key
        cursor = compared.logged(tx, 1, self._last)
        while page := cursor.fetchmany(SLICE):
            rows, tables = chosen.of(page)
            items = items_of(key, map(bytes_of, rows))
            if len(set(tables)) == 1:
                sums.add(tables[0], items)
            else:
                for table in set(tables):
                    sums.add(table, [item for item, of in zip(items, tables, strict=True) if of == table])
            self._positions.extend(rows[at][0] for at in self._events.add(items))
            breath(len(page))

    def _events_in(self, tx: Tx, leaves: bytearray) -> Iterator[tuple[bytes, Place]]:
        chosen = Chosen(tx, self.agreement)
        for slice_no in self._events.slices(leaves):
            following = slice_no + 1
            last = self._positions[following] - 1 if following < len(self._positions) else self._last
            for row in compared.logged(tx, self._positions[slice_no], last):
                table = chosen.table_of(row)
                item = item_of(self.agreement.key, bytes_of(row))
                if table is not None and leaves[leaf_of(item)]:
                    yield item, Place(EVENTS, table, row[0])

    # --- rows

    def _read_rows(self, tx: Tx, table: int, sums: Sequence[_Sums], breath: Breath) -> None:
        source = open_table(tx, self.agreement, table)
        if source is None:
            return
        set_of = Sorting(self.agreement, table).set_of
        unsaid = 0
        for page in compared.pages(source):
            items = items_of(self.agreement.key, compared.encoded(table, page))
            sets = list(map(set_of, page))
            if sets.count(ROWS) == len(sets):
                sums[ROWS].add(table, items)
            else:
                for set_no in (ROWS, FROZEN):
                    sums[set_no].add(table, [item for item, of in zip(items, sets, strict=True) if of == set_no])
            # A row that does not count keeps its place too: when it is listed it may.
            self._keys.extend((table, page[at].key) for at in self._rows.add(items))
            unsaid += len(page)
            if unsaid >= SLICE:
                breath(unsaid)
                unsaid = 0
        breath(unsaid)

    def _rows_in(self, tx: Tx, leaves: bytearray) -> Iterator[tuple[bytes, Place]]:
        sources: dict[int, ComparedTable | None] = {}
        for slice_no in self._rows.slices(leaves):
            table, first = self._keys[slice_no]
            if table not in sources:
                sources[table] = open_table(tx, self.agreement, table)
            source = sources[table]
            if source is None:
                continue
            rows, set_of = source.between(first, self._end_of(slice_no)), Sorting(self.agreement, table).set_of
            for row, data in zip(rows, compared.encoded(table, rows), strict=True):
                set_no, item = set_of(row), item_of(self.agreement.key, data)
                if set_no is not None and leaves[leaf_of(item)]:
                    yield item, Place(set_no, table, key=row.key)

    def _end_of(self, slice_no: int) -> bytes | None:
        """The key that the next slice of the same table begins with."""
        following = self._keys[slice_no + 1 : slice_no + 2]
        return following[0][1] if following and following[0][0] == self._keys[slice_no][0] else None


class Chosen:
    """Which events of the log are compared; counts those that are left out."""

    def __init__(self, tx: Tx, agreement: Agreement) -> None:
        self.above = [0] * len(agreement.tables)
        self.below = [0] * len(agreement.tables)
        self._bound = agreement.bound
        self._horizons = [each.horizon for each in agreement.tables]
        numbers = TableNumbers()
        entries = [numbers.entry(tx, each.schema, each.name) for each in agreement.tables]
        self._tables = {entry.no: at for at, entry in enumerate(entries) if entry.no is not None}

    def table_of(self, row: LoggedRow) -> int | None:
        """The event's table among those agreed on, None where it is not compared."""
        table = self._tables.get(row[1])
        if table is None:
            return None
        physical, logical = row[2], row[3]
        if type(physical) is not int or type(logical) is not int:
            physical, logical = from_sql(physical), from_sql(logical)
        if physical >= self._bound.physical and (physical, logical) > self._bound:
            self.above[table] += 1
            return None
        if physical <= self._horizons[table].physical and (physical, logical) < self._horizons[table]:
            self.below[table] += 1
            return None
        return table

    def of(self, page: Sequence[LoggedRow]) -> tuple[Sequence[LoggedRow], list[int]]:
        """The events of a page that are compared, and the table of each."""
        whole = self._whole(page)
        if whole is not None:
            return page, [whole] * len(page)
        found = [(row, table) for row in page if (table := self.table_of(row)) is not None]
        return [row for row, _ in found], [table for _, table in found]

    def _whole(self, page: Sequence[LoggedRow]) -> int | None:
        """The table of a page whose events are all compared, seen at a glance; None where it takes a closer look."""
        numbers, physicals = {row[1] for row in page}, [row[2] for row in page if type(row[2]) is int]
        table = self._tables.get(numbers.pop()) if len(numbers) == 1 else None
        if table is None or len(physicals) < len(page):
            return None
        lowest, highest = self._horizons[table].physical, self._bound.physical
        return table if lowest < min(physicals) and max(physicals) < highest else None


def bytes_of(row: LoggedRow) -> bytes:
    """An event's bytes; what a hand put in their place is something else than any event."""
    return row[4] if type(row[4]) is bytes else b""


class Sorting:
    """Tells the sets of a table's rows apart."""

    def __init__(self, agreement: Agreement, table: int) -> None:
        # A rank goes on after its clock: at the bound it is not above it, at the horizon not below.
        self._bound = _PAIR.pack(*agreement.bound) + b"\xff" * RANK_BYTES
        self._horizon = _PAIR.pack(*agreement.tables[table].horizon)
        self._has_horizon = any(agreement.tables[table].horizon)

    def set_of(self, row: ComparedRow) -> int | None:
        """None of a row that something later than the bound decides of, or nothing at all any more."""
        _, tombstone, groups, _ = row
        highest = groups[-1][0] if groups else tombstone
        if highest is None or highest > self._bound or (tombstone is not None and tombstone > self._bound):
            return None
        return FROZEN if self._has_horizon and row.lowest < self._horizon else ROWS


def open_table(tx: Tx, agreement: Agreement, table: int) -> ComparedTable | None:
    """The rows of a table of the agreement, None where rows are not compared, or it is no table here any more."""
    agreed = agreement.tables[table]
    if not agreed.rows:
        return None
    destination = open_destination(tx, TableNumbers().entry(tx, agreed.schema, agreed.name))
    if isinstance(destination, str) or any(name not in destination.columns for name in agreed.columns):
        return None
    return ComparedTable(tx, destination, agreed.columns)

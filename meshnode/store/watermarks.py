"""Applied watermarks per group: what was seen whole, never more (SSP/1 §14.2, profile §6)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from meshnode.limits import REJECTED_PER_GROUP
from meshnode.model.hlc import ZERO, Hlc
from meshnode.model.scope import WILDCARD
from meshnode.store import held
from meshnode.store.database import Tx
from meshnode.store.u64 import from_sql, to_sql

UNKEPT: Final = 0
"""In place of a table's number: what was rejected of a site's groups past the bound on groups, which have no row."""

_PAIR: Final = struct.Struct(">QQ")
_SELECT: Final = (
    "SELECT site_no, table_no, physical, logical, reached, rejected_low, rejected_high FROM meshnode_watermarks"
)


class Watermark(NamedTuple):
    """One group's watermark, as a peer is told it."""

    site: bytes
    schema: str
    table: str
    hlc: Hlc


@dataclass(slots=True)
class Group:
    """The progress of one (site, table). `applied` stands still while a rejected event is open or any is held.

    Of the rejected ones the lowest is kept and so many of the highest: one that came by another stream, or ahead of its
    log (feature `live`), may settle before those below it.
    """

    site_no: int
    table_no: int
    applied: Hlc = ZERO
    reached: Hlc = ZERO
    rejected_low: Hlc | None = None
    rejected_highest: tuple[Hlc, ...] = ()  # ascending
    changed: bool = False

    @property
    def is_open(self) -> bool:
        """Whether rejected events are waited for."""
        return self.rejected_low is not None or bool(self.rejected_highest)

    @property
    def rejected(self) -> list[Hlc]:
        """Those that are known, in order."""
        return sorted({*self.rejected_highest, *(() if self.rejected_low is None else (self.rejected_low,))})

    def reach(self, hlc: Hlc) -> None:
        """An event of the author's own stream settled."""
        if hlc > self.reached:
            self.reached = hlc
            self.changed = True

    def reject(self, hlc: Hlc) -> None:
        """An event was rejected and will be offered again: keep the interval that is open.

        What is claimed already is no hole, whoever repeats it while this clock is behind: nobody need offer it again.
        """
        if hlc <= self.applied:
            return
        self.rejected_low = hlc if self.rejected_low is None else min(self.rejected_low, hlc)
        if hlc not in self.rejected_highest:
            self.rejected_highest = tuple(sorted((*self.rejected_highest, hlc)))[-REJECTED_PER_GROUP:]
        self.changed = True

    def settle(self, hlc: Hlc) -> None:
        """An event that may have been rejected before got another verdict."""
        self.forgive(lambda rejected: rejected == hlc)

    def forgive(self, is_void: Callable[[Hlc], bool]) -> None:
        """Rejected events that would be dropped now are not waited for any more."""
        if self.rejected_low is not None and is_void(self.rejected_low):
            self.rejected_low = None
            self.changed = True
        left = tuple(hlc for hlc in self.rejected_highest if not is_void(hlc))
        if left != self.rejected_highest:
            self.rejected_highest = left
            self.changed = True

    def begin_anew(self) -> None:
        """All of it is asked for again: nothing rejected is waited for, and what was reached so far was not whole."""
        if self.is_open:
            self.rejected_low, self.rejected_highest = None, ()
            self.reached = self.applied
            self.changed = True

    def advance(self, *, held: bool) -> None:
        """Claim what was reached, unless something below it is open (fail closed)."""
        if not held and not self.is_open and self.reached > self.applied:
            self.applied = self.reached
            self.changed = True


def load(tx: Tx, site_no: int, table_no: int) -> Group | None:
    """The stored group, None where nothing was ever claimed or rejected in it."""
    row = tx.execute(f"{_SELECT} WHERE site_no = ? AND table_no = ?", (site_no, table_no)).fetchone()
    return None if row is None else _group(row)


def every(tx: Tx) -> list[Group]:
    """All stored groups, what no row remembers included."""
    return [_group(row) for row in tx.execute(f"{_SELECT} ORDER BY site_no, table_no").fetchall()]


def save(tx: Tx, groups: Iterable[Group]) -> None:
    """Write the groups of one batch."""
    tx.executemany(
        "INSERT OR REPLACE INTO meshnode_watermarks VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (
                each.site_no,
                each.table_no,
                to_sql(each.applied.physical),
                to_sql(each.applied.logical),
                _PAIR.pack(*each.reached),
                each.rejected_low and _PAIR.pack(*each.rejected_low),
                b"".join(_PAIR.pack(*hlc) for hlc in each.rejected_highest) or None,
            )
            for each in groups
        ],
    )


def stands(tx: Tx, group: Group) -> bool:
    """Whether a group must claim no more for now: events of it are held, or may be among what no row remembers.

    A group that claimed anything before had a row ever since, so what was rejected of it is remembered there.
    """
    if held.has_held(tx, group.site_no, group.table_no):
        return True
    unkept = load(tx, group.site_no, UNKEPT) if group.applied == ZERO else None
    return unkept is not None and unkept.is_open


def unknown_groups(tx: Tx, site_no: int) -> int:
    """How many groups of tables that do not exist here a site has (profile §6)."""
    row = tx.execute(
        "SELECT count(*) FROM meshnode_watermarks AS w JOIN meshnode_tables AS t ON t.no = w.table_no "
        "WHERE w.site_no = ? AND t.registered = 0",
        (site_no,),
    ).fetchone()
    return int(row[0])


def all_watermarks(tx: Tx) -> list[Watermark]:
    """Every group with a claim, for the `watermarks` message and the operator."""
    rows = tx.execute(
        "SELECT s.site, t.schema, t.name, w.physical, w.logical FROM meshnode_watermarks AS w "
        "JOIN meshnode_sites AS s ON s.no = w.site_no JOIN meshnode_tables AS t ON t.no = w.table_no "
        "ORDER BY s.site, t.schema, t.name"
    )
    found = (Watermark(row[0], row[1], row[2], Hlc(from_sql(row[3]), from_sql(row[4]))) for row in rows)
    return [each for each in found if each.hlc > ZERO]


def of_site(tx: Tx, site_no: int) -> list[Group]:
    """Every group of a site, what no row remembers included."""
    return [_group(row) for row in tx.execute(f"{_SELECT} WHERE site_no = ?", (site_no,)).fetchall()]


def forget_site(tx: Tx, site_no: int) -> None:
    """Nothing is claimed of a site's groups any more (fail closed)."""
    tx.execute("DELETE FROM meshnode_watermarks WHERE site_no = ?", (site_no,))


def forget_group(tx: Tx, site_no: int, table_no: int) -> None:
    """Nothing is claimed of this group any more (fail closed)."""
    tx.execute("DELETE FROM meshnode_watermarks WHERE site_no = ? AND table_no = ?", (site_no, table_no))


def advance_table(tx: Tx, table_no: int) -> None:
    """Nothing of the table is held any more: claim what its groups had reached meanwhile."""
    _advance(tx, [_group(row) for row in tx.execute(f"{_SELECT} WHERE table_no = ?", (table_no,)).fetchall()])


def advance_site(tx: Tx, site_no: int) -> None:
    """Rejected events of the site are not waited for any more: claim what its groups had reached meanwhile."""
    _advance(tx, of_site(tx, site_no))


def begin_anew(tx: Tx, schema: str, name: str) -> None:
    """The groups of a table, `*` for every name, are asked for again."""
    named = "SELECT no FROM meshnode_tables WHERE ? IN (?, schema) AND ? IN (?, name)"
    rows = tx.execute(f"{_SELECT} WHERE table_no IN ({named})", (schema, WILDCARD, name, WILDCARD)).fetchall()
    groups = [_group(row) for row in rows]
    for group in groups:
        group.begin_anew()
    save(tx, [group for group in groups if group.changed])


def _group(row: Sequence[Any]) -> Group:
    reached, low = (None if each is None else Hlc(*_PAIR.unpack(each)) for each in row[4:6])
    highest = tuple(Hlc(*each) for each in _PAIR.iter_unpack(row[6] or b""))
    return Group(row[0], row[1], Hlc(from_sql(row[2]), from_sql(row[3])), reached or ZERO, low, highest)


def _advance(tx: Tx, groups: Iterable[Group]) -> None:
    for group in groups:
        group.advance(held=stands(tx, group))
        if group.changed:
            save(tx, [group])

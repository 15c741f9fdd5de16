"""Groups whose watermark stands below what is here, and why it does not move (SSP/1 §14.2, profile §6).

Reads only. Evidence for people: nothing that the node does depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from meshnode.model.delivery import GroupName
from meshnode.model.hlc import ZERO, Hlc
from meshnode.model.scope import WILDCARD
from meshnode.store import watermarks
from meshnode.store.database import Tx
from meshnode.store.u64 import from_sql
from meshnode.store.watermarks import UNKEPT, Group

HELD: Final = "held"  # the table is not here
REJECTED: Final = "rejected"  # something was rejected, and is offered again
HOLE: Final = "hole"  # later events are here, and nothing shows that none is missing before them

LATEST_LOOKED_AT: Final = 256  # events of one site, the newest: a status does not read the log

_Key: TypeAlias = tuple[int, int]  # site and table by number


@dataclass(frozen=True, slots=True)
class Lagging:
    """One group, and up to where something of it is known here."""

    group: GroupName  # of groups that have no row together, schema and table are `*`
    applied: Hlc
    known: Hlc
    reason: str
    events: int = 0  # held


def lagging(tx: Tx, own: bytes) -> list[Lagging]:
    """All of them. Of its own events this node holds what it wrote: in those there is no hole."""
    groups = {(each.site_no, each.table_no): each for each in watermarks.every(tx)}
    held: dict[_Key, int] = {
        (row[0], row[1]): row[2]
        for row in tx.execute("SELECT site_no, table_no, events FROM meshnode_held WHERE events > 0")
    }
    sites: dict[int, bytes] = dict(tx.execute("SELECT no, site FROM meshnode_sites").fetchall())
    newest = _newest(tx, sites)
    found = []
    for key in sorted(groups.keys() | held.keys() | newest.keys()):
        group = groups.get(key) or Group(*key)
        known = max(newest.get(key, ZERO), group.reached, *group.rejected)
        reason = _reason(group, held.get(key, 0), known, is_own=sites.get(key[0]) == own)
        if reason is not None and key[0] in sites:
            name = (sites[key[0]], *_table(tx, key[1]))
            found.append(Lagging(name, group.applied, known, reason, held.get(key, 0)))
    return found


def _reason(group: Group, held: int, known: Hlc, *, is_own: bool) -> str | None:
    if held:
        return HELD
    if group.is_open:
        return REJECTED
    return HOLE if known > group.applied and not is_own else None


def _newest(tx: Tx, sites: Iterable[int]) -> dict[_Key, Hlc]:
    """The highest clocks in the log per group, of groups that are among the latest of their site."""
    newest: dict[_Key, Hlc] = {}
    for site_no in sites:
        found = tx.execute(
            "SELECT table_no, physical, logical FROM meshnode_log WHERE site_no = ?"
            " ORDER BY physical DESC, logical DESC LIMIT ?",
            (site_no, LATEST_LOOKED_AT),
        )
        for table_no, physical, logical in found:
            newest.setdefault((site_no, table_no), Hlc(from_sql(physical), from_sql(logical)))
    return newest


def _table(tx: Tx, table_no: int) -> tuple[str, str]:
    if table_no == UNKEPT:
        return WILDCARD, WILDCARD
    row = tx.execute("SELECT schema, name FROM meshnode_tables WHERE no = ?", (table_no,)).fetchone()
    return (row[0], row[1]) if row else ("", "")

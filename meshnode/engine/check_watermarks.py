"""Applied watermarks against the log: none claims more than can be demonstrated (SSP/1 §14.2, profile §6).

A watermark says that everything of its group up to it was applied. What contradicts that is a difference: an event at
or below it that is held, that was rejected and is not here, or that a row stands on and is gone; a watermark beyond
what was ever reached, or of this very node beyond its clock. One that does not end at an event of the log (a relay told
it, the event was dropped or taken out on purpose) cannot be recomputed: it is taken as given and counted.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

from meshnode.engine.findings import Findings, note
from meshnode.model.delivery import GroupName
from meshnode.model.hlc import ZERO, Hlc, Rank, hlc_of_rank
from meshnode.model.site import short_text
from meshnode.model.wording import clock_text
from meshnode.store import log, meta, watermarks
from meshnode.store.database import Tx
from meshnode.store.u64 import from_sql, to_sql
from meshnode.store.watermarks import UNKEPT, Group

_SITE_OF_RANK: Final = slice(16, 32)
_Key: TypeAlias = tuple[int, int]  # site and table by number


class Claims:
    """Gathers what rows miss while tables are checked, then looks at every watermark."""

    def __init__(self, tx: Tx, findings: Findings) -> None:
        self._tx = tx
        self._findings = findings
        self._clock = meta.read_clock(tx)
        self._own = meta.read_bytes(tx, meta.SITE)
        self._sites: dict[int, bytes] = dict(tx.execute("SELECT no, site FROM meshnode_sites").fetchall())
        self._missing: dict[tuple[bytes, int], Hlc] = {}  # by author and table: the lowest

    def misses(self, table_no: int, rank: Rank) -> None:
        """A row stands on an event that is not in the log, and nothing says that it was taken out on purpose."""
        group, hlc = (rank[_SITE_OF_RANK], table_no), hlc_of_rank(rank)
        self._missing[group] = min(self._missing.get(group, hlc), hlc)

    def check(self) -> None:
        """Every group's watermark."""
        try:
            groups = watermarks.every(self._tx)
        except (struct.error, TypeError) as error:
            self._findings.differ("", "watermarks", f"they cannot be read: {error}")
            return
        held = self._held()
        for group in groups:
            name = self._name(group)
            if name is None:
                where = f"watermark of site {group.site_no} in table {group.table_no}"
                self._findings.differ("", where, "there is no such site or table")
                note(self._findings.mendable.watermarks, (group.site_no, group.table_no))
                continue
            self._check(group, name, held.get((group.site_no, group.table_no), []))

    def _check(self, group: Group, name: GroupName, held: list[tuple[Hlc, int]]) -> None:
        site, schema, table = name
        claims = f"it claims {clock_text(group.applied)}"
        found = []
        if group.applied > group.reached:
            found.append(f"{claims}, and nothing beyond {clock_text(group.reached)} was reached")
        if site == self._own and group.applied > self._clock:
            found.append(f"{claims}, and this node's own clock is at {clock_text(self._clock)}")
        end = self._position(group)
        passed = [hlc for hlc, position in held if end is None or position < end]
        if passed:
            found.append(f"{claims}, and the event at {clock_text(min(passed))} is held")
        found += [
            f"{claims}, and the event at {clock_text(hlc)} was rejected and is not here"
            for hlc in group.rejected
            if hlc <= group.applied and not log.has_clock(self._tx, group.site_no, hlc)
        ]
        missing = self._missing.get((site, group.table_no))
        if missing is not None and missing <= group.applied:
            found.append(f"{claims}, and the event at {clock_text(missing)}, on which a row stands, is not in the log")
        if found:
            note(self._findings.mendable.watermarks, (group.site_no, group.table_no))
        for what in found:
            self._findings.differ(
                table if schema == "main" else f"{schema}.{table}", f"watermark of {short_text(site)}", what
            )
        if not found and group.applied > ZERO and (end is None or held):
            self._findings.given += 1

    def _held(self) -> dict[_Key, list[tuple[Hlc, int]]]:
        """The held events at or below the watermark of their group, with their positions.

        One that came after the event at which the watermark ends was late by its author's fault: a watermark is
        monotonic, so it stands, and is taken as given.
        """
        found: dict[_Key, list[tuple[Hlc, int]]] = {}
        for site_no, table_no, physical, logical, position in self._tx.execute(
            "SELECT l.site_no, l.table_no, l.physical, l.logical, l.position FROM meshnode_log AS l"
            " JOIN meshnode_watermarks AS w ON w.site_no = l.site_no AND w.table_no = l.table_no"
            " WHERE l.state = 1 AND (l.physical, l.logical) <= (w.physical, w.logical)"
        ):
            found.setdefault((site_no, table_no), []).append((Hlc(from_sql(physical), from_sql(logical)), position))
        return found

    def _position(self, group: Group) -> int | None:
        """Where the log has the event at which the watermark ends, applied; None where it has none."""
        physical, logical = map(to_sql, group.applied)
        row = self._tx.execute(
            "SELECT min(position) FROM meshnode_log WHERE site_no = ? AND physical = ? AND logical = ?"
            " AND table_no = ? AND state = 0",
            (group.site_no, physical, logical, group.table_no),
        ).fetchone()
        return None if row[0] is None else int(row[0])

    def _name(self, group: Group) -> GroupName | None:
        site = self._sites.get(group.site_no)
        if site is None:
            return None
        if group.table_no == UNKEPT:
            return site, "*", "*"
        row = self._tx.execute("SELECT schema, name FROM meshnode_tables WHERE no = ?", (group.table_no,)).fetchone()
        return None if row is None else (site, row[0], row[1])

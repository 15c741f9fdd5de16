"""Surfaced conditions: aggregated per (kind, site, table), bounded, kept until the operator saw them (profile §6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from meshnode.limits import NOTICE_ROWS, NOTICE_TABLES_PER_SITE
from meshnode.store.database import Tx

OTHER_TABLES: Final = "*"
"""The shared table name of what exceeds a site's bound; no event can name it, since it would need a schema too."""

SAMPLE_CHARACTERS: Final = 500  # of what a site may bring about
OWN_SAMPLE_CHARACTERS: Final = 16_000  # of what this node says by itself: it may be SQL to run

_UPSERT: Final = """
INSERT INTO meshnode_notices (kind, site, table_name, count, first_ms, last_ms, sample)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (kind, site, table_name) DO UPDATE SET count = count + excluded.count, last_ms = excluded.last_ms,
sample = excluded.sample
"""


@dataclass(frozen=True, slots=True)
class Notice:
    """One aggregated condition."""

    kind: str
    site: bytes  # empty where no site is meant
    table: str  # empty where no table is meant
    count: int
    first_ms: int
    last_ms: int
    sample: str


class NoticeBook:
    """Collects conditions during one transaction and writes each aggregate once, at its end."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending: dict[tuple[str, bytes, str], tuple[int, str]] = {}

    def add(self, kind: str, site: bytes, table: str, sample: str, count: int = 1) -> None:
        """Note a condition; the last sample of an aggregate stands."""
        key = (kind, site, table)
        before = self._pending.get(key)
        self._pending[key] = (count if before is None else before[0] + count, sample)

    def flush(self, tx: Tx, now_ms: int) -> list[Notice]:
        """Write what was collected; returns it for the log and the application."""
        if not self._pending:
            return []
        total = int(tx.execute("SELECT count(*) FROM meshnode_notices").fetchone()[0])
        surfaced = []
        for (kind, site, table), (count, sample) in self._pending.items():
            room = SAMPLE_CHARACTERS if site else OWN_SAMPLE_CHARACTERS
            site, table, is_new = _place(tx, kind, site, table, total)
            total += is_new
            sample = sample.encode("utf-8", "replace").decode()[:room]
            tx.execute(_UPSERT, (kind, site, table, count, now_ms, now_ms, sample))
            surfaced.append(Notice(kind, site, table, count, now_ms, now_ms, sample))
        self._pending.clear()
        return surfaced


def stands(tx: Tx, kind: str, site: bytes = b"") -> bool:
    """Whether a condition that comes to an end has been surfaced and has not ended."""
    return _exists(tx, kind, site, "")


def end(tx: Tx, kind: str, site: bytes = b"", table: str = "") -> None:
    """A condition came to its end: it is not shown any more."""
    tx.execute("DELETE FROM meshnode_notices WHERE kind = ? AND site = ? AND table_name = ?", (kind, site, table))


def latest_of(tx: Tx, site: bytes, kinds: Sequence[str]) -> str:
    """The last sample of the latest of these conditions about a site, empty where there is none."""
    marks = ", ".join("?" * len(kinds))
    row = tx.execute(
        f"SELECT sample FROM meshnode_notices WHERE site = ? AND kind IN ({marks})"  # noqa: S608  # placeholders
        " ORDER BY last_ms DESC, no DESC LIMIT 1",
        (site, *kinds),
    ).fetchone()
    return str(row[0]) if row else ""


def _place(tx: Tx, kind: str, site: bytes, table: str, total: int) -> tuple[bytes, str, bool]:
    """Where a condition is counted: under its own key, or under a shared one past the bounds."""
    if _exists(tx, kind, site, table):
        return site, table, False
    if table and site:
        named = tx.execute(
            "SELECT count(DISTINCT table_name) FROM meshnode_notices WHERE site = ? AND table_name NOT IN ('', ?)",
            (site, OTHER_TABLES),
        ).fetchone()[0]
        known = tx.execute(
            "SELECT 1 FROM meshnode_notices WHERE site = ? AND table_name = ? LIMIT 1", (site, table)
        ).fetchone()
        if known is None and named >= NOTICE_TABLES_PER_SITE:
            table = OTHER_TABLES
    if total >= NOTICE_ROWS:
        site, table = b"", ""
    return site, table, not _exists(tx, kind, site, table)


def _exists(tx: Tx, kind: str, site: bytes, table: str) -> bool:
    row = tx.execute(
        "SELECT 1 FROM meshnode_notices WHERE kind = ? AND site = ? AND table_name = ?", (kind, site, table)
    ).fetchone()
    return row is not None

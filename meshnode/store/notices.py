"""Surfaced conditions: aggregated per (kind, site, table), bounded, kept until the operator saw them (profile §6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from meshnode.limits import NOTICE_ROWS, NOTICE_TABLES_PER_SITE
from meshnode.model.verdict import SKEW
from meshnode.store import meta
from meshnode.store.database import Tx

OTHER_TABLES: Final = "*"
"""The shared table name of what exceeds a site's bound; no event can name it, since it would need a schema too."""

SAMPLE_CHARACTERS: Final = 500  # of what a site may bring about
OWN_SAMPLE_CHARACTERS: Final = 16_000  # of what this node says by itself: it may be SQL to run

_NEXT_SEQ: Final = "next_notice"  # of a counter in `meta`
_COLUMNS: Final = "kind, site, table_name, count, first_ms, last_ms, sample, no, acknowledged, seq"
_UPSERT: Final = """
INSERT INTO meshnode_notices (kind, site, table_name, count, first_ms, last_ms, sample, seq)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (kind, site, table_name) DO UPDATE SET count = count + excluded.count, last_ms = excluded.last_ms,
sample = excluded.sample, seq = excluded.seq,
acknowledged = CASE WHEN kind = ? AND excluded.last_ms - last_ms < ? THEN acknowledged ELSE 0 END
"""
# What is dated ahead is offered again every cycle until its time has come: that is one condition, and was seen once.
_LASTING: Final = SKEW
LASTS_MS: Final = 10 * 60_000  # milliseconds without it after which it arises anew


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
    no: int = 0  # its row, 0 before it has one
    acknowledged: bool = False  # its owner has seen it, and it has not arisen since
    seq: int = 0  # of its last surfacing


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
        seq = meta.read_counter(tx, _NEXT_SEQ)
        surfaced = []
        for (kind, site, table), (count, sample) in self._pending.items():
            room = SAMPLE_CHARACTERS if site else OWN_SAMPLE_CHARACTERS
            site, table, is_new = _place(tx, kind, site, table, total)
            total += is_new
            sample = sample.encode("utf-8", "replace").decode()[:room]
            tx.execute(_UPSERT, (kind, site, table, count, now_ms, now_ms, sample, seq, _LASTING, LASTS_MS))
            surfaced.append(Notice(kind, site, table, count, now_ms, now_ms, sample))
            seq += 1
        meta.write(tx, _NEXT_SEQ, seq)
        self._pending.clear()
        return surfaced


def stands(tx: Tx, kind: str, site: bytes = b"") -> bool:
    """Whether a condition that comes to an end has been surfaced and has not ended."""
    return _exists(tx, kind, site, "")


def end(tx: Tx, kind: str, site: bytes = b"", table: str = "") -> None:
    """A condition came to its end: it is not shown any more."""
    tx.execute("DELETE FROM meshnode_notices WHERE kind = ? AND site = ? AND table_name = ?", (kind, site, table))


def latest(tx: Tx, limit: int, *, kind: str | None = None, everything: bool = False) -> list[Notice]:
    """Surfaced conditions, the latest first: of one kind or all; with `everything` acknowledged ones too."""
    found = tx.execute(
        f"SELECT {_COLUMNS} FROM meshnode_notices WHERE (kind = ? OR ? IS NULL) AND acknowledged <= ?"  # noqa: S608
        " ORDER BY last_ms DESC, no LIMIT ?",
        (kind, kind, int(everything), limit),
    )
    return list(map(_notice, found))


def surfaced_after(tx: Tx, seq: int, limit: int, *, kind: str | None = None, everything: bool = False) -> list[Notice]:
    """The next conditions that arose beyond `seq`, or arose again, in that order."""
    found = tx.execute(
        f"SELECT {_COLUMNS} FROM meshnode_notices WHERE seq > ? AND (kind = ? OR ? IS NULL)"  # noqa: S608
        " AND acknowledged <= ? ORDER BY seq, no LIMIT ?",
        (seq, kind, kind, int(everything), limit),
    )
    return list(map(_notice, found))


def acknowledge(tx: Tx, no: int) -> bool:
    """Its owner has seen it; False where there is no such notice (any more)."""
    return bool(tx.execute("UPDATE meshnode_notices SET acknowledged = 1 WHERE no = ?", (no,)).rowcount)


def acknowledge_all(tx: Tx) -> int:
    """Its owner has seen all there are; how many were new to it."""
    return int(tx.execute("UPDATE meshnode_notices SET acknowledged = 1 WHERE acknowledged = 0").rowcount)


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


def _notice(row: Sequence[Any]) -> Notice:
    kind, site, table, count, first_ms, last_ms, sample, no, acknowledged, seq = row
    return Notice(kind, site, table, count, first_ms, last_ms, sample, no, bool(acknowledged), seq)


def _exists(tx: Tx, kind: str, site: bytes, table: str) -> bool:
    row = tx.execute(
        "SELECT 1 FROM meshnode_notices WHERE kind = ? AND site = ? AND table_name = ?", (kind, site, table)
    ).fetchone()
    return row is not None

"""Positions whose events were taken out of the log on purpose: only these are passed over (profile §8, NEOTH).

Kept as ranges, each as long as it can be. A position that is missing and not recorded here was lost: whoever meets it
stops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from meshnode.store.database import Tx

EVICTED: Final = "evicted"
FORGOTTEN: Final = "forgotten"
COMPACTED: Final = "compacted"
TAKEN_BACK: Final = "taken back"
LOST: Final = "lost"  # by a hand or a damaged disk; its owner said to go on without it (`check --repair`)


def record(tx: Tx, positions: Iterable[int], why: str) -> None:
    """Note positions that leave the log in this very transaction; of one that was noted before the reason stands."""
    for first, last in _runs(sorted(each for each in set(positions) if not is_recorded(tx, each))):
        start, end = first, last
        before = _range_at(tx, first - 1)
        if before is not None and before[2] == why:
            start = before[0]
        after = _range_at(tx, last + 1)
        if after is not None and after[2] == why:
            end = after[1]
            tx.execute("DELETE FROM meshnode_removed WHERE first = ?", (after[0],))
        tx.execute("INSERT OR REPLACE INTO meshnode_removed (first, last, why) VALUES (?, ?, ?)", (start, end, why))


def is_recorded(tx: Tx, position: int) -> bool:
    """Whether the event of this position was removed on purpose."""
    return _range_at(tx, position) is not None


def first_unrecorded(tx: Tx, first: int, last: int) -> int | None:
    """The first of these positions that nobody removed on purpose; None where all were."""
    while first <= last:
        found = _range_at(tx, first)
        if found is None:
            return first
        first = found[1] + 1
    return None


def unrecorded(tx: Tx, first: int, last: int) -> Iterator[tuple[int, int]]:
    """The ranges of these positions that nobody removed on purpose, each from its first to its last."""
    found = tx.execute(
        "SELECT first, last FROM meshnode_removed WHERE first <= ? AND last >= ? ORDER BY first", (last, first)
    )
    for begins, ends in found.fetchall() if first <= last else ():
        if begins > first:
            yield first, begins - 1
        first = ends + 1
    if first <= last:
        yield first, last


def record_lost(tx: Tx, first: int, last: int) -> None:
    """Go on without what the log has lost between these positions, both included."""
    for begins, ends in list(unrecorded(tx, first, last)):
        tx.execute("INSERT INTO meshnode_removed (first, last, why) VALUES (?, ?, ?)", (begins, ends, LOST))


def any_recorded(tx: Tx) -> bool:
    """Whether anything was ever removed."""
    return tx.execute("SELECT 1 FROM meshnode_removed LIMIT 1").fetchone() is not None


def count(tx: Tx) -> int:
    """How many positions were removed."""
    return int(tx.execute("SELECT coalesce(sum(last - first + 1), 0) FROM meshnode_removed").fetchone()[0])


def between(tx: Tx, after: int, before: int) -> dict[str, int]:
    """How many positions between these two were removed, by the reason."""
    if before - after < 2:
        return {}
    found = tx.execute(
        "SELECT why, sum(min(last, ?) - max(first, ?) + 1) FROM meshnode_removed WHERE first < ? AND last > ?"
        " GROUP BY why ORDER BY why",
        (before - 1, after + 1, before, after),
    )
    return {str(why): int(positions) for why, positions in found}


def any_of(tx: Tx, reasons: Sequence[str]) -> bool:
    """Whether anything was removed for one of these reasons."""
    found = tx.execute(
        f"SELECT 1 FROM meshnode_removed WHERE why IN ({', '.join('?' * len(reasons))}) LIMIT 1",  # noqa: S608
        tuple(reasons),
    )
    return found.fetchone() is not None


def _range_at(tx: Tx, position: int) -> tuple[int, int, str] | None:
    row = tx.execute(
        "SELECT first, last, why FROM meshnode_removed WHERE first <= ? ORDER BY first DESC LIMIT 1", (position,)
    ).fetchone()
    return None if row is None or row[1] < position else (row[0], row[1], row[2])


def _runs(positions: list[int]) -> Iterator[tuple[int, int]]:
    """Consecutive numbers as ranges."""
    if not positions:
        return
    first = positions[0]
    for before, position in pairwise(positions):
        if position != before + 1:
            yield first, before
            first = position
    yield first, positions[-1]

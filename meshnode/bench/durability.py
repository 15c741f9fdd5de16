"""How often a database went to the disk: commits as they are counted, and checkpoints by the head of its WAL."""

from __future__ import annotations

from pathlib import Path
from typing import Final

PER_CHECKPOINT: Final = 3  # the WAL, the database file, the head of the next WAL
_SEQUENCE: Final = slice(12, 16)  # of the WAL's head: how often it was begun anew (sqlite.org/fileformat2.html §4.1)


def wal_sequence(database: Path) -> int | None:
    """How often the WAL of a database was begun anew; None where there is none."""
    try:
        with database.with_name(f"{database.name}-wal").open("rb") as wal:
            head = wal.read(32)
    except OSError:
        return None
    return int.from_bytes(head[_SEQUENCE], "big") if len(head) == 32 else None


def fsyncs(commits: int, before: int | None, after: int | None) -> int:
    """Those of so many commits, and of the checkpoints between two looks at the WAL."""
    restarts = after - before if before is not None and after is not None else after or 0
    return commits + PER_CHECKPOINT * max(restarts, 0)

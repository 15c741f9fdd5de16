"""Only positions that were recorded as removed may be missing (profile §8)."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from meshnode.store import removed, schema
from meshnode.store.database import Tx, no_fault

POSITIONS = st.lists(
    st.tuples(st.sets(st.integers(1, 40), min_size=1), st.sampled_from([removed.EVICTED, removed.FORGOTTEN]))
)


@settings(max_examples=150, deadline=None)
@given(batches=POSITIONS)
def test_exactly_the_recorded_positions_are_known(batches: list[tuple[set[int], str]]) -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        tx = Tx(connection, no_fault)
        schema.migrate(tx)
        why: dict[int, str] = {}
        for positions, reason in batches:
            removed.record(tx, positions, reason)
            for position in positions:
                why.setdefault(position, reason)
        assert [each for each in range(45) if removed.is_recorded(tx, each)] == sorted(why)
        assert removed.count(tx) == len(why)
        stored = {}
        for first, last, reason in tx.execute("SELECT first, last, why FROM meshnode_removed ORDER BY first"):
            stored.update(dict.fromkeys(range(first, last + 1), reason))
        assert stored == why
        ranges = sum(1 for each in why if why.get(each - 1) != why[each])
        assert tx.execute("SELECT count(*) FROM meshnode_removed").fetchone()[0] == ranges
        for first in range(1, 42, 5):
            missing = [each for each in range(first, 43) if each not in why]
            assert removed.first_unrecorded(tx, first, 42) == (missing[0] if missing else None)
    finally:
        connection.close()


def test_recording_again_changes_nothing(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "db", isolation_level=None)
    try:
        tx = Tx(connection, no_fault)
        schema.migrate(tx)
        removed.record(tx, [3, 4, 5], removed.EVICTED)
        removed.record(tx, [4], removed.FORGOTTEN)
        assert tx.execute("SELECT * FROM meshnode_removed").fetchall() == [(3, 5, removed.EVICTED)]
    finally:
        connection.close()

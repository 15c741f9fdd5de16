"""`check`: a store that was only ever written through the door is clean; every way of falsifying it is named."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from support.engines import PLAIN, Bench
from support.mesh_context import START_MS

from meshnode.engine import check as check_module
from meshnode.engine.check import check_store
from meshnode.engine.findings import DIFFERENCES_NAMED, Findings
from meshnode.engine.registry import TableSpec
from meshnode.merge.rows import RowState
from meshnode.model.hlc import Hlc


def checked(bench: Bench) -> Findings:
    found: Findings = bench.read(check_store, sqlite3, bench.membership.key_of)
    return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Rows of every kind: live, deleted, written by two, cleared, unresolved, held."""
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    bench.deliver([bench.event(2, 1, {"id": 1}, {"a": 1, "b": "x"}), bench.event(3, 2, {"id": 1}, {"b": "y", "z": 1})])
    bench.deliver([bench.event(2, 3, {"id": 2}, {"a": 1}), bench.event(2, 4, {"id": 2}, None)])
    bench.deliver([bench.event(2, 5, {"id": 3}, None), bench.event(3, 6, {"id": 3}, {"c": b"c"})])
    bench.deliver([bench.event(2, 7, {"no": 3}, {"c": 1}), bench.event(3, 6, {"id": 3}, {"c": 1}, table="absent")])
    return bench


def test_what_came_through_the_door_is_clean(bench: Bench) -> None:
    found = checked(bench)
    assert (found.count, found.differences) == (0, [])
    assert found.given == 1  # a watermark: the event at which it ends was dropped
    assert (found.tables, found.rows, found.events) == (1, 3, 7)


def test_values_are_compared_as_their_columns_store_them(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.sql(
        "CREATE TABLE t (id TEXT PRIMARY KEY, a TEXT, b INTEGER, c REAL, d NOT NULL DEFAULT 5, e BLOB) STRICT".replace(
            "d NOT", "d ANY NOT"
        )
    )
    bench.engine.register_table(TableSpec("main", "t"))
    written = {"a": 5, "b": "7", "c": 3, "e": b"e"}
    assert bench.deliver([bench.event(2, 1, {"id": "x"}, written)]) == ["applied"]
    assert checked(bench).differences == []
    bench.sql("UPDATE t SET b = 8")
    (difference,) = checked(bench).differences
    assert (difference.table, difference.what) == ("t", "column 'b' holds 8, the log says 7")


FALSIFIED: dict[str, tuple[Callable[[Bench], object], str, str]] = {
    "value": (lambda b: b.sql("UPDATE t SET a = 2 WHERE id = 1"), "id=1", "column 'a' holds 2, the log says 1"),
    "value type": (lambda b: b.sql("UPDATE t SET a = 1.0 WHERE id = 1"), "id=1", "holds 1.0, the log says 1"),
    "row gone": (lambda b: b.sql("DELETE FROM t WHERE id = 3"), "id=3", "it exists and is not in SQL"),
    "row back": (lambda b: b.sql("INSERT INTO t (id) VALUES (2)"), "id=2", "it does not exist and is in SQL"),
    "row from nowhere": (
        lambda b: b.sql("INSERT INTO t (id) VALUES (9)"),
        "rows in SQL",
        "1 of them come from no event",
    ),
    "clocks gone": (lambda b: b.sql("DELETE FROM meshnode_rows WHERE reason IS NULL"), "row", "events and no clocks"),
    "clocks unreadable": (lambda b: b.sql("UPDATE meshnode_rows SET state = x'c1'"), "row", "cannot be read"),
    "clocks": (
        lambda b: b.sql("UPDATE meshnode_rows SET state = ?", RowState(b"\xff" * 64).pack()),
        "row",
        "its clocks are not those of its events: tombstone",
    ),
    "event": (
        lambda b: b.sql("UPDATE meshnode_log SET event = substr(event, 1, 300) || x'00' WHERE position = 1"),
        "log position 1",
        "malformed",
    ),
    "signature": (
        lambda b: b.sql(
            "UPDATE meshnode_log SET event = CAST(substr(event, 1, length(event) - 1) || x'00' AS BLOB) "
            "WHERE position = 1"
        ),
        "log position 1",
        "bad-signature",
    ),
    "event's clock": (
        lambda b: b.sql("UPDATE meshnode_log SET logical = 9 WHERE position = 1"),
        "log position 1",
        "columns",
    ),
    "event gone": (
        lambda b: b.sql("DELETE FROM meshnode_log WHERE position = 2"),
        "log position 2",
        "nothing says that it was taken out",
    ),
    "last event gone": (
        lambda b: b.sql("DELETE FROM meshnode_log WHERE position = 7"),
        "log position 7",
        "nothing says that it was taken out",
    ),
    "position": (
        lambda b: b.sql("UPDATE meshnode_meta SET value = 3 WHERE name = 'next_position'"),
        "next position",
        "3",
    ),
    "clock": (lambda b: b.sql("UPDATE meshnode_meta SET value = zeroblob(16) WHERE name = 'clock'"), "clock", "behind"),
    "meter": (lambda b: b.sql("UPDATE meshnode_held SET events = 5"), "held events", "5"),
    "table gone": (lambda b: b.sql("DROP TABLE t"), "table", "there is no table 't'"),
}


@pytest.mark.parametrize("kind", FALSIFIED)
def test_every_falsification_is_named(bench: Bench, kind: str) -> None:
    falsify, where, what = FALSIFIED[kind]
    falsify(bench)
    found = checked(bench)
    named = [each for each in found.differences if where in each.where and what in each.what]
    assert named, found.differences
    assert found.count == len(found.differences)


def test_differences_are_named_up_to_a_bound_and_all_counted(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    bench.deliver([bench.event(2, at, {"id": at}, {"a": at}) for at in range(DIFFERENCES_NAMED + 5)])
    bench.sql("UPDATE t SET a = 'other'")
    found = checked(bench)
    assert (found.count, len(found.differences)) == (DIFFERENCES_NAMED + 5, DIFFERENCES_NAMED)


def test_a_log_larger_than_memory_is_read_in_passes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_module, "EVENTS_PER_PASS", 1)
    assert (checked(bench).differences, checked(bench).rows) == ([], 3)
    bench.sql("UPDATE t SET a = 2 WHERE id = 1")
    assert checked(bench).count == 1


def test_what_lies_below_the_horizon_is_taken_as_given_and_counted(bench: Bench) -> None:
    bench.engine.set_horizon("main", "t", Hlc(START_MS + 6, 0))
    found = checked(bench)
    # Clocks: 2 columns and 1 upsert, 2 tombstones; values: 2; the watermark that was given before.
    assert (found.differences, found.given) == ([], 8)
    bench.sql("UPDATE t SET c = 2 WHERE id = 3")
    assert [each.where for each in checked(bench).differences] == ["row id=3"]


def test_a_schema_that_the_node_has_not_followed_yet_is_said(bench: Bench) -> None:
    bench.sql("ALTER TABLE t ADD COLUMN z")
    (difference,) = checked(bench).differences
    assert "changed schema" in difference.what
    while bench.engine.follow_schema():
        pass
    assert checked(bench).differences == []
    assert bench.sql("SELECT z FROM t WHERE id = 1") == [(1,)]


def test_withheld_rows_are_not_missed_in_sql(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.sql("CREATE TABLE t (id PRIMARY KEY, a NOT NULL)")
    bench.engine.register_table(TableSpec("main", "t"))
    bench.deliver([bench.event(2, 1, {"id": 1}, {}), bench.event(2, 2, {"id": 2}, {"a": 1})])
    assert (checked(bench).differences, checked(bench).rows) == ([], 2)


def test_an_event_of_a_site_that_is_no_member_any_more_is_still_read(bench: Bench) -> None:
    found: Findings = bench.read(check_store, sqlite3, lambda _site: None)
    assert found.differences == []

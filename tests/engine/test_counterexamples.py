"""What the runs against the reference model found, shrunk and named; each failed before."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from support.engines import Bench, members
from support.mesh_context import START_MS
from support.records import site_key

from meshnode.engine import growth, rebuild, retention, takeback
from meshnode.engine.check import check_store
from meshnode.engine.registry import TableSpec
from meshnode.engine.standing import take_effect
from meshnode.model.hlc import Hlc
from meshnode.store.database import Tx

OWN_NUMBERS = TableSpec("main", "t", own_numbers=True)


def registered(folder: Path, *statements: str) -> Bench:
    bench = Bench(folder)
    for statement in statements:
        bench.sql(statement)
    bench.engine.register_table(OWN_NUMBERS)
    bench.time.now_ms = START_MS + 100
    return bench


def migrate(bench: Bench, *statements: str) -> None:
    for statement in statements:
        bench.sql(statement)
    follow(bench)


def follow(bench: Bench) -> None:
    bench.engine.write([])
    while bench.engine.follow_schema():
        pass


def differences(bench: Bench) -> list[str]:
    return [each.what for each in bench.read(check_store, sqlite3, bench.membership.key_of).differences]


def retire(bench: Bench, gone: int) -> None:
    """What one of the sites 1 to 3 wrote is no longer acceptable."""
    context, before = bench.engine.context, bench.membership
    after = members([site_key(number).public_key for number in (1, 2, 3) if number != gone])

    def change(tx: Tx) -> None:
        context.set_membership(after)
        take_effect(context, tx, before, after)

    context.transact(change)
    bench.membership = after


@pytest.mark.parametrize(
    "declared",
    [
        "(b TEXT NOT NULL, id INT NOT NULL PRIMARY KEY) WITHOUT ROWID",
        "(b INTEGER DEFAULT 'd', id TEXT NOT NULL PRIMARY KEY) STRICT, WITHOUT ROWID",
        "(b NUMERIC DEFAULT 'd', id TEXT NOT NULL PRIMARY KEY) WITHOUT ROWID",
    ],
)
def test_sound_rows_whose_key_is_not_declared_first_are_not_taken_for_damaged(declared: str, tmp_path: Path) -> None:
    """SQLite 3.40's integrity_check looks at the wrong column of such a table."""
    bench = registered(tmp_path, f"CREATE TABLE t {declared}")
    bench.deliver([bench.event(2, 1, {"id": key}, {"b": 1}) for key in (1, "x", "2")])
    assert bench.rows() != {}
    assert differences(bench) == []


@pytest.mark.parametrize(
    ("before", "after", "value", "told"),
    [
        ("b TEXT", "b TEXT NOT NULL", None, "NULL value in t.b"),
        ("b BLOB", "b NUMERIC", "12", "TEXT value in t.b"),
        ("b BLOB", "b TEXT", 12, "NUMERIC value in t.b"),
    ],
)
def test_values_that_a_column_cannot_hold_are_told(
    before: str, after: str, value: str | int | None, told: str, tmp_path: Path
) -> None:
    bench = registered(tmp_path, f"CREATE TABLE t (id TEXT PRIMARY KEY NOT NULL, {before})")
    bench.deliver([bench.event(2, 1, {"id": "x"}, {"b": value})])
    bench.engine.close()
    connection = sqlite3.connect(bench.path)
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE name = 't'", (before, after))
    connection.commit()
    connection.close()
    assert told in differences(bench)


def test_dropping_the_horizon_brings_back_what_is_still_in_the_log(tmp_path: Path) -> None:
    """A row and a column that were lost below it: peers offer duplicates only, so nobody else brings them back."""
    bench = registered(tmp_path, "CREATE TABLE t (id PRIMARY KEY, a)")
    events = [bench.event(2, 1, {"id": 1}, {"a": 1, "b": 2}), bench.event(3, 2, {"id": 2}, None)]
    events.append(bench.event(3, 1, {"id": 2}, {"a": 3}))
    bench.deliver(events)
    bench.engine.set_horizon("main", "t", Hlc(START_MS + 10, 0))
    migrate(bench, "DROP TABLE t", "CREATE TABLE t (id PRIMARY KEY, a, b)")
    assert bench.rows() == {}
    retention.rehydrate(bench.engine.context, "main", "t")
    bench.reopen()  # what is due is on disk
    follow(bench)
    assert [row.columns for row in bench.rows().values()] == [{"a": 1, "b": 2}]
    assert bench.deliver(events) == ["duplicate"] * 3
    assert differences(bench) == []


def test_dropping_the_horizon_loses_nothing_whose_events_were_evicted(tmp_path: Path) -> None:
    bench = registered(tmp_path, "CREATE TABLE t (id PRIMARY KEY, a)")
    bench.deliver([bench.event(2, 1, {"id": 1}, {"a": 1}), bench.event(2, 2, {"id": 2}, None)])
    sweep = retention.evict(bench.engine.context, "main", "t", Hlc(START_MS + 10, 0), everything=True)
    while sweep.step():
        pass
    sweep.finish()
    assert bench.sql("SELECT count(*) FROM meshnode_log") == [(0,)]
    retention.rehydrate(bench.engine.context, "main", "t")
    migrate(bench, "ALTER TABLE t ADD COLUMN b")
    assert bench.get({"id": 1}) == {"a": 1}
    assert bench.deliver([bench.event(3, 1, {"id": 2}, {"a": 2})]) == ["applied"]
    assert bench.get({"id": 2}) is None  # its tombstone is still there


def test_a_row_refused_as_it_stood_is_shown_after_the_same_jobs_write_to_it(tmp_path: Path) -> None:
    """A RAISE(ROLLBACK) for another row makes the job begin again, and with it the retry of what is withheld."""
    body = "WHEN new.b IS NULL BEGIN SELECT RAISE(ROLLBACK, 'no'); END"
    bench = registered(
        tmp_path,
        "CREATE TABLE t (id PRIMARY KEY, b)",
        f"CREATE TRIGGER inserted BEFORE INSERT ON t {body}",
        f"CREATE TRIGGER updated BEFORE UPDATE ON t {body}",
    )
    bench.deliver([bench.event(2, 1, {"id": 1}, {})])
    assert bench.get({"id": 1}) is None
    bench.deliver([bench.event(2, 2, {"id": 1}, {"b": 1}), bench.event(2, 2, {"id": 2}, {})])
    assert bench.get({"id": 1}) == {"b": 1}
    assert bench.get({"id": 2}) is None


@pytest.mark.parametrize(
    ("before", "after", "key"),
    [
        ("(id INTEGER PRIMARY KEY)", "(id INTEGER PRIMARY KEY DESC)", "x"),  # no alias of the rowid any more
        ("(id TEXT NOT NULL PRIMARY KEY) STRICT", "(id TEXT NOT NULL PRIMARY KEY)", b"x"),
    ],
)
def test_a_key_that_takes_more_values_under_the_same_type_is_another_key(
    before: str, after: str, key: str | bytes, tmp_path: Path
) -> None:
    bench = Bench(tmp_path)
    assert bench.deliver([bench.event(2, 1, {"id": key}, {})]) == ["held"]
    bench.sql(f"CREATE TABLE t {before}")
    bench.engine.register_table(OWN_NUMBERS)
    assert bench.rows() == {}
    migrate(bench, "DROP TABLE t", f"CREATE TABLE t {after}")
    assert bench.get({"id": key}) == {}
    migrate(bench, "DROP TABLE t", f"CREATE TABLE t {before}")
    assert bench.rows() == {}
    assert differences(bench) == []


def test_a_value_that_equals_the_default_gives_way_to_it_when_it_is_taken_back(tmp_path: Path) -> None:
    """1.0 IS 1, and an untyped column holds either."""
    bench = registered(tmp_path, "CREATE TABLE t (id PRIMARY KEY, a NOT NULL DEFAULT 1)")
    bench.deliver([bench.event(2, 1, {"id": 1}, {}), bench.event(3, 2, {"id": 1}, {"a": 1.0})])
    assert bench.sql("SELECT typeof(a) FROM t") == [("real",)]
    retire(bench, 3)
    follow(bench)
    assert bench.sql("SELECT typeof(a) FROM t") == [("integer",)]


@pytest.mark.parametrize("value", ["1", 1.0])
def test_a_column_added_anew_shows_the_value_and_not_the_default_that_is_like_it(
    value: str | float, tmp_path: Path
) -> None:
    bench = registered(tmp_path, "CREATE TABLE t (id PRIMARY KEY, a DEFAULT 1)")
    bench.deliver([bench.event(2, 1, {"id": 1}, {"a": value})])
    migrate(bench, "ALTER TABLE t DROP COLUMN a", "ALTER TABLE t ADD COLUMN a DEFAULT 1")
    assert bench.sql("SELECT typeof(a) FROM t") == [("text" if value == "1" else "real",)]


def test_a_take_back_ends_where_a_trigger_rolls_its_rows_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has many transactions, and each RAISE(ROLLBACK) makes it begin again: the row is known by then."""
    monkeypatch.setattr(takeback, "STEPS_AT_ONCE", 1)
    body = "WHEN new.b IS NULL BEGIN SELECT RAISE(ROLLBACK, 'no'); END"
    bench = registered(
        tmp_path,
        "CREATE TABLE t (id PRIMARY KEY, a, b)",
        f"CREATE TRIGGER inserted BEFORE INSERT ON t {body}",
        f"CREATE TRIGGER updated BEFORE UPDATE ON t {body}",
    )
    bench.deliver([bench.event(2, 1, {"id": number}, {"a": 1}) for number in range(20)])
    bench.deliver([bench.event(3, 2, {"id": number}, {"b": 1}) for number in range(20)])
    bench.deliver([bench.event(2, 3, {"id": 7}, {"b": 2})])
    assert len(bench.rows()) == 20
    retire(bench, 3)
    steps = 0
    while bench.engine.follow_schema():
        steps += 1
        assert steps < 500
    assert [row.key for row in bench.rows().values()] == [{"id": 7}]
    assert differences(bench) == []


def test_what_was_held_is_in_a_rebuild_that_had_read_past_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table was dropped, a site retired meanwhile, and its rows are rebuilt in steps once the table is there."""
    monkeypatch.setattr(growth, "STEPS_AT_ONCE", 2)  # one looks at the rows, the other reads the log
    monkeypatch.setattr(rebuild, "BATCH_EVENTS", 2)
    bench = registered(tmp_path, "CREATE TABLE t (id PRIMARY KEY, a, b)")
    bench.deliver([bench.event(3, number, {"id": number}, {"a": number}) for number in range(20)])
    bench.deliver([bench.event(2, 9000, {"id": 1}, {"b": "late"})])
    bench.sql("DROP TABLE t")
    bench.deliver([])
    retire(bench, 2)
    later = [bench.event(3, 100 + number, {"id": number}, {"a": "held"}) for number in range(10, 19)]
    later.append(bench.event(3, 200, {"id": 19}, None))
    assert set(bench.deliver(later, author_stream=False)) == {"held"}
    bench.sql("CREATE TABLE t (id PRIMARY KEY, a, b)")
    bench.deliver([])
    while bench.engine.follow_schema():
        pass
    assert bench.sql("SELECT id, a FROM t ORDER BY id") == [
        *((number, number) for number in range(10)),
        *((number, "held") for number in range(10, 19)),
    ]
    assert differences(bench) == []


def test_a_withheld_row_is_not_shown_under_a_key_that_does_not_take_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is made again with another key, and withheld rows are tried before every row was looked at."""
    monkeypatch.setattr(growth, "STEPS_AT_ONCE", 1)
    monkeypatch.setattr(growth, "BATCH_EVENTS", 2)
    bench = registered(tmp_path, "CREATE TABLE t (id INT NOT NULL PRIMARY KEY, a NOT NULL)")
    bench.deliver([bench.event(2, 1, {"id": number}, {}) for number in range(5)])
    bench.sql("DROP TABLE t")
    bench.sql("CREATE TABLE t (id TEXT NOT NULL PRIMARY KEY, a)")
    bench.engine.write([])
    assert bench.sql("SELECT * FROM t") == []
    assert bench.rows() == {}
    follow(bench)
    assert bench.sql("SELECT * FROM t") == []
    assert differences(bench) == []

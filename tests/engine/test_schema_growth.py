"""SSP/1 §13.6, profile §5: the application changes its tables in plain SQL, and the rows follow from the log."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.engines import PLAIN, Bench
from support.records import site_key

from meshnode.engine import registry
from meshnode.engine.context import Context
from meshnode.engine.engine import Engine
from meshnode.engine.registry import TableSpec
from meshnode.errors import NotFoundError
from meshnode.limits import BATCH_EVENTS, SCHEMA_DRIFT_MS
from meshnode.merge.rows import RowState
from meshnode.model.event import Event
from meshnode.model.hlc import Hlc
from meshnode.store import shapes
from meshnode.store.database import Tx

MANY = BATCH_EVENTS * 9 + 17  # more than one transaction brings up
Notice = Callable[[Bench, list[str]], None]


def _running(bench: Bench, statements: list[str]) -> None:
    for statement in statements:
        bench.sql(statement)
    bench.engine.write([])
    _finish(bench)


def _stopped(bench: Bench, statements: list[str]) -> None:
    bench.engine.close()
    for statement in statements:
        bench.sql(statement)
    bench.reopen()
    _finish(bench)


def _each_alone(bench: Bench, statements: list[str]) -> None:
    """Notice each statement by itself, and be killed after every step."""
    for statement in statements:
        bench.sql(statement)
        bench.engine.write([])
        while bench.engine.follow_schema():
            bench.reopen()


def _finish(bench: Bench) -> None:
    while bench.engine.follow_schema():
        pass


noticed = pytest.mark.parametrize("notice", [_running, _stopped, _each_alone])


def _shown(bench: Bench) -> list[dict[str, Any]]:
    return [{**row.key, **row.columns} for row in bench.rows().values()]


def _fresh(bench: Bench, create: str) -> Bench:
    """Another node with today's table from the beginning, given the same events."""
    other = Bench(bench.path.parent, name="fresh.db")
    other.sql(create)
    other.engine.register_table(TableSpec("main", "t"))
    events = [data for (data,) in bench.sql("SELECT event FROM meshnode_log ORDER BY position")]
    for start in range(0, len(events), 1000):
        other.deliver(events[start : start + 1000])
    return other


def _states(bench: Bench) -> list[tuple[bytes, RowState, str | None]]:
    found = bench.sql("SELECT key, state, reason FROM meshnode_rows ORDER BY key")
    return [(key, RowState.unpack(state), reason) for key, state, reason in found]


def _same(bench: Bench, other: Bench, order: str = "id") -> None:
    assert bench.digest() == other.digest()
    assert _states(bench) == _states(other)
    names = ", ".join(f'"{name}"' for (name,) in other.sql("SELECT name FROM pragma_table_info('t')"))
    sql = f"SELECT {names} FROM t ORDER BY {order}"
    assert bench.sql(sql) == other.sql(sql)


def _with_events(folder: Path, create: str = "CREATE TABLE t (id PRIMARY KEY, a, b)", rows: int = 30) -> Bench:
    bench = Bench(folder)
    bench.sql(create)
    bench.engine.register_table(TableSpec("main", "t"))
    events = [bench.event(2, n, {"id": n}, {"a": n, "new": f"v{n}", "gone": 1}) for n in range(rows) if n % 4]
    events += [bench.event(3, rows + n, {"id": n}, {"b": n, "a": None}) for n in range(0, rows, 3)]
    events += [bench.event(3, 2 * rows + n, {"id": n}, None) for n in range(0, rows, 5)]
    events += [bench.event(2, 3 * rows + n, {"id": n}, {"new": "again"}) for n in range(0, rows, 10)]
    events += [bench.event(3, 3 * rows + n, {"id": n}, {"new": None}) for n in range(1, rows, 10)]
    for start in range(0, len(events), 1000):
        assert set(bench.deliver(events[start : start + 1000])) == {"applied"}
    return bench


@noticed
@pytest.mark.parametrize("declared", ["", "TEXT", "DEFAULT 5", "TEXT NOT NULL DEFAULT 'd'", 'DEFAULT "v1"'])
def test_gained_column_is_rebuilt_from_the_log(notice: Notice, declared: str, tmp_path: Path) -> None:
    bench = _with_events(tmp_path)
    notice(bench, [f"ALTER TABLE t ADD COLUMN new {declared}"])
    _same(bench, _fresh(bench, f"CREATE TABLE t (id PRIMARY KEY, a, b, new {declared})"))
    assert bench.get({"id": 7}) == {"a": 7, "new": "v7"}
    assert bench.get({"id": 3}) == {"a": None, "b": 3, "new": "v3"}
    assert [name for (name,) in bench.sql("SELECT column_name FROM meshnode_ignored")] == ["gone"]


@noticed
def test_dropped_column_forgets_its_clocks(notice: Notice, tmp_path: Path) -> None:
    bench = _with_events(tmp_path)
    notice(bench, ["ALTER TABLE t DROP COLUMN a"])
    _same(bench, _fresh(bench, "CREATE TABLE t (id PRIMARY KEY, b)"))
    assert bench.get({"id": 7}) == {}


@noticed
@pytest.mark.parametrize("declared", ["b", "b DEFAULT 5", "b TEXT NOT NULL DEFAULT 'x'"])
def test_column_dropped_and_added_again_is_whole(notice: Notice, declared: str, tmp_path: Path) -> None:
    create = f"CREATE TABLE t (id PRIMARY KEY, a, {declared})"
    bench = _with_events(tmp_path, create)
    before = bench.digest()
    notice(bench, ["ALTER TABLE t DROP COLUMN b", f"ALTER TABLE t ADD COLUMN {declared}"])
    assert bench.digest() == before
    _same(bench, _fresh(bench, create))


@noticed
@pytest.mark.parametrize(
    "statements", [["DROP TABLE t", "CREATE TABLE t (id PRIMARY KEY, a, b)"], ["DELETE FROM t", "VACUUM"]]
)
def test_table_dropped_and_created_again_comes_back_whole(
    notice: Notice, statements: list[str], tmp_path: Path
) -> None:
    bench = _with_events(tmp_path, rows=BATCH_EVENTS + 30)
    before = bench.digest(), bench.sql("SELECT * FROM t ORDER BY id")
    notice(bench, statements)
    assert (bench.digest(), bench.sql("SELECT * FROM t ORDER BY id")) == before


def test_a_large_table_takes_many_transactions_and_new_events_meanwhile(tmp_path: Path) -> None:
    bench = _with_events(tmp_path, rows=MANY)
    bench.sql("DROP TABLE t")
    bench.sql("CREATE TABLE t (id PRIMARY KEY, b, new)")
    steps = 0
    while bench.engine.follow_schema():
        steps += 1
        late = bench.event(3, 10 * MANY + steps, {"id": steps}, {"new": "late", "b": None})
        early = bench.event(3, 1, {"id": MANY - steps}, {"new": "early", "b": "early"})
        assert bench.deliver([late, early]) == ["applied", "applied"]
    assert steps > 1
    _same(bench, _fresh(bench, "CREATE TABLE t (id PRIMARY KEY, b, new)"))


@noticed
def test_created_again_with_other_columns(notice: Notice, tmp_path: Path) -> None:
    bench = _with_events(tmp_path)
    create = "CREATE TABLE t (new TEXT NOT NULL, id PRIMARY KEY, a) WITHOUT ROWID"
    notice(bench, ["DROP TABLE t", create.replace("id PRIMARY", "id NOT NULL PRIMARY")])
    _same(bench, _fresh(bench, create))
    assert bench.sql("SELECT count(*) FROM meshnode_rows WHERE reason IS NOT NULL") != [(0,)]


@noticed
def test_table_copied_to_another_shape(notice: Notice, tmp_path: Path) -> None:
    bench = _with_events(tmp_path)
    create = "CREATE TABLE t (id PRIMARY KEY, b, a TEXT, new DEFAULT 'd')"
    copy = [create.replace(" t ", " u "), "INSERT INTO u (id, b, a) SELECT id, b, a FROM t", "DROP TABLE t"]
    notice(bench, [*copy, "ALTER TABLE u RENAME TO t"])
    _same(bench, _fresh(bench, create))


@noticed
def test_renamed_away_and_back(notice: Notice, tmp_path: Path) -> None:
    bench = _with_events(tmp_path)
    before = bench.digest()
    notice(bench, ["ALTER TABLE t RENAME TO away"])
    assert bench.deliver([bench.event(2, 9000, {"id": 7}, {"a": "late"})]) == ["held"]
    with pytest.raises(NotFoundError):
        bench.get({"id": 7})
    notice(bench, ["ALTER TABLE away RENAME TO t"])
    assert bench.get({"id": 7}) == {"a": "late"}
    assert bench.digest()[1] == before[1]
    assert bench.sql("SELECT count(*) FROM meshnode_held") == [(0,)]


@noticed
def test_changed_primary_key_is_a_new_destination(notice: Notice, tmp_path: Path) -> None:
    bench = _with_events(tmp_path)
    before = bench.digest(), _states(bench)
    other = [bench.event(2, 500 + n, {"id": n, "part": n % 2}, {"a": n}) for n in range(10)]
    assert set(bench.deliver(other)) == {"dropped:unresolved-key"}
    assert "`meshnode rehydrate" in bench.sql("SELECT sample FROM meshnode_notices WHERE kind = 'unresolved-key'")[0][0]
    notice(bench, ["DROP TABLE t", "CREATE TABLE t (id, part, a, b, PRIMARY KEY (part, id))"])
    assert bench.rows() == {}
    assert set(bench.deliver(other)) == {"applied"}
    assert bench.get({"id": 3, "part": 1}) == {"a": 3}
    notice(bench, ["DROP TABLE t", "CREATE TABLE t (id PRIMARY KEY, a, b)"])
    assert (bench.digest(), _states(bench)) == before


def test_held_event_that_named_no_row_counts_under_the_key_that_it_names(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.deliver([bench.event(2, 1, {"other": 1}, {"a": 1}), bench.event(2, 1, {"id": 1}, {"a": 1})])
    bench.engine.register_table(PLAIN)
    assert bench.sql("SELECT state, count(*) FROM meshnode_log GROUP BY state") == [(0, 1), (2, 1)]
    _running(bench, ["DROP TABLE t", "CREATE TABLE t (other PRIMARY KEY, a)"])
    assert bench.get({"other": 1}) == {"a": 1}
    assert bench.digest()[1] == 1


@noticed
def test_the_horizon_cuts_what_comes_back(notice: Notice, tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    bench.deliver([bench.event(2, n, {"id": n}, {"a": n, "b": n}) for n in range(20)])
    bench.deliver([bench.event(3, 50 + n, {"id": n}, {"b": "late"}) for n in range(0, 20, 2)])
    bench.engine.set_horizon("main", "t", Hlc(bench.time.now_ms + 10, 0))
    notice(bench, ["ALTER TABLE t ADD COLUMN d"])
    assert bench.get({"id": 2}) == {"a": 2, "b": "late"}  # clocks and values from below stay
    assert bench.get({"id": 3}) == {"a": 3, "b": 3}
    notice(bench, ["DROP TABLE t", "CREATE TABLE t (id PRIMARY KEY, a, b)"])
    assert bench.get({"id": 2}) == {"b": "late"}
    assert bench.get({"id": 3}) is None  # a dropped table forgets; events below the horizon never feed a rebuild
    assert bench.get({"id": 13}) == {"a": 13, "b": 13}
    assert "row (" in bench.notices()["partial"].sample


def test_another_schema_change_leaves_rows_and_changes_alone(tmp_path: Path) -> None:
    bench = _with_events(tmp_path)
    before = bench.sql("SELECT * FROM meshnode_rows"), bench.sql("SELECT * FROM t"), bench.changes(0)
    bench.sql("UPDATE t SET a = 'by hand' WHERE id = 7")
    _running(bench, ["CREATE TABLE u (x DEFAULT 1)", "CREATE INDEX i ON t (a)", "VACUUM"])
    assert bench.get({"id": 7}) == {"a": "by hand"}
    bench.sql("UPDATE t SET a = 7 WHERE id = 7")
    _stopped(bench, ["DROP TABLE u"])
    assert (bench.sql("SELECT * FROM meshnode_rows"), bench.sql("SELECT * FROM t"), bench.changes(0)) == before


def test_what_comes_back_is_told_to_subscribers(tmp_path: Path) -> None:
    bench = _with_events(tmp_path)
    last = bench.changes()[-1].seq
    _running(bench, ["ALTER TABLE t ADD COLUMN new"])
    told = {change.key["id"]: change.change for change in bench.changes(last)}
    expected = [row["id"] for row in _shown(bench) if "new" in row and not (row["new"] is None and row["id"] % 5 == 0)]
    assert {number for number, change in told.items() if "new" in change.values} == set(expected)
    assert {change.op for change in told.values()} == {"upsert"}


def test_triggers_and_indexes_of_the_application_live_on(tmp_path: Path) -> None:
    bench = _with_events(tmp_path)
    bench.sql("CREATE TABLE audit (id, new)")
    bench.sql("CREATE INDEX by_a ON t (a)")
    bench.sql("CREATE TRIGGER audited AFTER UPDATE ON t BEGIN INSERT INTO audit VALUES (new.id, new.a); END")
    _running(bench, ["ALTER TABLE t ADD COLUMN new"])
    assert (7, 7) in bench.sql("SELECT id, new FROM audit")
    _same(bench, _fresh(bench, "CREATE TABLE t (id PRIMARY KEY, a, b, new)"))
    assert bench.sql("SELECT name FROM sqlite_master WHERE name IN ('by_a', 'audited') ORDER BY 1") == [
        ("audited",),
        ("by_a",),
    ]


def test_drift_is_noticed_once_ignoring_persists(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    bench.deliver([bench.event(2, 1, {"id": 1}, {"new": 1})])
    bench.time.now_ms += SCHEMA_DRIFT_MS - 1
    bench.deliver([bench.event(2, 2, {"id": 1}, {"new": 2, "other": 1})])
    assert "schema-drift" not in bench.notices()
    bench.time.now_ms += 1
    bench.deliver([bench.event(2, 3, {"id": 1}, {"new": 3})])
    assert bench.notices()["schema-drift"].sample.endswith(": new")
    _running(bench, ["ALTER TABLE t ADD COLUMN new"])
    bench.deliver([bench.event(2, 4, {"id": 1}, {"new": 4})])
    assert bench.notices()["schema-drift"].count == 1
    assert bench.get({"id": 1}) == {"new": 4}


class _Stop(BaseException):
    """The writer stops here."""


@pytest.mark.parametrize(
    "statements",
    [
        ["ALTER TABLE t ADD COLUMN new DEFAULT 1", "ALTER TABLE t DROP COLUMN b"],
        ["DROP TABLE t", "CREATE TABLE t (id PRIMARY KEY, new TEXT NOT NULL, a)"],
        ["DROP TABLE t", "CREATE TABLE t (id, part, a, PRIMARY KEY (id, part))"],
    ],
)
def test_stopped_between_any_two_statements(statements: list[str], tmp_path: Path) -> None:
    bench = _with_events(tmp_path, rows=12)
    for statement in statements:
        bench.sql(statement)
    create = bench.sql("SELECT sql FROM sqlite_master WHERE name = 't'")[0][0]
    stops, left = 0, 0

    def fault(_point: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise _Stop

    bench.fault = fault
    while True:
        stops += 1
        left = stops
        try:
            bench.engine.write([])
            _finish(bench)
            break
        except _Stop:
            left = 0
            bench.engine.close()  # what was not committed is gone
            bench.fault = lambda _point: None
            assert bench.sql("PRAGMA integrity_check") == [("ok",)]
            bench.engine = Engine(Context(bench._database(), bench._env(), bench.key, lambda _tx, _f: bench.membership))
            context = bench.engine.context
            context.on_schema_change = lambda tx, context=context: registry.refresh(context, tx)
            bench.fault = fault
    assert stops > 20
    _same(bench, _fresh(bench, create))


def test_events_taken_back_while_the_table_was_away(tmp_path: Path) -> None:
    bench = _with_events(tmp_path)
    bench.sql("ALTER TABLE t RENAME TO away")
    bench.engine.write([])
    context = bench.engine.context
    third = bench.sql("SELECT no FROM meshnode_sites WHERE site = ?", site_key(3).site)[0][0]

    def take(tx: Tx) -> None:
        tx.execute("DELETE FROM meshnode_log WHERE site_no = ?", (third,))
        entry = context.tables.entry(tx, "main", "t")
        shapes.recompute_later(tx, context.tables.number(tx, entry), context.next_position)

    context.transact(take)
    _running(bench, ["ALTER TABLE away RENAME TO t"])
    _same(bench, _fresh(bench, "CREATE TABLE t (id PRIMARY KEY, a, b)"))


CHANGES = {
    "gain": ["ALTER TABLE t ADD COLUMN new DEFAULT 'd'"],
    "lose": ["ALTER TABLE t DROP COLUMN new"],
    "again": ["DROP TABLE t", "CREATE TABLE t (id PRIMARY KEY, a, b)"],
    "strict": ["DROP TABLE t", "CREATE TABLE t (id ANY PRIMARY KEY, a INTEGER, new TEXT) STRICT"],
    "filled": ["DROP TABLE t", "CREATE TABLE t (id PRIMARY KEY, b NOT NULL, new NOT NULL DEFAULT 'n')"],
    "other key": ["DROP TABLE t", "CREATE TABLE t (part, id, a, PRIMARY KEY (id, part))"],
    "away": ["ALTER TABLE t RENAME TO away"],
    "back": ["ALTER TABLE away RENAME TO t"],
    "emptied": ["DELETE FROM t", "CREATE TABLE x (y)", "DROP TABLE x"],
}
VALUES = st.sampled_from([None, 0, 7, "x", "5", b"b", True, 1.5, "d", "n"])
COLUMNS = st.none() | st.dictionaries(st.sampled_from(["a", "b", "new"]), VALUES, max_size=3)
EVENTS = st.tuples(st.integers(2, 3), st.integers(1, 12), st.integers(0, 3), st.booleans(), COLUMNS)
STEPS = st.one_of(st.sampled_from(sorted(CHANGES)), st.lists(EVENTS, min_size=1, max_size=6), st.just("reopen"))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(STEPS, min_size=2, max_size=10))
def test_any_order_of_migrations_and_events(steps: list[Any]) -> None:
    """State is a pure function of the delivered events and the schema (profile §5)."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        bench.engine.register_table(PLAIN)
        for step in steps:
            if step == "reopen":
                bench.reopen()
            elif isinstance(step, str):
                with suppress(sqlite3.OperationalError):
                    for statement in CHANGES[step]:
                        bench.sql(statement)
            else:
                bench.deliver([_drawn(bench, *each) for each in step])
        bench.engine.write([])
        _finish(bench)
        found = bench.sql("SELECT sql FROM sqlite_master WHERE name = 't'")
        if found:
            _same(bench, _fresh(bench, found[0][0].replace('"t"', "t")))
        assert bench.sql("PRAGMA integrity_check") == [("ok",)]


def _drawn(bench: Bench, site: int, clock: int, row: int, composite: bool, columns: dict[str, Any] | None) -> Event:
    key = {"id": row, "part": 1} if composite else {"id": row}
    return bench.event(site, clock, key, columns)

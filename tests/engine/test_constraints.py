"""profile §5: what the application's own table does not allow is withheld; nothing an event says makes apply raise."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.engines import PLAIN, Bench
from support.records import site_key

from meshnode.engine.registry import TableSpec
from meshnode.engine.write import LocalChange
from meshnode.errors import UsageError

NAMED = TableSpec("main", "t")


def _bench(folder: Path, *statements: str) -> Bench:
    bench = Bench(folder)
    for statement in statements:
        bench.sql(statement)
    bench.engine.register_table(NAMED)
    return bench


def _sql(bench: Bench) -> list[tuple[object, ...]]:
    return bench.sql("SELECT * FROM t ORDER BY 1")


def test_not_null_withholds_until_filled(tmp_path: Path) -> None:
    bench = _bench(tmp_path, "CREATE TABLE t (id TEXT PRIMARY KEY, a TEXT NOT NULL, b)")
    bad, good = bench.event(2, 1, {"id": "x"}, {"b": 1}), bench.event(2, 2, {"id": "y"}, {"a": "ok", "b": 2})
    assert bench.deliver([bad, good]) == ["applied", "applied"]
    assert _sql(bench) == [("y", "ok", 2)]
    assert bench.get({"id": "x"}) is None
    assert "NOT NULL" in bench.notices()["withheld"].sample
    assert bench.deliver([bench.event(3, 3, {"id": "x"}, {"a": "now"})]) == ["applied"]
    assert _sql(bench) == [("x", "now", 1), ("y", "ok", 2)]  # b comes back from the log
    assert bench.get({"id": "x"}) == {"a": "now", "b": 1}
    assert "withheld" not in bench.notices(), "no row is withheld any more"


def test_explicit_null_takes_a_shown_row_out_again(tmp_path: Path) -> None:
    bench = _bench(tmp_path, "CREATE TABLE t (id TEXT PRIMARY KEY, a TEXT NOT NULL, b)")
    bench.deliver([bench.event(2, 1, {"id": "x"}, {"a": "ok", "b": 1})])
    bench.deliver([bench.event(2, 2, {"id": "x"}, {"a": None})])
    assert _sql(bench) == []
    assert [change.change.op for change in bench.changes()] == ["upsert", "withhold"]
    bench.deliver([bench.event(2, 3, {"id": "x"}, {"a": "again"})])
    assert _sql(bench) == [("x", "again", 1)]


def test_withheld_row_deleted_and_resurrected(tmp_path: Path) -> None:
    bench = _bench(tmp_path, "CREATE TABLE t (id TEXT PRIMARY KEY, a TEXT NOT NULL)")
    bench.deliver([bench.event(2, 1, {"id": "x"}, {})])
    bench.deliver([bench.event(2, 2, {"id": "x"}, None)])
    assert bench.sql("SELECT count(*) FROM meshnode_rows WHERE reason IS NOT NULL") == [(0,)]
    bench.deliver([bench.event(2, 3, {"id": "x"}, {"a": "v"})])
    assert _sql(bench) == [("x", "v")]
    assert "resurrected" in bench.notices()


def test_check_constraint_costs_one_row_in_a_batch(tmp_path: Path) -> None:
    bench = _bench(tmp_path, "CREATE TABLE t (id TEXT PRIMARY KEY, a CHECK (a < 10))")
    events = [bench.event(2, number, {"id": f"{number:02}"}, {"a": number}) for number in range(20)]
    assert bench.deliver(events) == ["applied"] * 20
    assert [row[0] for row in _sql(bench)] == [f"{number:02}" for number in range(10)]
    assert bench.notices()["withheld"].count == 10
    # An update that breaks it takes the row out; one that mends it brings it back whole.
    bench.deliver(
        [bench.event(2, 30 + number, {"id": f"{number:02}"}, {"a": 99 - 10 * number}) for number in range(10)]
    )
    assert [row[0] for row in _sql(bench)] == ["09"]
    bench.deliver([bench.event(2, 50 + number, {"id": f"{number:02}"}, {"a": 1}) for number in range(20)])
    assert len(_sql(bench)) == 20


def test_constraints_with_their_own_conflict_clause_do_not_decide(tmp_path: Path) -> None:
    bench = _bench(
        tmp_path,
        "CREATE TABLE t (id TEXT PRIMARY KEY ON CONFLICT ROLLBACK NOT NULL ON CONFLICT IGNORE, "
        "a NOT NULL ON CONFLICT REPLACE DEFAULT 7, b NOT NULL ON CONFLICT ROLLBACK)",
    )
    bench.deliver([bench.event(2, 1, {"id": "x"}, {"a": 1, "b": 1}), bench.event(2, 2, {"id": "y"}, {"a": 1})])
    bench.deliver([bench.event(2, 3, {"id": "z"}, {"a": None, "b": 1}), bench.event(2, 4, {"id": "x"}, {"b": 2})])
    assert _sql(bench) == [("x", 1, 2)]
    assert bench.notices()["withheld"].count == 2


def test_unmaterialized_not_null_with_default_shows_it_in_sql_only(tmp_path: Path) -> None:
    bench = _bench(tmp_path, "CREATE TABLE t (id TEXT PRIMARY KEY, a NOT NULL DEFAULT 'd', b DEFAULT 'never', c)")
    bench.deliver([bench.event(2, 1, {"id": "x"}, {"c": 1}), bench.event(2, 2, {"id": "y"}, {"a": "v"})])
    assert _sql(bench) == [("x", "d", None, 1), ("y", "v", None, None)]
    assert bench.get({"id": "x"}) == {"c": 1}
    # A losing delete makes the column cleared, which is null, which the table does not allow.
    bench.deliver([bench.event(3, 3, {"id": "x"}, {"c": 2})])
    bench.deliver([bench.event(2, 2, {"id": "x"}, None)])
    assert bench.get({"id": "x"}) is None
    assert [row[0] for row in _sql(bench)] == ["y"]


def test_strict_types_are_unknown_columns(tmp_path: Path) -> None:
    bench = _bench(
        tmp_path, "CREATE TABLE t (id TEXT PRIMARY KEY, i INTEGER, r REAL, s TEXT, b BLOB, x ANY) STRICT, WITHOUT ROWID"
    )
    bench.deliver([bench.event(2, 1, {"id": "k"}, {"i": 1, "r": 2, "s": 3, "b": b"4", "x": "5"})])
    assert _sql(bench) == [("k", 1, 2.0, "3", b"4", "5")]
    bench.deliver([bench.event(2, 2, {"id": "k"}, {"i": "no", "r": b"no", "s": b"no", "b": "no", "x": True})])
    assert _sql(bench) == [("k", 1, 2.0, "3", b"4", 1)]
    assert bench.sql("SELECT column_name FROM meshnode_ignored ORDER BY 1") == [("b",), ("i",), ("r",), ("s",)]
    # Their clocks are untouched: an older value that fits still lands.
    bench.deliver([bench.event(3, 1, {"id": "k"}, {"i": "7"})])
    assert bench.get({"id": "k"})["i"] in (1, 7)


def test_generated_hidden_and_rowid_names_are_no_columns(tmp_path: Path) -> None:
    bench = _bench(tmp_path, "CREATE TABLE t (id TEXT PRIMARY KEY, a, g AS (a || '!') STORED, v AS (a))")
    columns = {"a": "x", "g": "no", "v": "no", "rowid": 7, "oid": 8, "_rowid_": 9, "A": "no", "id": "no", "": None}
    del columns[""]
    assert bench.deliver([bench.event(2, 1, {"id": "k"}, columns)]) == ["applied"]
    assert bench.sql("SELECT id, a, g, v, rowid FROM t") == [("k", "x", "x!", "x", 1)]
    ignored = {name for (name,) in bench.sql("SELECT column_name FROM meshnode_ignored")}
    assert ignored == {"g", "v", "rowid", "oid", "_rowid_", "A", "id"}


@pytest.mark.parametrize("action", ["ABORT, 'no'", "FAIL, 'no'", "ROLLBACK, 'no'", "IGNORE"])
@pytest.mark.parametrize("when", ["BEFORE INSERT", "AFTER INSERT", "BEFORE UPDATE", "AFTER UPDATE"])
def test_raising_triggers_cost_one_row(action: str, when: str, tmp_path: Path) -> None:
    bench = _bench(
        tmp_path,
        "CREATE TABLE t (id TEXT PRIMARY KEY, a)",
        "CREATE TABLE audit (id)",
        f"CREATE TRIGGER guard {when} ON t WHEN new.a = 'bad' BEGIN "
        f"INSERT INTO audit VALUES (new.id); SELECT RAISE({action}); END",
    )
    first = [bench.event(2, number, {"id": str(number)}, {"a": "good"}) for number in range(3)]
    assert bench.deliver(first) == ["applied"] * 3
    second = [bench.event(2, 10 + number, {"id": str(number)}, {"a": "bad"}) for number in range(2)]
    third = [bench.event(2, 20, {"id": "3"}, {"a": "bad"}), bench.event(2, 21, {"id": "4"}, {"a": "good"})]
    assert bench.deliver([*second, *third]) == ["applied"] * 4
    shown = dict(_sql(bench))
    silent = action == "IGNORE" and when.startswith("AFTER")  # the write stands
    guarded = {"0", "1"} if "UPDATE" in when else {"3"}
    if not silent:
        for row in guarded:
            assert row not in shown
            assert bench.get({"id": row}) is None
    assert shown["2"] == "good"
    assert shown["4"] == "good"
    if action.startswith("ABORT"):
        assert bench.sql("SELECT count(*) FROM audit") == [(0,)]
    # Every row comes back with the next write that the trigger allows, and the log has each event once.
    bench.deliver([bench.event(2, 30 + number, {"id": str(number)}, {"a": "good"}) for number in range(4)])
    assert len(_sql(bench)) == 5
    positions = [position for (position,) in bench.sql("SELECT position FROM meshnode_log ORDER BY 1")]
    assert positions == list(range(1, 12))


def test_trigger_that_keeps_deleted_rows(tmp_path: Path) -> None:
    bench = _bench(
        tmp_path,
        "CREATE TABLE t (id TEXT PRIMARY KEY, a)",
        "CREATE TRIGGER keep BEFORE DELETE ON t BEGIN SELECT RAISE(ABORT, 'kept'); END",
    )
    bench.deliver([bench.event(2, 1, {"id": "x"}, {"a": 1})])
    assert bench.deliver([bench.event(2, 2, {"id": "x"}, None)]) == ["applied"]
    assert bench.get({"id": "x"}) is None
    assert "kept" in bench.notices()["withheld"].sample
    bench.sql("DROP TRIGGER keep")
    bench.deliver([bench.event(2, 3, {"id": "y"}, {})])
    assert [row[0] for row in _sql(bench)] == ["y"]  # the schema changed, so it was tried again


def test_broken_trigger_withholds_and_mending_brings_back(tmp_path: Path) -> None:
    bench = _bench(
        tmp_path,
        "CREATE TABLE t (id TEXT PRIMARY KEY, a)",
        "CREATE TRIGGER broken AFTER INSERT ON t BEGIN INSERT INTO nowhere VALUES (1); END",
    )
    assert (
        bench.deliver([bench.event(2, number, {"id": str(number)}, {"a": 1}) for number in range(5)]) == ["applied"] * 5
    )
    assert _sql(bench) == []
    bench.sql("DROP TRIGGER broken")
    bench.engine.write([])
    assert len(_sql(bench)) == 5


def test_unknown_function_in_a_check(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.sql("CREATE TABLE t (id TEXT PRIMARY KEY, a)")
    bench.sql("PRAGMA writable_schema = ON")
    bench.engine.register_table(NAMED)
    bench.sql("CREATE INDEX i ON t (a)")
    assert bench.deliver([bench.event(2, 1, {"id": "x"}, {"a": 1})]) == ["applied"]
    assert _sql(bench) == [("x", 1)]


def test_row_removed_by_the_application_is_written_whole(tmp_path: Path) -> None:
    bench = _bench(tmp_path, "CREATE TABLE t (id TEXT PRIMARY KEY, a, b, c)")
    bench.deliver([bench.event(2, n, {"id": str(n)}, {"a": n, "b": n}) for n in range(3)])
    bench.sql("DELETE FROM t WHERE id = '1'")
    bench.deliver([bench.event(3, 10 + n, {"id": str(n)}, {"c": n}) for n in range(3)])
    assert _sql(bench) == [(str(n), n, n, n) for n in range(3)]


def test_foreign_keys_are_not_enforced(tmp_path: Path) -> None:
    bench = _bench(
        tmp_path,
        "CREATE TABLE parent (id TEXT PRIMARY KEY)",
        "CREATE TABLE t (id TEXT PRIMARY KEY, parent REFERENCES parent (id) ON DELETE CASCADE)",
    )
    assert bench.deliver([bench.event(2, 1, {"id": "x"}, {"parent": "late"})]) == ["applied"]
    assert _sql(bench) == [("x", "late")]


def test_key_only_table(tmp_path: Path) -> None:
    bench = _bench(tmp_path, "CREATE TABLE t (x, y, PRIMARY KEY (y, x)) WITHOUT ROWID")
    key = {"x": 1, "y": b"k"}
    bench.deliver([bench.event(2, 1, key, {}), bench.event(3, 2, key, {"z": 1})])
    assert _sql(bench) == [(1, b"k")]
    assert bench.get(key) == {}
    bench.deliver([bench.event(2, 3, key, None)])
    assert _sql(bench) == []


def test_integer_primary_key_of_the_application(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.sql("CREATE TABLE t (id INTEGER PRIMARY KEY, a)")
    bench.engine.register_table(TableSpec("main", "t", own_numbers=True))
    events = [bench.event(2, n, {"id": key}, {"a": n}) for n, key in enumerate((5, "5", "x", b"5", -(2**63)))]
    dropped = "dropped:unresolved-key"
    assert bench.deliver(events) == ["applied", dropped, dropped, dropped, "applied"]
    assert _sql(bench) == [(-(2**63), 4), (5, 0)]


def test_hostile_table_and_column_names(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    name, column = 'a"; DROP TABLE x; --', "c\"] = 1, `d' --"
    bench.engine.register_table(TableSpec("main", name, {'k"': "TEXT"}, {column: "TEXT"}))
    event = bench.event(2, 1, {'k"': "v'"}, {column: "w"}, table=name)
    assert bench.deliver([event]) == ["applied"]
    assert bench.get({'k"': "v'"}, name) == {column: "w"}
    assert bench.deliver([bench.event(2, 2, {'k"': "v'"}, None, table=name)]) == ["applied"]


def test_other_schemas_have_their_own_tables(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    bench.engine.register_table(TableSpec("crm", "t", {"id": ""}, {"a": ""}))
    bench.deliver([bench.event(2, 1, {"id": 1}, {"a": 1}), bench.event(2, 2, {"id": 1}, {"a": 2}, schema="crm")])
    assert bench.sql('SELECT a FROM "crm.t"') == [(2,)]
    assert bench.sql("SELECT a FROM t") == [(1,)]
    assert bench.deliver([bench.event(2, 3, {"id": 1}, {}, schema="other")]) == ["held"]


def test_local_write_that_the_table_does_not_allow_is_an_error(tmp_path: Path) -> None:
    bench = _bench(tmp_path, "CREATE TABLE t (id TEXT PRIMARY KEY, a TEXT NOT NULL)")
    with pytest.raises(UsageError, match=r"t\.a"):
        bench.engine.write([LocalChange("main", "t", {"id": "x"}, {})])
    assert bench.sql("SELECT count(*) FROM meshnode_log") == [(0,)]
    assert bench.engine.write([LocalChange("main", "t", {"id": "x"}, {"a": "v"})])[0].site == site_key(1).site

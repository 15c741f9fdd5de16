"""Profile §5: what any program writes into an adopted table by plain SQL becomes events, in order, and nothing else."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from support.engines import Bench

from meshnode.engine.check import check_store
from meshnode.engine.findings import Findings
from meshnode.engine.forget import forget
from meshnode.engine.registry import TableSpec
from meshnode.model.event import Event
from meshnode.store import capture, changes, log

T = TableSpec("main", "t")


def adopted(folder: Path, sql: str = "CREATE TABLE t (id TEXT PRIMARY KEY, a, b)", **spec: Any) -> Bench:
    bench = Bench(folder)
    bench.sql(sql)
    bench.engine.adopt_tables([TableSpec("main", "t", **spec)])
    sign(bench)
    return bench


def sign(bench: Bench) -> None:
    while bench.engine.sign_captured():
        pass


def authored(bench: Bench, since: int = 0) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """What this node signed: keys and columns, None for a delete."""
    found = bench.read(
        lambda tx: tx.execute(
            "SELECT event FROM meshnode_log WHERE position > ? ORDER BY position", (since,)
        ).fetchall()
    )
    events: list[Event] = [log.parse(data) for (data,) in found]
    own = [event for event in events if event.site == bench.key.site]
    return [(dict(event.key or {}), None if event.columns is None else dict(event.columns)) for event in own]


def signed(bench: Bench, *statements: str, recursive: bool = False) -> list[Any]:
    """What is signed of these statements, which are one transaction."""
    before = bench.read(lambda tx: tx.execute("SELECT coalesce(max(position), 0) FROM meshnode_log").fetchone()[0])
    with closing(sqlite3.connect(bench.path, isolation_level=None)) as app:
        app.execute(f"PRAGMA recursive_triggers = {int(recursive)}")
        app.execute("PRAGMA foreign_keys = ON")
        app.execute("BEGIN")
        for statement in statements:
            app.execute(statement)
        app.execute("COMMIT")
    sign(bench)
    rows = bench.sql("SELECT * FROM t ORDER BY 1")
    assert not bench.sql("SELECT * FROM meshnode_captured")
    events = authored(bench, before)
    sign(bench)
    assert authored(bench, before) == events
    assert bench.sql("SELECT * FROM t ORDER BY 1") == rows
    return [(key.get("id"), columns) for key, columns in events]


CASES = {
    "insert": (["INSERT INTO t VALUES ('x', 1, NULL)"], [("x", {"a": 1})]),
    "several": (
        ["INSERT INTO t VALUES ('x', 1, 2), ('y', 3, 4)", "UPDATE t SET b = 5 WHERE id = 'x'"],
        [("x", {"a": 1, "b": 5}), ("y", {"a": 3, "b": 4})],
    ),
    "update": (["UPDATE t SET b = 'new' WHERE id = 'r'"], [("r", {"b": "new"})]),
    "nothing": (["UPDATE t SET a = a, b = b"], []),
    "to-null": (["UPDATE t SET a = NULL WHERE id = 'r'"], [("r", {"a": None})]),
    "kind": (["UPDATE t SET a = 1.0 WHERE id = 'r'"], [("r", {"a": 1.0})]),
    "text": (["UPDATE t SET a = '1' WHERE id = 'r'"], [("r", {"a": "1"})]),
    "blob": (["UPDATE t SET a = x'31' WHERE id = 'r'"], [("r", {"a": b"1"})]),
    "delete": (["DELETE FROM t WHERE id = 'r'"], [("r", None)]),
    "everything": (["DELETE FROM t"], [("r", None)]),
    "replace": (["REPLACE INTO t (id, a) VALUES ('r', 1)"], [("r", {"b": None})]),
    "ignored": (["INSERT OR IGNORE INTO t VALUES ('r', 9, 9)"], []),
    "upsert": (
        ["INSERT INTO t VALUES ('r', 9, 9) ON CONFLICT (id) DO UPDATE SET a = excluded.a"],
        [("r", {"a": 9})],
    ),
    "again": (["DELETE FROM t", "INSERT INTO t VALUES ('r', 1, NULL)"], [("r", None), ("r", {"a": 1})]),
    "fleeting": (["INSERT INTO t VALUES ('x', 1, 1)", "DELETE FROM t WHERE id = 'x'"], []),
    "key": (["UPDATE t SET id = 's' WHERE id = 'r'"], [("r", None), ("s", {"a": 1, "b": "b"})]),
    "key-over": (
        ["INSERT INTO t VALUES ('s', 5, 6)", "UPDATE OR REPLACE t SET id = 's' WHERE id = 'r'"],
        [("s", {"a": 1, "b": "b"}), ("r", None)],
    ),
    "and-back": (["UPDATE t SET id = 's'", "UPDATE t SET id = 'r'"], [("r", None), ("r", {"a": 1, "b": "b"})]),
    "undone": (["SAVEPOINT s", "DELETE FROM t", "ROLLBACK TO s"], []),
}
TABLES = {
    "rowid": "CREATE TABLE t (id TEXT PRIMARY KEY, a, b)",
    "without-rowid": "CREATE TABLE t (id TEXT NOT NULL PRIMARY KEY, a, g AS (a), b) WITHOUT ROWID",
}


@pytest.fixture(scope="module", params=list(TABLES))
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = adopted(tmp_path_factory.mktemp("capture"), TABLES[request.param])
    yield made
    made.engine.close()


@pytest.mark.parametrize("case", list(CASES))
def test_what_a_transaction_says_is_signed(case: str, bench: Bench) -> None:
    statements, expected = CASES[case]
    bench.sql("DELETE FROM t")
    bench.sql("INSERT INTO t (id, a, b) VALUES ('r', 1, 'b')")
    sign(bench)
    statements = [each.replace("INTO t VALUES", "INTO t (id, a, b) VALUES") for each in statements]
    assert signed(bench, *statements) == expected


@pytest.mark.parametrize("recursive", [False, True], ids=["plain", "recursive"])
def test_replace_says_the_same_with_recursive_triggers(recursive: bool, tmp_path: Path) -> None:
    bench = adopted(tmp_path)
    assert signed(bench, "INSERT INTO t VALUES ('r', 1, 2)")
    events = signed(bench, "REPLACE INTO t (id, a) VALUES ('r', 3)", recursive=recursive)
    assert events == ([("r", None), ("r", {"a": 3})] if recursive else [("r", {"a": 3, "b": None})])
    assert bench.get({"id": "r"}) == {"a": 3, "b": None}


def test_rows_that_are_there_are_signed_once_and_a_stop_in_between_is_no_harm(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.sql("CREATE TABLE t (id INTEGER PRIMARY KEY, a)")
    bench.sql(
        "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 700) INSERT INTO t SELECT i, i * 2 FROM n"
    )
    bench.engine.adopt_tables([TableSpec("main", "t", own_numbers=True)])
    assert bench.engine.sign_captured()
    bench.reopen()
    bench.sql("UPDATE t SET a = 'late' WHERE id = 699")
    sign(bench)
    bench.reopen()
    sign(bench)
    events = authored(bench)
    assert len(events) == 700
    assert ({"id": 699}, {"a": "late"}) in events
    assert ({"id": 1}, {"a": 2}) in events


def test_what_the_node_writes_is_not_captured(tmp_path: Path) -> None:
    bench = adopted(tmp_path)
    bench.deliver([bench.event(2, 1, {"id": "x"}, {"a": 1}), bench.event(2, 2, {"id": "y"}, {"a": 1})])
    bench.deliver([bench.event(2, 3, {"id": "x"}, None)])
    assert bench.sql("SELECT id FROM t") == [("y",)]
    assert not bench.sql("SELECT * FROM meshnode_captured")
    assert not bench.sql("SELECT * FROM meshnode_gate")
    assert authored(bench) == []


def test_what_the_node_writes_is_not_captured_after_it_took_a_part_of_a_transaction_back(tmp_path: Path) -> None:
    bench = adopted(tmp_path)
    with bench.engine.context.transaction() as tx:
        with suppress(ValueError), tx.savepoint():
            tx.close_gate()
            raise ValueError
        tx.close_gate()
        tx.execute("INSERT INTO t VALUES ('x', 1, 2)")
    assert bench.sql("SELECT * FROM meshnode_captured") == []


def test_a_remote_change_in_between_does_not_swallow_the_local_one(tmp_path: Path) -> None:
    bench = adopted(tmp_path)
    signed(bench, "INSERT INTO t VALUES ('x', 'old', 'old'), ('y', 'old', 'old'), ('z', 'old', 'old')")
    bench.sql("UPDATE t SET a = 'local' WHERE id IN ('x', 'z')")
    bench.sql("DELETE FROM t WHERE id = 'y'")
    bench.time.now_ms += 5
    later = bench.time.now_ms + 1000
    bench.deliver(
        [
            bench.event(2, (later, 0), {"id": "x"}, {"b": "remote"}),
            bench.event(2, (later, 1), {"id": "y"}, {"b": "remote"}),
            bench.event(2, (bench.time.now_ms - 5, 9), {"id": "z"}, {"a": "earlier"}),
        ]
    )
    assert bench.get({"id": "x"}) == {"a": "local", "b": "remote"}
    assert bench.get({"id": "y"}) == {"b": "remote", "a": None}
    assert bench.get({"id": "z"}) == {"a": "local", "b": "old"}
    events = authored(bench)
    sign(bench)
    assert authored(bench) == events
    assert events[3:] == [({"id": "x"}, {"a": "local"}), ({"id": "y"}, None), ({"id": "z"}, {"a": "local"})]


def test_a_local_write_by_the_node_comes_after_what_sql_said_before(tmp_path: Path) -> None:
    from meshnode.engine.write import LocalChange

    bench = adopted(tmp_path)
    signed(bench, "INSERT INTO t VALUES ('x', 'old', 'old')")
    bench.sql("UPDATE t SET a = 'sql', b = 'sql'")
    bench.engine.write([LocalChange("main", "t", {"id": "x"}, {"a": "api"})])
    sign(bench)
    assert bench.get({"id": "x"}) == {"a": "api", "b": "sql"}
    assert bench.sql("SELECT a, b FROM t") == [("api", "sql")]


def test_rows_of_the_table_are_signed_before_what_was_held_for_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.deliver([bench.event(2, 1, {"id": "x"}, {"a": "remote", "b": "remote"})]) == ["held"]
    bench.sql("CREATE TABLE t (id TEXT PRIMARY KEY, a, b)")
    bench.sql("INSERT INTO t VALUES ('x', 'mine', NULL), ('y', 'mine', NULL)")
    bench.engine.adopt_tables([T])
    assert bench.get({"id": "x"}) == {"a": "mine", "b": "remote"}
    sign(bench)
    assert authored(bench) == [({"id": "x"}, {"a": "mine"}), ({"id": "y"}, {"a": "mine"})]


REBUILT = [
    "BEGIN",
    "CREATE TABLE new_t (id TEXT PRIMARY KEY, a, b, c DEFAULT 7)",
    "INSERT INTO new_t (id, a, b) SELECT id, a, b FROM t",
    "DROP TABLE t",
    "ALTER TABLE new_t RENAME TO t",
    "UPDATE t SET a = 'unwatched' WHERE id = 'x'",
    "INSERT INTO t (id, a) VALUES ('new', 1)",
    "DELETE FROM t WHERE id = 'z'",
    "COMMIT",
]


def test_triggers_that_a_rebuilt_table_lost_come_back_and_nothing_written_meanwhile_is_lost(tmp_path: Path) -> None:
    bench = adopted(tmp_path)
    signed(bench, "INSERT INTO t VALUES ('x', 1, 2), ('y', 3, 4), ('z', 5, 6)")
    bench.sql("UPDATE t SET b = 'before' WHERE id = 'y'")
    with closing(sqlite3.connect(bench.path, isolation_level=None)) as app:
        for statement in REBUILT:
            app.execute(statement)
    while bench.engine.follow_schema():
        pass
    assert bench.sql("SELECT a, b FROM t WHERE id = 'z'") == [(5, 6)]  # nobody may have wished it away
    assert authored(bench)[3:] == [
        ({"id": "y"}, {"b": "before"}),
        ({"id": "new"}, {"a": 1, "c": 7}),
        ({"id": "x"}, {"a": "unwatched"}),
    ]
    assert "unwatched" in bench.notices()
    assert signed(bench, "UPDATE t SET a = 2 WHERE id = 'y'") == [("y", {"a": 2})]


@pytest.mark.parametrize(
    "change",
    ["ADD COLUMN c DEFAULT 5", "RENAME COLUMN id TO key", "RENAME COLUMN b TO c", "DROP COLUMN b"],
    ids=["add", "rename-key", "rename", "drop"],
)
def test_altered_while_the_node_is_away(change: str, tmp_path: Path) -> None:
    bench = adopted(tmp_path)
    signed(bench, "INSERT INTO t VALUES ('x', 1, 2)")
    bench.engine.close()
    bench.sql(f"ALTER TABLE t {change}")
    bench.sql("UPDATE t SET a = 'new'")
    bench.reopen()
    while bench.engine.follow_schema():
        pass
    key = "key" if "key" in change else "id"
    assert ({key: "x"}, {"a": "new"}) in [(k, {"a": (c or {}).get("a")}) for k, c in authored(bench)]
    with bench.engine.context.transaction() as tx:
        entry = bench.engine.context.tables.entry(tx, "main", "t")
        destination = bench.engine.context.destination(tx, entry)
        assert destination is not None
        assert capture.is_watched(tx, destination)


def test_what_waits_to_be_signed_is_not_put_back_when_the_schema_changes(tmp_path: Path) -> None:
    bench = adopted(tmp_path)
    bench.sql(
        "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400) INSERT INTO t SELECT i, 'x', 1 FROM n"
    )
    sign(bench)
    bench.sql("UPDATE t SET a = NULL")
    bench.sql("ALTER TABLE t ADD COLUMN c")
    while bench.engine.follow_schema():
        pass
    assert bench.sql("SELECT count(*), count(a), count(b) FROM t") == [(400, 0, 400)]
    assert [columns for _, columns in authored(bench)[400:]] == [{"a": None}] * 400


def test_what_no_event_can_carry_stays_here_and_stops_nothing(tmp_path: Path) -> None:
    bench = adopted(tmp_path)
    statements = (
        "INSERT INTO t VALUES ('inf', 9e999, 1)",
        "INSERT INTO t VALUES ('text', CAST(x'ff' AS TEXT), 1)",
        "INSERT INTO t VALUES ('large', zeroblob(1100000), 1)",
        "INSERT INTO t VALUES (NULL, 1, 1)",
        "INSERT INTO t VALUES ('two', zeroblob(700000), zeroblob(700001))",
        "INSERT INTO t VALUES ('last', 1, 1)",
    )
    bench.sql("CREATE TABLE other (x)")
    with closing(sqlite3.connect(bench.path, isolation_level=None)) as app:
        for statement in statements:
            app.execute(statement)
    sign(bench)
    events = [(key["id"], sorted(columns or {})) for key, columns in authored(bench)]
    assert events == [
        ("inf", ["b"]), ("text", ["b"]), ("large", ["b"]), ("two", ["a"]), ("two", ["b"]), ("last", ["a", "b"]),
    ]  # fmt: skip
    notice = bench.notices()["unsyncable"]
    assert notice.count == 4
    assert bench.sql("SELECT count(*) FROM t") == [(6,)]


def raw(bench: Bench, sql: bytes) -> None:
    """As a program has it that speaks Latin-1 to SQLite."""
    subprocess.run(["sqlite3", str(bench.path)], input=sql, check=True)


def test_a_name_that_is_not_utf_8_keeps_its_own_table_alone_from_being_signed(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for name in ("t", "s"):
        bench.sql(f"CREATE TABLE {name} (id TEXT PRIMARY KEY, a)")
    bench.engine.adopt_tables([TableSpec("main", "t"), TableSpec("main", "s")])
    raw(bench, b'CREATE TABLE "\xe9" (x); CREATE INDEX "i\xe9" ON t (a); CREATE VIEW "v\xe9" AS SELECT 1;')
    raw(bench, b"INSERT INTO t VALUES ('x', 1)")
    sign(bench)
    raw(bench, b'ALTER TABLE t ADD COLUMN "c\xe9"; UPDATE t SET "c\xe9" = 2; INSERT INTO s VALUES (\'y\', 3);')
    sign(bench)
    assert authored(bench) == [({"id": "x"}, {"a": 1}), ({"id": "y"}, {"a": 3})]
    assert "not UTF-8" in bench.notices()["table-unusable"].sample
    raw(bench, b'ALTER TABLE t RENAME COLUMN "c\xe9" TO c')
    sign(bench)
    assert authored(bench)[2:] == [({"id": "x"}, {"c": 2})]


def test_a_table_of_as_many_columns_as_sqlite_has(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(1999)]
    bench = adopted(tmp_path, f"CREATE TABLE t (id TEXT PRIMARY KEY, {', '.join(names)})")
    bench.sql("INSERT INTO t (id, c0, c1998) VALUES ('x', 1, 2)")
    sign(bench)
    bench.sql("UPDATE t SET c999 = 3")
    sign(bench)
    assert authored(bench) == [({"id": "x"}, {"c0": 1, "c1998": 2}), ({"id": "x"}, {"c999": 3})]


def test_triggers_and_cascades_of_the_application_are_captured(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.sql("CREATE TABLE t (id TEXT PRIMARY KEY, up TEXT REFERENCES t ON DELETE CASCADE, n DEFAULT 0)")
    bench.sql("CREATE TRIGGER count_it AFTER INSERT ON t BEGIN UPDATE t SET n = n + 1 WHERE id = new.up; END")
    bench.engine.adopt_tables([T])
    events = signed(bench, "INSERT INTO t (id) VALUES ('a')", "INSERT INTO t (id, up) VALUES ('b', 'a'), ('c', 'b')")
    assert events == [("a", {"n": 1}), ("b", {"up": "a", "n": 1}), ("c", {"up": "b", "n": 0})]
    assert sorted(signed(bench, "DELETE FROM t WHERE id = 'a'")) == [("a", None), ("b", None), ("c", None)]


def test_a_device_that_may_not_write_keeps_its_rows_to_itself_until_it_may(tmp_path: Path) -> None:
    from support.engines import members
    from support.records import site_key

    bench = adopted(tmp_path)
    keys = [site_key(number).public_key for number in (1, 2, 3)]
    reader = members(keys, {bench.key.site: "reader"})
    bench.engine.context.set_membership(reader)
    bench.sql("INSERT INTO t VALUES ('x', 1, 2)")
    sign(bench)
    assert authored(bench) == []
    assert bench.notices()["unsigned"].count == 1
    bench.engine.context.set_membership(bench.membership)
    sign(bench)
    assert authored(bench) == [({"id": "x"}, {"a": 1, "b": 2})]


def test_nothing_is_kept_of_a_row_that_is_forgotten_before_it_is_signed(tmp_path: Path) -> None:
    bench = adopted(tmp_path)
    signed(bench, "INSERT INTO t VALUES ('secret', 1, 2)")
    bench.sql("UPDATE t SET a = 3")
    forget(bench.engine.context, "main", "t", {"id": "secret"})
    assert not bench.sql("SELECT * FROM meshnode_captured")
    bench.sql("INSERT INTO t VALUES ('secret', 4, 5)")
    sign(bench)
    assert authored(bench) == []
    notice = bench.notices()["unsyncable"]
    assert "secret" not in notice.sample


def test_a_table_that_is_renamed_is_watched_no_longer_until_it_is_back(tmp_path: Path) -> None:
    bench = adopted(tmp_path)
    signed(bench, "INSERT INTO t VALUES ('x', 1, 2)")
    bench.sql("ALTER TABLE t RENAME TO u")
    bench.engine.follow_schema()
    bench.sql("UPDATE u SET a = 3")
    assert not bench.sql("SELECT * FROM meshnode_captured")
    bench.sql("ALTER TABLE u RENAME TO t")
    while bench.engine.follow_schema():
        pass
    assert authored(bench)[1:] == [({"id": "x"}, {"a": 3})]


def test_a_number_of_a_row_is_changed_under_any_of_its_names(tmp_path: Path) -> None:
    bench = adopted(tmp_path, "CREATE TABLE t (id INTEGER PRIMARY KEY, a)", own_numbers=True)
    for name in ("id", "rowid", "oid", "_rowid_"):
        signed(bench, "INSERT INTO t VALUES (1, 'a')")
        assert signed(bench, f"UPDATE t SET {name} = 2") == [(1, None), (2, {"a": "a"})]
        signed(bench, "DELETE FROM t")


def test_keys_of_several_columns(tmp_path: Path) -> None:
    key = ", ".join(f"k{at}" for at in range(16))
    bench = adopted(tmp_path, f"CREATE TABLE t ({key}, a, PRIMARY KEY ({key}))")
    bench.sql(f"INSERT INTO t VALUES ({', '.join(map(str, range(16)))}, 'a')")
    bench.sql("UPDATE t SET k15 = 'moved'")
    sign(bench)
    assert [(named["k15"], columns) for named, columns in authored(bench)] == [("moved", {"a": "a"})]


def test_no_trigger_of_the_file_says_what_an_older_sqlite_does_not_read(tmp_path: Path) -> None:
    bench = adopted(tmp_path)
    found = [sql for (sql,) in bench.sql("SELECT upper(sql) FROM sqlite_master WHERE type = 'trigger'")]
    assert len(found) == 7
    newer = ("ON CONFLICT", "RETURNING", "UPDATE FROM", "IIF(", "->", "NULLS ", "FILTER", "OVER (")
    assert [sql for sql in found if any(word in sql for word in newer)] == []


def test_check_says_what_is_not_signed_yet(tmp_path: Path) -> None:
    bench = adopted(tmp_path)
    bench.sql("INSERT INTO t VALUES ('x', 1, 2)")
    found: Findings = bench.read(check_store, sqlite3, bench.membership.key_of)
    assert [each.what for each in found.differences] == [
        "what was written to it by SQL is not all signed yet: run the node"
    ]
    sign(bench)
    found = bench.read(check_store, sqlite3, bench.membership.key_of)
    assert found.differences == []


def test_a_change_of_what_was_captured_tells_what_was_signed_before(tmp_path: Path) -> None:
    bench = adopted(tmp_path)
    signed(bench, "INSERT INTO t VALUES ('x', 'old', 1)")
    signed(bench, "UPDATE t SET a = 'new' WHERE id = 'x'")
    signed(bench, "DELETE FROM t")
    told = [changes.unpack(data) for (data,) in bench.sql("SELECT change FROM meshnode_changes ORDER BY seq")]
    assert [(each.op, each.values, each.old) for each in told] == [
        ("upsert", {"a": "old", "b": 1}, {}),
        ("upsert", {"a": "new"}, {"a": "old"}),
        ("delete", {}, {"a": "new", "b": 1}),
    ]

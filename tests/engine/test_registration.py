"""profile §5: which tables may be destinations; each refusal names the column and what mends it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.engines import PLAIN, Bench

from meshnode.engine.registry import TableSpec
from meshnode.errors import NotFoundError, RegistrationError

T = TableSpec("main", "t")

REFUSED = [
    ("CREATE TABLE t (a, b)", "no primary key"),
    ("CREATE TABLE t (id TEXT COLLATE NOCASE PRIMARY KEY, a)", "'id'.*NOCASE.*COLLATE BINARY"),
    ("CREATE TABLE t (id TEXT, x TEXT COLLATE RTRIM, PRIMARY KEY (id, x)) WITHOUT ROWID", "'x'.*RTRIM"),
    ("CREATE TABLE t (id TEXT PRIMARY KEY, mail UNIQUE)", "'mail'.*UNIQUE"),
    ("CREATE TABLE t (id TEXT PRIMARY KEY, a, b, UNIQUE (a, b))", "'a', 'b'.*UNIQUE"),
    ("CREATE TABLE t (id INTEGER PRIMARY KEY, a)", "'id'.*bare INTEGER PRIMARY KEY.*TEXT PRIMARY KEY"),
    ("CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, a)", "'id'.*AUTOINCREMENT"),
    ("CREATE VIEW t AS SELECT 1 AS id", "view"),
    ("CREATE VIRTUAL TABLE t USING fts5 (a)", "virtual"),
    ("CREATE TABLE T (id TEXT PRIMARY KEY)", "'T'.*byte for byte"),
    ("CREATE TABLE u (id TEXT PRIMARY KEY)", "there is no table 't'"),
]
ACCEPTED = [
    "CREATE TABLE t (id TEXT PRIMARY KEY, a)",
    "CREATE TABLE t (id TEXT PRIMARY KEY, a, UNIQUE (id))",
    "CREATE TABLE t (id INTEGER PRIMARY KEY, a) WITHOUT ROWID",
    "CREATE TABLE t (id INT PRIMARY KEY, a)",
    "CREATE TABLE t (id INTEGER PRIMARY KEY DESC, a)",
    "CREATE TABLE t (id TEXT PRIMARY KEY, a ANY NOT NULL DEFAULT 'AUTOINCREMENT' CHECK (a <> 'UNIQUE')) STRICT",
    "CREATE TABLE t (id TEXT PRIMARY KEY, a REFERENCES u (x))",
]


@pytest.mark.parametrize(("sql", "message"), REFUSED)
def test_refused(sql: str, message: str, tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.sql(sql)
    with pytest.raises(RegistrationError, match=message):
        bench.engine.register_table(T)
    assert bench.engine.tables() == []
    assert bench.deliver([bench.event(2, 1, {"id": "x"}, {})]) == ["held"]


@pytest.mark.parametrize("sql", ACCEPTED)
def test_accepted(sql: str, tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.sql(sql)
    destination = bench.engine.register_table(T)
    key = "x" if destination.key[0].affinity.value in ("TEXT", "BLOB") else 1
    assert bench.deliver([bench.event(2, 1, {"id": key}, {"a": 1})]) == ["applied"]
    bench.deliver([bench.event(2, 2, {"id": key}, {"a": 2})])
    assert [row[1] for row in bench.sql("SELECT * FROM t")] in ([2], ["2"])


def test_unique_index_names_the_sql_that_mends_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.sql("CREATE TABLE t (id TEXT PRIMARY KEY, mail)")
    bench.sql("CREATE UNIQUE INDEX by_mail ON t (mail)")
    with pytest.raises(RegistrationError, match='DROP INDEX "by_mail"; CREATE INDEX') as caught:
        bench.engine.register_table(T)
    mend = str(caught.value).split(" both rows must stand; ")[1]
    for statement in mend.split("; "):
        bench.sql(statement)
    bench.engine.register_table(T)


@pytest.mark.parametrize("name", ["", "x" * 129, "sqlite_x", "MeshNode_x", "a.b", "nul\0"])
def test_names_that_no_event_could_have(name: str, tmp_path: Path) -> None:
    with pytest.raises(RegistrationError):
        Bench(tmp_path).engine.register_table(TableSpec("main", name, {"id": "TEXT"}))


@pytest.mark.parametrize(
    "declared", ["TEXT); DROP TABLE x; --", "TEXT DEFAULT (1)", "'", "TEXT,x", "TEXT UNIQUE", "TEXT not null"]
)
def test_types_are_type_names(declared: str, tmp_path: Path) -> None:
    with pytest.raises(RegistrationError, match="no SQLite type"):
        Bench(tmp_path).engine.register_table(TableSpec("main", "t", {"id": "TEXT"}, {"a": declared}))


def test_adding_again_changes_nothing_and_another_shape_is_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    bench.engine.register_table(PLAIN)
    with pytest.raises(RegistrationError, match="exists with other columns"):
        bench.engine.register_table(TableSpec("main", "t", {"other": ""}, {"a": ""}))
    assert [entry.text for entry, _ in bench.engine.tables()] == ["t"]


def test_checked_again_when_the_schema_changes(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    bench.sql("CREATE UNIQUE INDEX u ON t (a)")
    assert bench.deliver([bench.event(2, 1, {"id": 1}, {"a": 1})]) == ["held"]
    assert "UNIQUE" in bench.notices()["table-unusable"].sample
    with pytest.raises(NotFoundError, match="cannot be used"):
        bench.get({"id": 1})
    bench.sql("DROP INDEX u")
    assert bench.deliver([bench.event(2, 2, {"id": 1}, {"b": 2})]) == ["applied"]
    assert bench.get({"id": 1}) == {"a": 1, "b": 2}


def test_checked_again_at_start(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    bench.engine.close()
    bench.sql("DROP TABLE t")
    bench.reopen()
    assert bench.engine.tables()[0][1] is None
    assert bench.deliver([bench.event(2, 1, {"id": 1}, {"a": 1})]) == ["held"]
    bench.sql("CREATE TABLE t (id PRIMARY KEY, a, b)")
    bench.engine.write([])
    assert bench.get({"id": 1}) == {"a": 1}


def test_held_events_are_applied_when_their_table_appears(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    events = [bench.event(2, number, {"id": number % 7}, {"a": number}) for number in range(1200)]
    events.append(bench.event(2, 1300, {"wrong": 1}, {"a": 1}))
    for start in range(0, len(events), 500):
        assert set(bench.deliver(events[start : start + 500])) == {"held"}
    assert bench.sql("SELECT events FROM meshnode_held") == [(1201,)]
    bench.engine.register_table(PLAIN)
    assert bench.sql("SELECT count(*) FROM meshnode_held") == [(0,)]
    assert bench.sql("SELECT state, count(*) FROM meshnode_log GROUP BY state") == [(0, 1200), (2, 1)]
    assert bench.sql("SELECT id, a FROM t ORDER BY id") == [(n, max(range(n, 1200, 7))) for n in range(7)]
    assert bench.deliver(events[:2]) == ["duplicate", "duplicate"]
    assert "unresolved-key" in bench.notices()


def test_rows_that_were_there_become_this_devices_writes(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.sql("CREATE TABLE t (id PRIMARY KEY, a, b)")
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1100)"
    bench.sql(f"{numbers} INSERT INTO t SELECT i, i * 2, NULL FROM n")
    bench.sql("INSERT INTO t VALUES (1.5, 'no key of an event', 1), (NULL, 'nor this', 1), ('9e999', 9e999, 'x')")
    bench.engine.register_table(T)
    assert bench.digest()[1] == 1101
    assert bench.get({"id": 7}) == {"a": 14}
    assert bench.get({"id": "9e999"}) == {"b": "x"}
    assert bench.sql("SELECT count(*) FROM meshnode_log") == [(1101,)]
    bench.engine.register_table(T)
    assert bench.sql("SELECT count(*) FROM meshnode_log") == [(1101,)]

"""profile §5: every refusal, at registration and when the application brings it about later; its SQL mends it."""

from __future__ import annotations

import re
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.engines import Bench

from meshnode.engine.registry import TableSpec
from meshnode.errors import NotFoundError, RegistrationError
from meshnode.limits import KEY_COLUMNS, NAME_BYTES
from meshnode.model.event import Event

T = TableSpec("main", "t")
FIT = "CREATE TABLE t (id TEXT PRIMARY KEY, mail TEXT, n INTEGER CHECK (n < 1000))"
LONG = "x" * (NAME_BYTES + 1)
KEYS = [f"k{number}" for number in range(KEY_COLUMNS + 1)]
COPY = "INSERT INTO t (id, mail, n) SELECT id, mail, n FROM old"


def instead(create: str, copy: str = COPY) -> list[str]:
    """How applications change what SQLite cannot change in place."""
    return ["CREATE TABLE old AS SELECT * FROM t", "DROP TABLE t", create, copy, "DROP TABLE old"]


@dataclass(frozen=True)
class Refusal:
    """What the application does to the table, and what the refusal names."""

    statements: list[str]
    named: str  # the column, or what else is wrong
    why: str


REFUSALS = {
    "no primary key": Refusal(instead("CREATE TABLE t (id TEXT, mail, n)"), "'t'", "no primary key"),
    "no primary key, copied": Refusal(
        ["CREATE TABLE new AS SELECT * FROM t", "DROP TABLE t", "ALTER TABLE new RENAME TO t"], "'t'", "no primary key"
    ),
    "collation": Refusal(
        instead("CREATE TABLE t (id TEXT COLLATE NOCASE PRIMARY KEY, mail COLLATE NOCASE, n)"), "'id'", "NOCASE"
    ),
    "collation in the key's list": Refusal(
        instead("CREATE TABLE t (id TEXT NOT NULL, mail, n, PRIMARY KEY (id COLLATE RTRIM)) WITHOUT ROWID"),
        "'id'",
        "RTRIM",
    ),
    "unique index": Refusal(["CREATE UNIQUE INDEX by_mail ON t (mail)"], "'mail'", "UNIQUE"),
    "unique index of some rows": Refusal(
        ["CREATE UNIQUE INDEX by_mail ON t (mail, n DESC) WHERE n > 900"], "'mail', 'n'", "UNIQUE"
    ),
    "unique index of an expression": Refusal(
        ["CREATE UNIQUE INDEX by_mail ON t (lower(mail || 'unique index'), n)"], "'an expression', 'n'", "UNIQUE"
    ),
    "unique index of the key by letter": Refusal(
        ["CREATE UNIQUE INDEX by_id ON t (id COLLATE NOCASE)"], "'id'", "UNIQUE"
    ),
    "unique column": Refusal(
        instead(
            "CREATE TABLE t (id TEXT PRIMARY KEY, mail TEXT CONSTRAINT one UNIQUE ON CONFLICT REPLACE DEFAULT 'none', "
            "n CHECK (n <> 'UNIQUE'))"
        ),
        "'mail'",
        "UNIQUE",
    ),
    "unique columns": Refusal(
        instead(
            "CREATE TABLE t (\n  id TEXT PRIMARY KEY, -- the key, UNIQUE\n  mail DEFAULT (1 + 2), n,\n"
            '  CONSTRAINT "UNIQUE" CHECK (n < 1000) -- last, but one\n  , UNIQUE (mail, n), UNIQUE (n)\n)'
        ),
        "'n'",
        "UNIQUE",
    ),
    "unique generated column": Refusal(
        instead("CREATE TABLE t (id TEXT PRIMARY KEY, mail, n, g AS (mail || n) UNIQUE)"), "'g'", "UNIQUE"
    ),
    "numbered": Refusal(
        ["DROP TABLE t", "CREATE TABLE t (id INTEGER PRIMARY KEY, mail, n)"], "'id'", "a bare INTEGER PRIMARY KEY"
    ),
    "numbered, listed": Refusal(
        ["DROP TABLE t", "CREATE TABLE t (id INTEGER, mail TEXT, n, PRIMARY KEY (id))"],
        "'id'",
        "a bare INTEGER PRIMARY KEY",
    ),
    "numbered for ever": Refusal(
        [
            "DROP TABLE t",
            "CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, mail, n) STRICT".replace(
                "mail, n", "mail TEXT, n INT"
            ),
        ],
        "'id'",
        "AUTOINCREMENT",
    ),
    "numbered for ever, listed": Refusal(
        ["DROP TABLE t", "CREATE TABLE t (id INTEGER, mail, n, PRIMARY KEY (id AUTOINCREMENT))"],
        "'id'",
        "AUTOINCREMENT",
    ),
    "view": Refusal(["ALTER TABLE t RENAME TO u", "CREATE VIEW t AS SELECT * FROM u"], "'t'", "is a view"),
    "view of nothing": Refusal(
        ["CREATE VIEW v AS SELECT * FROM t", "DROP TABLE t", "CREATE VIEW t AS SELECT * FROM nowhere"],
        "'t'",
        "is a view",
    ),
    "virtual": Refusal(["DROP TABLE t", "CREATE VIRTUAL TABLE t USING fts5 (mail)"], "'t'", "is a virtual table"),
    "another letter case": Refusal(
        ["ALTER TABLE t RENAME TO tt", "ALTER TABLE tt RENAME TO T"], "'T'", "byte for byte"
    ),
    "too many key columns": Refusal(
        instead(
            f"CREATE TABLE t (id TEXT, mail, n, {', '.join(f'{key} DEFAULT 1' for key in KEYS)}, "
            f"PRIMARY KEY ({', '.join(KEYS)}, id))"
        ),
        "'t'",
        f"{KEY_COLUMNS + 2} key columns",
    ),
    "name too long": Refusal([f"ALTER TABLE t ADD COLUMN {LONG}"], f"'{LONG[:40]}'", "1 to 128 bytes"),
    "no name": Refusal(['ALTER TABLE t ADD COLUMN ""'], "''", "1 to 128 bytes"),
    "missing": Refusal(["DROP TABLE t"], "'t'", "there is no table"),
}
BESIDE = ["CREATE INDEX by_n ON t (n)", "CREATE TABLE audit (id)"]
TRIGGER = "CREATE TRIGGER noted AFTER INSERT ON t BEGIN INSERT INTO audit VALUES (new.id || ';'); SELECT 1; END"

Do = Callable[[Bench, list[str]], None]


def _running(bench: Bench, statements: list[str]) -> None:
    for statement in statements:
        bench.sql(statement)
    bench.engine.write([])


def _stopped(bench: Bench, statements: list[str]) -> None:
    bench.engine.close()
    for statement in statements:
        bench.sql(statement)
    bench.reopen()


def mend_of(message: str) -> str:
    """The SQL that a refusal ends with."""
    found = re.search(r"; ((?:BEGIN;|CREATE |DROP |ALTER ).*)\Z", message, re.DOTALL)
    assert found is not None, message
    return found[1]


def run_script(bench: Bench, script: str) -> None:
    """What the reader of a refusal does."""
    with closing(sqlite3.connect(bench.path, isolation_level=None, timeout=10)) as connection:
        connection.executescript(script)


def written(bench: Bench) -> list[Event]:
    events = [bench.event(2, n, {"id": f"r{n}"}, {"mail": f"{n}@x", "n": n}) for n in range(30)]
    return [*events, *(bench.event(3, 100 + n, {"id": f"r{n}"}, None) for n in range(0, 30, 7))]


def later(bench: Bench) -> list[Event]:
    return [
        bench.event(2, 200, {"id": "r1"}, {"mail": "changed"}),
        bench.event(3, 201, {"id": "r0"}, {"n": 5}),
        bench.event(3, 202, {"id": "new"}, {"mail": "2@x", "n": 2}),
    ]


def shown(bench: Bench) -> list[tuple[object, ...]]:
    """What both tables have; the mended one may have columns beside."""
    rows = bench.rows().values()
    return [(row.key, {name: row.columns[name] for name in ("mail", "n") if name in row.columns}) for row in rows]


@pytest.mark.parametrize("do", [_running, _stopped])
@pytest.mark.parametrize("kind", REFUSALS)
def test_brought_about_later_it_is_told_and_its_sql_brings_the_whole_table_back(
    kind: str, do: Do, tmp_path: Path
) -> None:
    refusal, bench = REFUSALS[kind], Bench(tmp_path)
    for statement in (FIT, *BESIDE, TRIGGER):
        bench.sql(statement)
    bench.engine.register_table(T)
    assert set(bench.deliver(written(bench), author_stream=False)) == {"applied"}

    do(bench, refusal.statements)

    notice = bench.notices()["table-unusable"]
    assert notice.table == "t"
    assert refusal.named in notice.sample
    assert refusal.why in notice.sample
    assert set(bench.deliver(later(bench), author_stream=False)) == {"held"}
    with pytest.raises(NotFoundError):
        bench.get({"id": "r1"})

    if do is _stopped:
        bench.engine.close()
    run_script(bench, mend_of(notice.sample))
    if do is _stopped:
        bench.reopen()
    bench.engine.write([])
    while bench.engine.follow_schema():
        pass

    assert "table-unusable" not in bench.notices(), "it is mended"
    assert bench.sql("SELECT count(*) FROM meshnode_held WHERE events > 0") == [(0,)]
    other = Bench(tmp_path, name="untroubled.db")
    other.sql(FIT)
    other.engine.register_table(T)
    other.deliver([*written(bench), *later(bench)], author_stream=False)
    assert shown(bench) == shown(other)
    assert set(bench.deliver([bench.event(2, 300, {"id": "r2"}, {"n": 7})])) == {"applied"}


@pytest.mark.parametrize("kind", [kind for kind in REFUSALS if kind != "missing"])
def test_at_registration_its_sql_makes_the_table_fit(kind: str, tmp_path: Path) -> None:
    refusal, bench = REFUSALS[kind], Bench(tmp_path)
    for statement in (FIT, *BESIDE, "INSERT INTO t VALUES ('x', 'x@x', 1), ('y', 'y@y', 2)"):
        bench.sql(statement)
    for statement in refusal.statements:
        bench.sql(statement)
    with pytest.raises(RegistrationError, match=re.escape(refusal.named)) as caught:
        bench.engine.register_table(T)
    assert bench.engine.tables() == []
    run_script(bench, mend_of(str(caught.value)))
    bench.engine.register_table(T)
    if "numbered" not in kind and "view" not in kind and "virtual" not in kind:
        assert {row.columns["mail"] for row in bench.rows().values()} == {"x@x", "y@y"}


def test_a_table_that_never_was_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(RegistrationError, match="there is no table 't' in the database: CREATE it, or name its key"):
        Bench(tmp_path).engine.register_table(T)


def test_a_part_of_a_virtual_table_is_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.sql("CREATE VIRTUAL TABLE words USING fts5 (x)")
    with pytest.raises(RegistrationError, match="is a part of a virtual table"):
        bench.engine.register_table(TableSpec("main", "words_content"))


def test_mending_keeps_what_it_need_not_change(tmp_path: Path) -> None:
    """Constraints, generated columns, defaults, collations of other columns, indexes, triggers, comments, rows."""
    bench = Bench(tmp_path)
    bench.sql(
        """CREATE TABLE "t" ( -- a comment, with (brackets
            "id" TEXT COLLATE NOCASE PRIMARY KEY NOT NULL, /* and , another */
            [mail] TEXT COLLATE NOCASE DEFAULT 'a, (b' UNIQUE CHECK (mail <> 'UNIQUE, x'),
            n INTEGER NOT NULL DEFAULT (1 + 2) REFERENCES other (x),
            blob DEFAULT x'c0ffee', g AS (n * 1e-1) STORED,
            CONSTRAINT c CHECK (n >= -5 AND n <= 1000), UNIQUE (n, mail), FOREIGN KEY (n) REFERENCES other (x)
        )"""
    )
    bench.sql("CREATE UNIQUE INDEX every ON t (n) WHERE mail IS NOT NULL")
    bench.sql("CREATE TABLE audit (id)")
    bench.sql(TRIGGER)
    bench.sql("INSERT INTO t (id, mail, n) VALUES ('x', 'm', 7), ('y', NULL, 8)")
    rows = bench.sql("SELECT * FROM t ORDER BY id")
    scripts: list[str] = []
    for _ in range(5):
        try:
            bench.engine.register_table(T)
            break
        except RegistrationError as refused:
            scripts.append(mend_of(str(refused)))
            run_script(bench, scripts[-1])
    assert not any("\n" in script for script in scripts)
    assert bench.sql("SELECT * FROM t ORDER BY id") == rows
    names = dict(bench.sql("SELECT name, sql FROM sqlite_master WHERE tbl_name = 't'"))
    assert names["every"] == "CREATE INDEX every ON t (n) WHERE mail IS NOT NULL"
    assert names["noted"] == TRIGGER
    kept = names["t"]
    assert "UNIQUE, x" in kept
    assert kept.count("COLLATE NOCASE") == 1
    for part in ("/* a comment, with (brackets */", "CHECK (n >= -5 AND n <= 1000)", "x'c0ffee'", "(n * 1e-1) STORED"):
        assert part in kept
    assert kept.count("REFERENCES other (x)") == 2
    assert "UNIQUE (" not in kept


def test_a_generated_column_is_no_refusal(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.sql(FIT)
    bench.engine.register_table(T)
    bench.deliver(written(bench), author_stream=False)
    before = bench.digest()
    _running(bench, ["ALTER TABLE t ADD COLUMN g AS (mail || '!')"])
    assert bench.digest() == before
    assert "table-unusable" not in bench.notices()
    assert bench.sql("SELECT g FROM t WHERE id = 'r1'") == [("1@x!",)]


NAMES = ("id", "mail", "n", "a$b", "unique", "check (x), y", "primary")
SPELLED = st.sampled_from(['"{}"', "`{}`", "[{}]"])
BLANKS = st.sampled_from([" ", "\n  ", " -- UNIQUE, (one\n", " /* UNIQUE ), ( */ "])
COLUMN_PARTS = (
    "UNIQUE",
    "CONSTRAINT u UNIQUE ON CONFLICT IGNORE",
    "NOT NULL",
    "COLLATE NOCASE",
    "CHECK (1)",
    "DEFAULT 'UNIQUE, ('",
    "DEFAULT (1 || ')')",
    "CONSTRAINT c CHECK (',' <> '(')",
    "REFERENCES other (x) ON DELETE SET NULL",
)


@st.composite
def tables(draw: st.DrawFn) -> str:
    """A CREATE TABLE with any of what is refused, spelled in any way that SQLite takes."""
    names = draw(st.permutations(NAMES))[: draw(st.integers(2, 5))]
    spelled = [draw(SPELLED).format(name) for name in names]
    types = [
        "INTEGER" if at == 0 and draw(st.booleans()) else draw(st.sampled_from(["TEXT", "", "NUMERIC(5, 2)"]))
        for at in range(len(names))
    ]
    columns = [
        [name, kind, *draw(st.lists(st.sampled_from(COLUMN_PARTS), max_size=3, unique=True))]
        for name, kind in zip(spelled, types, strict=True)
    ]
    key = draw(st.sampled_from(["none", "column", "listed", "numbered"]))
    constraints = draw(
        st.lists(
            st.sampled_from(
                [
                    f"UNIQUE ({spelled[-1]}, {spelled[0]})",
                    "CHECK (2)",
                    f"CONSTRAINT k UNIQUE ({spelled[1]} COLLATE RTRIM)",
                    "CONSTRAINT d CHECK (3)",
                ]
            ),
            max_size=3,
            unique=True,
        )
    )
    if key == "column":
        columns[0].insert(2, "PRIMARY KEY")
    elif key == "numbered":
        columns[0][1:2] = ["INTEGER", "PRIMARY KEY AUTOINCREMENT"]
    elif key == "listed":
        collated = draw(st.sampled_from(["", " COLLATE NOCASE"]))
        constraints.insert(
            draw(st.integers(0, len(constraints))), f"PRIMARY KEY ({spelled[0]}{collated}, {spelled[1]})"
        )
    columns_listed = ", ".join(draw(BLANKS).join(part for part in column if part) for column in columns)
    between = draw(BLANKS) + draw(st.sampled_from([", ", " "]))
    parts = [columns_listed, between.join(constraints)] if constraints else [columns_listed]
    return f"CREATE TABLE t ({draw(BLANKS)}{', '.join(parts)}{draw(BLANKS)})"


def checks_of(bench: Bench) -> list[str]:
    """What is to be kept as it is."""
    sql = bench.sql("SELECT sql FROM sqlite_master WHERE name = 't'")[0][0]
    return re.findall(r"CHECK \((?:\d|',' <> '\(')\)", sql)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(tables())
def test_whatever_is_refused_is_mended_by_what_is_said(create: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        bench.sql("CREATE TABLE other (x)")
        try:
            bench.sql(create)
        except sqlite3.OperationalError:
            return  # SQLite refuses it as well
        checks = checks_of(bench)
        for _ in range(6):
            try:
                bench.engine.register_table(T)
                break
            except RegistrationError as refused:
                message = str(refused)
            run_script(bench, mend_of(message))
        else:
            raise AssertionError(message)
        assert checks_of(bench) == checks
        bench.engine.close()

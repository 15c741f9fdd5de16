"""Adopted databases: SQL that any program writes on one device is a row on the other, and `release` gives it back."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import subprocess
import threading
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlcipher3 import dbapi2 as sqlcipher
from support.nodes import PATIENCE_S, Process, free_port, linked, loopback, until
from support.verbs import call, done

from meshnode import Home, Node, join
from meshnode.errors import RegistrationError
from meshnode.node import adopting
from meshnode.store.database import Database

SCHEMA = """
CREATE TABLE notes (id TEXT PRIMARY KEY, title TEXT, done INTEGER NOT NULL DEFAULT 0);
CREATE TABLE tags (note TEXT, tag TEXT, PRIMARY KEY (note, tag)) WITHOUT ROWID;
PRAGMA user_version = 7;
PRAGMA application_id = 99;
"""


def shell(path: Path, sql: str) -> str:
    """The command-line tool, as a user has it."""
    command = ["sqlite3", "-cmd", ".timeout 5000", str(path), sql]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def rows(path: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


async def adopted_pair(folder: Path, ports: list[int], there: str = "") -> tuple[list[Path], list[Path]]:
    """Homes of two members, and the databases that they adopted; the first one has rows."""
    homes = [folder / "a", folder / "b"]
    async with Node(homes[0], config=loopback(port=ports[0], name="a")) as a:
        await join(homes[1], (await a.invite()).invite, name="b")
    apps = [folder / "desk.db", folder / "lap.db"]
    for app in apps:
        shell(app, SCHEMA)
    shell(apps[0], there)
    for home, app in zip(homes, apps, strict=True):
        await asyncio.to_thread(done, home, "adopt", str(app))
        assert not (home / "meshnode.db").exists()
    return homes, apps


async def test_two_applications_that_know_sql_alone(tmp_path: Path) -> None:
    ports = [free_port(), free_port()]
    there = "INSERT INTO notes VALUES ('n1', 'Milk', 0), ('n2', 'Bread', 1); INSERT INTO tags VALUES ('n1', 'a')"
    homes, apps = await adopted_pair(tmp_path, ports, there)
    one, two = [
        Node(home, config=loopback(other, port=port))
        for home, port, other in zip(homes, ports, reversed(ports), strict=True)
    ]
    async with one, two:
        await linked(one, two)

        async def both(sql: str, expected: list[Any]) -> None:
            async def holds() -> bool:
                return all(rows(app, sql) == expected for app in apps)

            await until(one, holds)

        await both("SELECT * FROM notes ORDER BY id", [("n1", "Milk", 0), ("n2", "Bread", 1)])
        readers = [sqlite3.connect(app, isolation_level=None) for app in apps]
        for reader in readers:  # an application that reads on and on
            reader.execute("BEGIN")
            assert reader.execute("SELECT title FROM notes WHERE id = 'n2'").fetchall() == [("Bread",)]
        await both("SELECT * FROM tags", [("n1", "a")])
        shell(apps[1], "UPDATE notes SET done = 1 WHERE id = 'n1'; REPLACE INTO notes (id, title) VALUES ('n2', 'Rye')")
        shell(apps[0], "DELETE FROM tags; INSERT INTO tags VALUES ('n2', x'00ff'), ('n2', 'b')")
        await both("SELECT * FROM notes ORDER BY id", [("n1", "Milk", 1), ("n2", "Rye", 0)])
        await both("SELECT * FROM tags ORDER BY tag", [("n2", "b"), ("n2", b"\x00\xff")])
        for reader in readers:
            assert reader.execute("SELECT title FROM notes WHERE id = 'n2'").fetchall() == [("Bread",)]
            reader.close()
        quiet = [rows(app, "SELECT max(position) FROM meshnode_log") for app in apps]
        await asyncio.sleep(0.2)  # an echo would be on its way by now
        assert [rows(app, "SELECT max(position) FROM meshnode_log") for app in apps] == quiet
    assert shell(apps[0], "PRAGMA user_version; PRAGMA application_id; PRAGMA integrity_check") == "7\n99\nok\n"
    shown = shell(apps[0], "SELECT * FROM notes; SELECT * FROM tags")
    await asyncio.to_thread(done, homes[0], "release")
    assert shell(apps[0], "SELECT * FROM notes; SELECT * FROM tags") == shown
    assert shell(apps[0], "SELECT name FROM sqlite_master WHERE name LIKE '%meshnode%'") == ""
    assert shell(apps[0], "PRAGMA journal_mode") == "delete\n"
    assert b"meshnode" not in apps[0].read_bytes()
    assert Home.load(homes[0]).database_path == homes[0] / "meshnode.db"
    shell(apps[0], "UPDATE notes SET title = 'meanwhile' WHERE id = 'n1'; INSERT INTO notes VALUES ('n3', 'New', 0)")
    await asyncio.to_thread(done, homes[0], "adopt", str(apps[0]), "--table", "notes")
    columns = await asyncio.to_thread(done, homes[0], "get", "notes", "id=n1", "--output", "json")
    assert '"meanwhile"' in columns.out


class Application:
    """Writes one row after the other in transactions of their own, for as long as it is told to."""

    def __init__(self, path: Path, name: str) -> None:
        self.written = 0
        self._stopping = threading.Event()
        self._path, self._name = path, name

    def run(self) -> None:
        """Raises where it finds the database locked for longer than a second."""
        with closing(sqlite3.connect(self._path, isolation_level=None, timeout=1)) as app:
            while not self._stopping.wait(0.01):
                key = f"{self._name}{self.written}"
                app.execute("BEGIN IMMEDIATE")
                app.execute("INSERT INTO notes (id, title) VALUES (?, 'new')", (key,))
                app.execute("UPDATE notes SET title = ? WHERE id = ?", (f"title of {key}", key))
                app.execute("COMMIT")
                self.written += 1

    def stop(self) -> None:
        """After the transaction under way."""
        self._stopping.set()


def count(app: Path) -> int:
    """How many rows there are."""
    return int(rows(app, "SELECT count(*) FROM notes")[0][0])


async def until_count(app: Path, number: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while count(app) < number:  # noqa: ASYNC110  # other processes fill it
            await asyncio.sleep(0.01)


async def test_nodes_that_are_killed_while_both_applications_write(tmp_path: Path) -> None:
    ports = [free_port(), free_port()]
    homes, apps = await adopted_pair(tmp_path, ports)
    writers = [Application(app, name) for app, name in zip(apps, "ab", strict=True)]
    async with Process.on_loopback(homes[0], ports[0]) as a, Process.on_loopback(homes[1], ports[1], ports[0]) as b:
        writing = [asyncio.create_task(asyncio.to_thread(writer.run)) for writer in writers]
        for node, app in ((a, apps[1]), (b, apps[0])):
            await until_count(app, count(app) + 20)
            await node.kill()
            await until_count(app, count(app) + 5)
            await node.start()
        for writer in writers:
            writer.stop()
        await asyncio.gather(*writing)
        total = sum(writer.written for writer in writers)
        for app in apps:
            await until_count(app, total)
    one, two = (rows(app, "SELECT * FROM notes ORDER BY id") for app in apps)
    assert one == two
    assert all(title == f"title of {key}" for key, title, _ in one)
    assert [rows(app, "SELECT count(*) FROM meshnode_log") for app in apps] == [[(total,)], [(total,)]]


@pytest.mark.parametrize("tables", [(), ("--table", "people")], ids=["all", "named"])
def test_all_that_is_wrong_is_told_and_its_sql_mends_it(tables: tuple[str, ...], tmp_path: Path) -> None:
    home, app = tmp_path / "n", tmp_path / "app.db"
    done(home, "init", "--name", "desk")
    shell(
        app,
        "CREATE TABLE people (id TEXT COLLATE NOCASE PRIMARY KEY, mail TEXT UNIQUE); CREATE INDEX m ON people (mail)",
    )
    shell(app, "CREATE TABLE log (line TEXT); INSERT INTO people VALUES ('a', 'x'); INSERT INTO log VALUES ('l')")
    before = app.read_bytes()
    refused = call(home, "adopt", str(app), *tables)
    told = [line for line in refused.err.splitlines() if line.startswith("- ")]
    assert (refused.code, len(told)) == (2, 2 if tables else 3)
    assert app.read_bytes() == before
    for line in told:
        shell(app, line[line.index("BEGIN;") :])
    done(home, "adopt", str(app), *tables)
    assert '"people"' in done(home, "table", "list", "--output", "json").out
    assert shell(app, "SELECT * FROM people") == "a|x\n"


async def test_a_program_adopts_tables_of_the_database_that_its_node_is_in(tmp_path: Path) -> None:
    home = Home(tmp_path / "n")
    home.prepare()
    home.config_path.write_text(f'database = "{tmp_path}/app.db"\n')
    home.config_path.chmod(0o600)
    shell(tmp_path / "app.db", SCHEMA)
    async with Node(home.path, config=loopback(name="desk")) as node:
        assert await node.adopt() == ["notes", "tags"]
        shell(tmp_path / "app.db", "INSERT INTO notes VALUES ('n1', 'Milk', 0)")

        async def signed() -> bool:
            return await node.get("notes", {"id": "n1"}) is not None and (await node.status()).events == 1

        await until(node, signed)
        shell(tmp_path / "app.db", "CREATE TABLE bad (x)")
        with pytest.raises(RegistrationError, match="no primary key"):
            await node.adopt("bad", "notes")


OWN_NAMES = """
CREATE TABLE notes (id TEXT PRIMARY KEY, title TEXT);
CREATE TABLE meshnode_mine (x); INSERT INTO meshnode_mine VALUES (1);
CREATE TABLE Meshnode_Too (x);
CREATE TRIGGER meshnode_capture_mine AFTER INSERT ON notes BEGIN INSERT INTO meshnode_mine VALUES (2); END;
"""


def test_tables_and_triggers_of_the_application_stay_whatever_their_names(tmp_path: Path) -> None:
    home, app = tmp_path / "n", tmp_path / "app.db"
    done(home, "init", "--name", "desk")
    shell(app, OWN_NAMES)
    before = shell(app, ".schema")
    done(home, "adopt", str(app))
    shell(app, "INSERT INTO notes VALUES ('n1', 'Milk'); CREATE TABLE meshnode_later (x)")
    done(home, "release")
    assert shell(app, "SELECT x FROM meshnode_mine; DROP TABLE meshnode_later") == "1\n2\n"
    assert shell(app, ".schema") == before


@pytest.mark.parametrize("name", ["meshnode_log", "meshnode_meta", "MESHNODE_SITES"])
def test_a_table_of_the_application_with_the_name_of_one_of_the_node_s_is_told(name: str, tmp_path: Path) -> None:
    home, app = tmp_path / "n", tmp_path / "app.db"
    done(home, "init", "--name", "desk")
    shell(app, SCHEMA + f"CREATE TABLE {name} (x); INSERT INTO {name} VALUES (1)")
    refused = call(home, "adopt", str(app))
    assert refused.code != 0
    assert name in refused.err
    assert (
        shell(app, f"SELECT x FROM {name}; SELECT count(*) FROM sqlite_master WHERE name LIKE 'meshnode%'") == "1\n1\n"
    )
    assert done(home, "status").code == 0


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        (b'CREATE TABLE "\xe9" (id TEXT PRIMARY KEY)', "not UTF-8"),
        (b'CREATE TABLE t (id TEXT PRIMARY KEY, "\xe9")', "not UTF-8"),
        (b'CREATE TABLE t ("\xe9" TEXT PRIMARY KEY)', "not UTF-8"),
        (b"CREATE TABLE t (id TEXT PRIMARY KEY, a DEFAULT '\xe9')", "not UTF-8"),
        (b'CREATE TABLE t (id TEXT PRIMARY KEY, a); CREATE UNIQUE INDEX "\xe9" ON t (a)', "UNIQUE"),
        (b'CREATE TABLE t (id TEXT PRIMARY KEY, a UNIQUE); CREATE INDEX "\xe9" ON t (a)', "UNIQUE"),
        (b"CREATE TABLE t (id INTEGER PRIMARY KEY /* \xe9 */)", "bare INTEGER"),
    ],
    ids=["table", "column", "key", "default", "index", "other-index", "comment"],
)
def test_a_schema_that_is_not_utf_8_is_refused_in_words(sql: bytes, told: str, tmp_path: Path) -> None:
    home, app = tmp_path / "n", tmp_path / "app.db"
    done(home, "init", "--name", "desk")
    subprocess.run(["sqlite3", str(app)], input=sql, check=True)
    before = app.read_bytes()
    refused = call(home, "adopt", str(app))
    assert refused.code == 2
    assert told in refused.err
    assert app.read_bytes() == before


STOPS = {
    "adopt": (
        "transplant.bring",
        "Home.change_setting",
        "_remove_leftover",
        "Engine.adopt_tables",
        "Engine.sign_captured",
    ),
    "release": ("transplant.bring", "Home.change_setting", "_take_out", "transplant.take_out"),
}


@pytest.mark.parametrize("stop", STOPS["release"])
def test_release_goes_on_after_a_stop(stop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, app = tmp_path / "n", tmp_path / "app.db"
    done(home, "init", "--name", "desk")
    shell(app, SCHEMA + "INSERT INTO notes VALUES ('n1', 'Milk', 0)")
    done(home, "adopt", str(app))
    stopped(monkeypatch, stop, home, "release", str(app))
    shell(app, "UPDATE notes SET title = 'between'")
    done(home, "release", str(app))
    assert (
        shell(app, "SELECT name FROM sqlite_master WHERE name LIKE '%meshnode%'; SELECT title FROM notes")
        == "between\n"
    )
    assert done(home, "status").code == 0
    done(home, "adopt", str(app), "--table", "notes")
    assert '"between"' in done(home, "get", "notes", "id=n1", "--output", "json").out


@pytest.mark.parametrize("stop", STOPS["adopt"])
def test_adopt_goes_on_after_a_stop(stop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, app = tmp_path / "n", tmp_path / "app.db"
    done(home, "init", "--name", "desk")
    done(home, "table", "add", "own", "--key", "id:TEXT")
    done(home, "put", "own", "id=o1")
    shell(app, SCHEMA + "INSERT INTO notes VALUES ('n1', 'Milk', 0)")
    stopped(monkeypatch, stop, home, "adopt", str(app), "--table", "notes")
    done(home, "put", "own", "id=o2")
    done(home, "adopt", str(app), "--table", "notes")
    assert not (home / "meshnode.db").exists()
    assert shell(app, "SELECT count(*) FROM own; SELECT count(*) FROM meshnode_log") == "2\n3\n"
    done(home, "check")


async def test_long_work_tells_how_far_it_is(tmp_path: Path) -> None:
    app, told = tmp_path / "app.db", list[tuple[int, int]]()
    shell(app, SCHEMA)
    with closing(sqlite3.connect(app)) as connection:
        connection.executemany("INSERT INTO notes (id) VALUES (?)", [(f"n{number}",) for number in range(300)])
        connection.execute("INSERT INTO tags VALUES ('n1', 'a')")
        connection.commit()
    await asyncio.to_thread(done, tmp_path / "n", "init")
    view = await adopting.adopt(Home.load(tmp_path / "n"), app, tell=lambda *each: told.append(each))
    assert view.signed == 301
    assert (told[0], told[-1], told) == ((0, 301), (301, 301), sorted(told))
    assert len(told) > 3


def test_an_application_has_its_turns_while_its_rows_are_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, app, slept = tmp_path / "n", tmp_path / "app.db", list[float]()
    done(home, "init", "--name", "desk")
    shell(app, SCHEMA)
    with closing(sqlite3.connect(app)) as connection:
        connection.executemany("INSERT INTO notes (id) VALUES (?)", [(f"n{number}",) for number in range(300)])
        connection.commit()
    seconds = itertools.count()
    monkeypatch.setattr(adopting, "time", SimpleNamespace(monotonic=lambda: next(seconds) * 0.02, sleep=slept.append))
    durable = list[int]()

    def commit_durably(database: Database) -> None:
        usual(database)
        durable.extend(database._connection.execute("PRAGMA synchronous").fetchone())

    usual = Database.commit_durably
    monkeypatch.setattr(Database, "commit_durably", commit_durably)
    done(home, "adopt", str(app))
    assert len([each for each in slept if each > 0]) >= 3  # between the transactions, each of at most 128 rows
    assert durable == [2]  # FULL
    assert rows(app, "SELECT count(*), (SELECT count(*) FROM meshnode_gate) FROM meshnode_log") == [(300, 0)]


def test_an_encrypted_database_is_refused_as_what_it_is(tmp_path: Path) -> None:
    home, app, noise = tmp_path / "n", tmp_path / "app.db", tmp_path / "noise.db"
    done(home, "init")
    with closing(sqlcipher.connect(str(app))) as connection:
        connection.execute("PRAGMA key = 'of the application'")
        connection.execute("CREATE TABLE notes (id TEXT PRIMARY KEY)")
    noise.write_text("no database " * 1000)
    for path in (app, noise):
        before = path.read_bytes()
        refused = call(home, "adopt", str(path))
        assert refused.code == 2
        assert "is an encrypted database, or none at all: tables of an encrypted one cannot be adopted" in refused.err
        assert path.read_bytes() == before
    assert not list(tmp_path.glob("app.db-*"))


def stopped(monkeypatch: pytest.MonkeyPatch, name: str, *arguments: Any) -> None:
    """A verb that dies at this step."""

    def die(*_arguments: Any, **_named: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"meshnode.node.adopting.{name}", die)
        assert call(*arguments).code == 130

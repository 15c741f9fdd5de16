"""A database of an earlier format is brought up to date when it is opened, and one of a later format is refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.engines import Bench

from meshnode.errors import StoreError
from meshnode.store import schema
from meshnode.store.database import Database
from meshnode.store.reader import Reader


def of_format(path: Path, number: int) -> None:
    """An empty database as the program of that format made it."""
    database = Database(path, sqlite=sqlite3)
    with database.transaction() as tx:
        for script in schema._MIGRATIONS[:number]:
            for statement in script.split(";\n"):
                if statement.strip():
                    tx.execute(statement)
        tx.execute("INSERT INTO meshnode_meta (name, value) VALUES ('format', ?)", (number,))
        tx.execute("INSERT INTO meshnode_tables (schema, name) VALUES ('main', 'notes')")
    database.close()


def read(path: Path) -> None:
    with closing(Reader(path, sqlite=sqlite3)) as reader, reader.snapshot() as tx:
        schema.check_readable(tx)


def test_an_older_format_is_migrated_and_not_misread_before(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    of_format(path, 1)
    with pytest.raises(StoreError, match="brings it up to date"):
        read(path)
    database = Database(path, sqlite=sqlite3)
    with database.transaction() as tx:
        schema.migrate(tx)
        assert tx.execute("SELECT class FROM meshnode_tables").fetchall() == [("shared",)]
        schema.migrate(tx)
    read(path)
    database.close()


def test_a_migration_ends_in_the_same_tables_as_a_new_database(tmp_path: Path) -> None:
    found = []
    for number in range(schema.FORMAT + 1):
        path = tmp_path / f"{number}.db"
        if number:
            of_format(path, number)
        database = Database(path, sqlite=sqlite3)
        with database.transaction() as tx:
            schema.migrate(tx)
            tables = [row[0] for row in tx.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")]
            found.append({name: tx.execute(f"PRAGMA table_info({name})").fetchall() for name in tables})
        database.close()
    assert all(each == found[0] for each in found)


def test_a_newer_format_is_refused_with_what_to_do(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.sql("UPDATE meshnode_meta SET value = ? WHERE name = 'format'", schema.FORMAT + 1)
    with pytest.raises(StoreError, match="upgrade meshnode on this device"):
        bench.reopen()
    with pytest.raises(StoreError, match="upgrade meshnode on this device"):
        read(bench.path)

"""Readers take no lock, never write, see one state at a time, and say what is missing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.engines import PLAIN, Bench

from meshnode.engine.registry import TableSpec
from meshnode.engine.write import LocalChange
from meshnode.errors import NotFoundError, StoreError, UsageError
from meshnode.store import queries
from meshnode.store.queries import Table
from meshnode.store.reader import Reader


def _bench(folder: Path) -> Bench:
    bench = Bench(folder)
    bench.engine.register_table(PLAIN)
    bench.engine.write([LocalChange("main", "t", {"id": number}, {"a": number}) for number in range(5)])
    return bench


def test_a_snapshot_stands_still_while_the_writer_goes_on(tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    with closing(Reader(bench.path, sqlite=sqlite3)) as reader:
        with reader.snapshot() as tx:
            before = Table(tx, "main", "t").digest()
            bench.engine.write([LocalChange("main", "t", {"id": 9}, {"a": 9})])
            assert Table(tx, "main", "t").digest() == before
        with reader.snapshot() as tx:
            assert Table(tx, "main", "t").digest()[1] == 6


def test_nothing_can_be_written(tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    with closing(Reader(bench.path, sqlite=sqlite3)) as reader, pytest.raises(StoreError), reader.snapshot() as tx:
        tx.execute("DELETE FROM t")
    assert len(bench.rows()) == 5


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    with pytest.raises(NotFoundError, match=r"no database .*nowhere\.db"):
        Reader(tmp_path / "nowhere.db", sqlite=sqlite3)
    with pytest.raises(NotFoundError, match="'other' is not registered"):
        bench.rows("other")
    with pytest.raises(UsageError, match="exactly the columns id"):
        bench.get({"a": 1})
    assert bench.get({"id": 77}) is None


def test_rows_page_in_key_bytes_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = _bench(tmp_path)
    keys = ["a", "b", "aa", b"a", -1, 1000, "ä"]
    bench.engine.write([LocalChange("main", "t", {"id": key}, {"a": 1}) for key in keys])
    bench.engine.write([LocalChange("main", "t", {"id": "b"}, None)])
    monkeypatch.setattr(queries, "_PAGE", 2)
    found = list(bench.rows())
    assert found == sorted(found)
    assert [row.key["id"] for row in bench.rows().values()] == [0, 1, 2, 3, 4, 1000, -1, b"a", "a", "aa", "ä"]
    assert bench.digest()[1] == 11


def test_counts(tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    bench.deliver([bench.event(2, 1, {"id": 1}, None), bench.event(2, 2, {"id": 1}, {}, table="later")])
    assert bench.read(queries.event_counts) == (7, 1)
    (found,) = [each for _, each in bench.read(queries.registered_tables) if not isinstance(each, str)]
    assert bench.read(lambda tx: queries.row_counts(tx, found)) == (4, 0)
    assert bench.read(queries.held_tables) == {"later": 1}
    assert bench.read(queries.last_change) == 6
    assert bench.read(queries.oldest_change) == 1
    assert [entry.text for entry, _ in bench.read(queries.registered_tables)] == ["t"]


def test_a_value_without_cbor_form_does_not_break_the_digest(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.sql("CREATE TABLE t (id TEXT PRIMARY KEY, a REAL)")
    bench.engine.register_table(TableSpec("main", "t"))
    bench.deliver([bench.event(2, 1, {"id": "x"}, {"a": "9e999"})])
    assert bench.get({"id": "x"}) == {"a": "Infinity"}
    assert bench.digest()[1] == 1

"""SSP/1 §13.6: a schema change costs the tables that it changes, and no others; what replaced a table is made whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.engines import Bench
from support.schema_changes import DISTURBING, FTS, TWIN, UNRELATED, T

from meshnode.engine.forget import forget
from meshnode.engine.registry import TableSpec
from meshnode.merge.rows import RowState

ROWS = 40
SPEC = TableSpec("main", "t")
Notice = Callable[[Bench, list[str]], None]
LOOK = 'SELECT EXISTS (SELECT 1 FROM main."t" NOT INDEXED)'  # whether it is empty: one row at most


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A table between others of the application, with rows that have values, nulls and tombstones."""
    bench = Bench(tmp_path)
    for statement in (TWIN, T, "CREATE TABLE other (x)", FTS.format("words")):
        bench.sql(statement)
    bench.engine.register_table(SPEC)
    events = [bench.event(2, n, {"id": n}, {"a": n, "b": f"b{n}"}) for n in range(ROWS)]
    events += [bench.event(3, 100 + n, {"id": n}, {"b": None}) for n in range(0, ROWS, 7)]
    events += [bench.event(3, 200 + n, {"id": n}, None) for n in range(0, ROWS, 9)]
    bench.deliver(events)
    return bench


@contextmanager
def traced(bench: Bench) -> Iterator[list[str]]:
    """The statements that the writer runs."""
    statements: list[str] = []
    bench.fault = statements.append
    yield statements
    bench.fault = lambda _point: None


def about_rows(statements: list[str]) -> list[str]:
    """Those that read or write rows of the table, or their clocks."""
    return [each for each in statements if '"t"' in each or "meshnode_rows WHERE table_no = ? AND key" in each]


def running(bench: Bench, statements: list[str]) -> None:
    for statement in statements:
        bench.sql(statement)
    bench.engine.write([])


def stopped(bench: Bench, statements: list[str]) -> None:
    bench.engine.close()
    for statement in statements:
        bench.sql(statement)
    bench.reopen()


noticed = pytest.mark.parametrize("notice", [running, stopped])


@noticed
@pytest.mark.parametrize("change", UNRELATED)
def test_a_change_elsewhere_touches_no_rows(bench: Bench, notice: Notice, change: str) -> None:
    bench.sql("UPDATE t SET a = 'by hand' WHERE id = 1")
    before = bench.sql("SELECT * FROM t"), bench.sql("SELECT * FROM meshnode_rows"), bench.changes()
    with traced(bench) as statements:
        notice(bench, UNRELATED[change])
        assert not bench.engine.follow_schema()
    assert set(about_rows(statements)) <= {LOOK}
    assert (bench.sql("SELECT * FROM t"), bench.sql("SELECT * FROM meshnode_rows"), bench.changes()) == before


@noticed
@pytest.mark.parametrize("change", DISTURBING)
def test_what_replaced_the_table_or_a_column_of_it_is_made_whole(bench: Bench, notice: Notice, change: str) -> None:
    before = bench.digest(), bench.sql("SELECT id, a, b FROM t"), states(bench)
    bench.sql("INSERT INTO twin VALUES (1, 'of the twin', 'of the twin')")
    with traced(bench) as statements:
        notice(bench, DISTURBING[change])
        while bench.engine.follow_schema():
            pass
    assert not set(about_rows(statements)) <= {LOOK}
    bench.deliver([bench.event(2, 1000, {"id": 1}, {"a": 1, "b": "b1"})])  # the twin's row is the application's own
    assert bench.digest() == before[0]
    assert bench.sql("SELECT id, a, b FROM t") == before[1]


def states(bench: Bench) -> list[tuple[bytes, RowState]]:
    return [(key, RowState.unpack(each)) for key, each in bench.sql("SELECT key, state FROM meshnode_rows")]


@noticed
def test_only_the_table_that_changed_is_worked_on(bench: Bench, notice: Notice) -> None:
    bench.engine.register_table(TableSpec("main", "s", {"id": ""}, {"a": ""}))
    bench.deliver([bench.event(2, n, {"id": n}, {"a": n, "new": n}, table="s") for n in range(5)])
    with traced(bench) as statements:
        notice(bench, ["ALTER TABLE s ADD COLUMN new", "CREATE INDEX i ON t (a)"])
        while bench.engine.follow_schema():
            pass
    assert {each for each in statements if '"t"' in each} <= {LOOK}
    assert bench.sql("SELECT id, new FROM s") == [(n, n) for n in range(5)]


@noticed
@pytest.mark.parametrize("statements", [["DELETE FROM t", "VACUUM"], ["DELETE FROM t", "CREATE TABLE x (y)"]])
def test_rows_that_vanished_all_at_once_come_back_with_the_next_change(
    bench: Bench, notice: Notice, statements: list[str]
) -> None:
    before = bench.digest()
    notice(bench, statements)
    while bench.engine.follow_schema():
        pass
    assert bench.digest() == before


@noticed
def test_what_is_done_to_a_table_while_it_cannot_be_used_is_made_good(bench: Bench, notice: Notice) -> None:
    before = bench.digest()
    notice(bench, ["CREATE UNIQUE INDEX u ON t (a)"])
    bench.sql("DELETE FROM t WHERE id > 20")
    notice(bench, ["DROP INDEX u"])
    while bench.engine.follow_schema():
        pass
    assert bench.digest() == before


def test_the_erasure_of_a_row_starts_no_pass(bench: Bench) -> None:
    """VACUUM changes the number of the schema, and the numbers of all tables."""
    bench.sql("DROP TABLE other")  # a gap, which VACUUM closes
    bench.engine.write([])
    forget(bench.engine.context, "main", "t", {"id": 1})
    with traced(bench) as statements:
        bench.engine.write([])
        assert not bench.engine.follow_schema()
    assert about_rows(statements) == []

"""A table that is said to be the same is the same, whatever was done to the schema; others are left alone."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.schema_changes import DISTURBING, FTS, STATEMENTS, TWIN, UNRELATED, T

from meshnode.store.catalog import Catalog, read_now, same_tables
from meshnode.store.database import Tx, no_fault


def prepared(t_last: bool) -> sqlite3.Connection:
    """Tables before and after t, with a gap; t holds what nothing else can put there."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    creates = ["CREATE TABLE gap (x)", TWIN, T, "CREATE TABLE other (x)", FTS.format("words")]
    if t_last:
        creates.append(creates.pop(2))
    for statement in [*creates, "DROP TABLE gap", "INSERT INTO t VALUES ('mark', 'kept', 'kept')"]:
        connection.execute(statement)
    return connection


def catalog_of(connection: sqlite3.Connection) -> Catalog:
    return read_now(Tx(connection, no_fault))


def is_intact(connection: sqlite3.Connection) -> bool:
    try:
        return connection.execute("SELECT id, a, b FROM t WHERE id = 'mark'").fetchall() == [("mark", "kept", "kept")]
    except sqlite3.OperationalError:
        return False


def test_its_rows_are_those_of_the_same_table() -> None:
    with closing(prepared(t_last=False)) as connection:
        assert is_intact(connection)
        assert {"t", "twin", "other"} <= same_tables(catalog_of(connection), catalog_of(connection))


@pytest.mark.parametrize("t_last", [False, True])
@pytest.mark.parametrize("change", UNRELATED)
def test_what_does_not_touch_it_leaves_it_the_same(change: str, t_last: bool) -> None:
    with closing(prepared(t_last)) as connection:
        before = catalog_of(connection)
        for statement in UNRELATED[change]:
            connection.execute(statement)
        assert "t" in same_tables(before, catalog_of(connection))


@pytest.mark.parametrize("t_last", [False, True])
@pytest.mark.parametrize("change", DISTURBING)
def test_what_replaces_it_or_a_column_of_it_is_noticed(change: str, t_last: bool) -> None:
    with closing(prepared(t_last)) as connection:
        before = catalog_of(connection)
        for statement in DISTURBING[change]:
            connection.execute(statement)
        assert not is_intact(connection)
        assert "t" not in same_tables(before, catalog_of(connection))


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.sampled_from(STATEMENTS), max_size=4), st.lists(st.sampled_from(STATEMENTS), max_size=7), st.booleans()
)
@example([], ["ALTER TABLE t RENAME TO tmp", T, "DROP TABLE tmp"], True)
@example(["VACUUM"], ["DROP TABLE t", 'ALTER TABLE twin RENAME TO "t"', "VACUUM", "CREATE TABLE x (y)"], True)
def test_the_same_is_said_of_no_other_table(first: list[str], then: list[str], t_last: bool) -> None:
    """From any schema, by any statements: where the row that marks the table is gone, the table is not the same."""
    with closing(prepared(t_last)) as connection:
        for statement in first:
            with suppress(sqlite3.Error):
                connection.execute(statement)
        if not is_intact(connection):
            return
        before = catalog_of(connection)
        for statement in then:
            with suppress(sqlite3.Error):
                connection.execute(statement)
        assert is_intact(connection) or "t" not in same_tables(before, catalog_of(connection))


def test_an_older_or_unknown_schema_says_nothing() -> None:
    with closing(prepared(t_last=False)) as connection:
        now = catalog_of(connection)
        assert same_tables(None, now) == frozenset()
        assert same_tables(now._replace(version=now.version + 1), now) == frozenset()

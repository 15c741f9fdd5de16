"""store.affinity decides before SQLite does; here SQLite itself is the judge of every decision."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshnode.store.affinity import affinity_of, key_survives, strict_accepts

DECLARED = ["", "TEXT", "VARCHAR(20)", "INTEGER", "INT", "BIGINT", "REAL", "DOUBLE", "FLOAT", "NUMERIC", "DECIMAL(5,2)"]
DECLARED += ["BLOB", "BOOLEAN", "DATE", "CHARINT", "FLOATING POINT", "STRING", "clob", "any"]
STRICT = ["INT", "INTEGER", "REAL", "TEXT", "BLOB", "ANY"]

numeric_looking = st.from_regex(r"\A[ \t\n\v\f\r]?[+-]?[0-9]{0,20}\.?[0-9]{0,4}([eE][+-]?[0-9]{1,3})?[ \x00x_]?\Z")
integers = st.integers(-(2**63), 2**63 - 1)
texts = st.one_of(numeric_looking, st.text(), integers.map(str), st.floats(allow_nan=False).map(str))
keys = st.one_of(integers, texts, st.binary())
values = st.one_of(
    keys, st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.none(), integers.map(float)
)


@pytest.fixture(scope="module")
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for number, declared in enumerate(DECLARED):
            connection.execute(f"CREATE TABLE plain_{number} (k {declared} NOT NULL, PRIMARY KEY (k)) WITHOUT ROWID")
        for declared in STRICT:
            connection.execute(f"CREATE TABLE strict_{declared} (k {declared}) STRICT")
        connection.execute("CREATE TABLE alias (k INTEGER PRIMARY KEY)")
        yield connection


def _stored(database: sqlite3.Connection, table: str, value: Any) -> tuple[bool, Any]:
    """Whether the table takes the value, and what it makes of it."""
    try:
        database.execute(f"INSERT INTO {table} VALUES (?)", (value,))
    except (sqlite3.IntegrityError, sqlite3.DataError):
        return False, None
    found = database.execute(f"SELECT k FROM {table}").fetchone()[0]
    database.execute(f"DELETE FROM {table}")
    return True, found


def _same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and left == right


@settings(deadline=None)
@given(keys, st.integers(0, len(DECLARED) - 1))
def test_keys_in_ordinary_tables(database: sqlite3.Connection, value: Any, number: int) -> None:
    taken, found = _stored(database, f"plain_{number}", value)
    affinity = affinity_of(DECLARED[number], strict=False)
    assert key_survives(value, affinity, strict=None, rowid=False) == (taken and _same(found, value))


@settings(deadline=None)
@given(keys, st.sampled_from(STRICT))
def test_keys_in_strict_tables(database: sqlite3.Connection, value: Any, declared: str) -> None:
    taken, found = _stored(database, f"strict_{declared}", value)
    affinity = affinity_of(declared, strict=True)
    strict = "INTEGER" if declared == "INT" else declared
    assert key_survives(value, affinity, strict=strict, rowid=False) == (taken and _same(found, value))


@settings(deadline=None)
@given(keys)
def test_keys_that_are_the_rowid(database: sqlite3.Connection, value: Any) -> None:
    taken, found = _stored(database, "alias", value)
    affinity = affinity_of("INTEGER", strict=False)
    assert key_survives(value, affinity, strict=None, rowid=True) == (taken and _same(found, value))


@settings(deadline=None)
@given(values, st.sampled_from(STRICT))
def test_values_in_strict_tables(database: sqlite3.Connection, value: Any, declared: str) -> None:
    taken, _ = _stored(database, f"strict_{declared}", value)
    assert strict_accepts(value, "INTEGER" if declared == "INT" else declared) == taken

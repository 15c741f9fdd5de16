"""Which SQLite errors cost one row and which stop the batch, whether or not the module tells result codes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from meshnode.errors import DamagedError, NoRoomError, NotAllowedError, NotFoundError, StoreError
from meshnode.store.database import Database, Tx
from meshnode.store.materialize import is_row_level
from meshnode.store.trouble import FULL_BYTES, trouble


def _raised(work: Callable[[sqlite3.Connection], object]) -> sqlite3.Error:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a NOT NULL)")
        with pytest.raises(sqlite3.Error) as caught:
            work(connection)
        return caught.value


def _full(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA max_page_count = 3")
    connection.execute("INSERT INTO t VALUES (1, zeroblob(100000))")


def _read_only(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA query_only = ON")
    connection.execute("INSERT INTO t VALUES (1, 1)")


def _trigger(action: str) -> Callable[[sqlite3.Connection], object]:
    def work(connection: sqlite3.Connection) -> None:
        connection.execute(f"CREATE TRIGGER g BEFORE INSERT ON t BEGIN {action}; END")
        connection.execute("INSERT INTO t VALUES (1, 1)")

    return work


ROW = {
    "not null": lambda c: c.execute("INSERT INTO t VALUES (1, NULL)"),
    "mismatch": lambda c: c.execute("INSERT INTO t VALUES ('x', 1)"),
    "too big": lambda c: c.execute("INSERT INTO t VALUES (1, zeroblob(2000000000))"),
    "abort": _trigger("SELECT RAISE(ABORT, 'no')"),
    "rollback": _trigger("SELECT RAISE(ROLLBACK, 'no')"),
    "broken trigger": _trigger("INSERT INTO nowhere VALUES (1)"),
    "no such table": lambda c: c.execute("INSERT INTO nowhere VALUES (1)"),
}
DATABASE = {"full": _full, "read only": _read_only}


class OperationalError(Exception):
    """As a DB-API module without codes raises it."""


class IntegrityError(Exception):
    """Likewise."""


class DataError(Exception):
    """Likewise."""


def _without_code(error: sqlite3.Error) -> Exception:
    kinds = {each.__name__: each for each in (OperationalError, IntegrityError, DataError)}
    return kinds[type(error).__name__](str(error))


@pytest.mark.parametrize("name", ROW)
def test_costs_one_row(name: str) -> None:
    error = _raised(ROW[name])
    assert is_row_level(error)
    assert is_row_level(_without_code(error))


@pytest.mark.parametrize("name", DATABASE)
def test_stops_the_batch(name: str) -> None:
    error = _raised(DATABASE[name])
    assert not is_row_level(error)
    assert not is_row_level(_without_code(error))


def test_a_batch_that_failed_while_it_was_reading_does_not_lock_the_database_against_itself(tmp_path: Path) -> None:
    database = Database(tmp_path / "node.db", sqlite=sqlite3)
    with database.transaction() as tx:
        tx.execute("CREATE TABLE t (n)")
        tx.executemany("INSERT INTO t VALUES (?)", [(1,), (2,)])

    def fail(tx: Tx) -> None:
        rows = tx.execute("SELECT n FROM t")
        next(rows)
        raise NotFoundError("in the middle")

    with pytest.raises(NotFoundError) as kept, database.transaction() as tx:  # with the frames that it came through
        fail(tx)
    with closing(sqlite3.connect(tmp_path / "node.db")) as another, another:
        another.execute("INSERT INTO t VALUES (3)")
    with database.transaction() as tx:
        assert tx.execute("SELECT count(*) FROM t").fetchone() == (3,)
    assert kept.value
    database.close()


class _ByText(Exception):
    """As a module that tells no code says it."""


def _coded(text: str, code: int) -> Exception:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


IO_ERROR = 10 | 19 << 8  # SQLITE_IOERR_SHMSIZE
TROUBLES: dict[str, tuple[Exception, int, type[StoreError], str]] = {  # the error, free bytes, its kind, what to do
    "full": (_raised(_full), 0, NoRoomError, "make room"),
    "full by its text": (_ByText("database or disk is full"), 2**40, NoRoomError, "make room"),
    "full beside the file": (_coded("disk I/O error", IO_ERROR), FULL_BYTES - 1, NoRoomError, "make room"),
    "a disk that fails": (_coded("disk I/O error", IO_ERROR), FULL_BYTES, StoreError, "disk I/O error"),
    "not to be written": (_raised(_read_only), 0, NotAllowedError, "doctor home disk"),
    "not to be made": (_ByText("unable to open database file"), FULL_BYTES, NotAllowedError, "doctor home disk"),
    "replaced": (_coded("readonly", 8 | 4 << 8), 0, StoreError, "moved or replaced"),
    "damaged": (_ByText("database disk image is malformed"), 0, DamagedError, "meshnode doctor"),
    "no database": (_coded("file is not a database", 26), 0, DamagedError, "meshnode doctor"),
}


@pytest.mark.parametrize("case", TROUBLES)
def test_what_is_wrong_with_a_database_is_told_apart(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    error, free, kind, todo = TROUBLES[case]
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    met = trouble(Path("/n/meshnode.db"), "the database failed", error)
    assert type(met) is kind
    assert todo in str(met)

"""Read-only connections: for other threads and other processes, which take no lock and disturb no writer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from meshnode.errors import NoRoomError, NotAllowedError, NotFoundError, StoreError
from meshnode.store.connection import connect, unreadable
from meshnode.store.database import BUSY_MS, Tx, no_fault, read_text
from meshnode.store.trouble import trouble

STATEMENT_CACHE = 64
# Actions and answers of an authorizer (https://www.sqlite.org/c3ref/c_alter_table.html).
_OK, _DENY = 0, 1
_READ = 20
_READING = frozenset({_READ, 21, 31, 33})  # and SELECT, a function, a recursive part
_LOOK_STEPS = 20_000  # of SQLite's virtual machine between two looks at the clock: some milliseconds


class Reader:
    """One read-only connection; use it on one thread at a time. StoreError where the file cannot be read.

    `immutable`: the file stands alone and nobody writes it, so no WAL is shared.
    """

    def __init__(self, path: Path, *, sqlite: ModuleType, key: bytes | None = None, immutable: bool = False) -> None:
        if not path.exists():
            raise NotFoundError(f"there is no database {path}")
        self._sqlite = sqlite
        self._path = path
        try:
            self._connection = connect(
                sqlite,
                f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if immutable else ''}",
                key,
                uri=True,
                isolation_level=None,
                cached_statements=STATEMENT_CACHE,
                check_same_thread=False,
            )
            self._connection.text_factory = read_text
            self._connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
            self._connection.execute("PRAGMA query_only = ON")
        except sqlite.DatabaseError as error:
            raise unreadable(path, error, key) from error

    @contextmanager
    def snapshot(self) -> Iterator[Tx]:
        """One state of the database for every query inside; keep it short, a long one lets the WAL grow."""
        try:
            tx = Tx(self._connection, no_fault)
            tx.execute("BEGIN")
            try:
                yield tx
            finally:
                if tx.active:
                    tx.execute("ROLLBACK")
        except self._sqlite.Error as error:
            raise trouble(self._path, f"the database {self._path} cannot be read", error) from error

    def quick_check(self, most: int, late: Callable[[], bool]) -> tuple[list[str], bool]:
        """At most so many things that are wrong with the file, and whether all of it was looked at before `late`.

        Raises StoreError where another program keeps it locked.
        """
        found: list[str] = []
        self._connection.set_progress_handler(lambda: int(late()), _LOOK_STEPS)
        try:
            for (line,) in self._connection.execute(f"PRAGMA quick_check({int(most)})"):
                found.append(str(line))
        except self._sqlite.Error as error:
            if late():
                return found, False
            if "locked" in str(error):
                raise StoreError(f"another program keeps the database {self._path} locked: {error}") from error
            met = trouble(self._path, f"the database {self._path} cannot be read", error)
            if isinstance(met, NoRoomError | NotAllowedError):
                raise met from error
            found.append(str(error))  # it goes on beyond most damage, and not beyond all
        finally:
            self._connection.set_progress_handler(None, 0)
        return [line for line in found if line != "ok"], True

    def select(self, tx: Tx, sql: str, parameters: Any, reads: set[str]) -> Any:
        """The cursor of one SELECT, whatever it names; the SQL tables that it reads are added to `reads`.

        Anything but reading is refused as the module's DatabaseError, with "not authorized" in it.
        """

        def allow(action: int, table: str | None, _other: str | None, _database: str | None, _by: str | None) -> int:
            if action == _READ and table is not None:
                reads.add(table)
            return _OK if action in _READING else _DENY

        self._connection.set_authorizer(allow)
        try:
            return tx.execute(sql, parameters)
        finally:
            self._connection.set_authorizer(None)

    def interrupt(self) -> None:
        """End the statement that runs, from another thread."""
        self._connection.interrupt()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

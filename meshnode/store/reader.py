"""Read-only connections: for other threads and other processes, which take no lock and disturb no writer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from meshnode.errors import NoRoomError, NotAllowedError, NotFoundError, StoreError
from meshnode.store.connection import connect, unreadable
from meshnode.store.database import BUSY_MS, Tx, no_fault, read_text
from meshnode.store.trouble import trouble

STATEMENT_CACHE = 64
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

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

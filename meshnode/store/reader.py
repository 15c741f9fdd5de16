"""Read-only connections: for other threads and other processes, which take no lock and disturb no writer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from meshnode.errors import NotFoundError, StoreError
from meshnode.store.connection import connect, unreadable
from meshnode.store.database import BUSY_MS, Tx, no_fault, read_text

STATEMENT_CACHE = 64


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
            raise StoreError(f"the database {self._path} cannot be read: {error}") from error

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

"""The writing connection: one per node, used on one thread, one transaction per batch of work."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from meshnode.errors import BusyError, StoreError
from meshnode.store.connection import connect, rekey, unreadable
from meshnode.store.trouble import trouble

Fault = Callable[[str], None]
"""Called with a statement or point name before it happens; a test raises from it to stop the node there."""

STATEMENT_CACHE = 512  # prepared statements kept by the writing connection
_SQLITE_BUSY = 5
CACHE_KIB = 32 * 1024  # of pages in memory: a batch of scattered rows dirties more than SQLite's 2 MiB and spills
CHECKPOINT_PAGES = 4000  # of the WAL: with SQLite's 1000 every full batch would write its pages, and fsync, twice
WAL_KEPT_BYTES = 16 * 1024 * 1024  # of the WAL file after a checkpoint; a long reader made it grow beyond that
WAY_S = 0.025  # seconds at most between two transactions of a database that an application writes too
BUSY_MS = 10_000  # milliseconds to wait for another process's write transaction


def no_fault(_point: str) -> None:
    """The production fault hook: nothing ever goes wrong on purpose."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How long transactions took, told to whoever measures; without a clock it is always nothing."""

    now: Callable[[], float] = lambda: 0.0  # seconds, monotonic
    committed: Callable[[float, float], None] = lambda worked_s, synced_s: None  # up to COMMIT, and in it (the fsync)
    sleep: Callable[[float], None] = lambda _seconds: None


class UnreadableText(bytes):
    """The bytes of a text that is not UTF-8: SQLite stores any, and an application may have made it."""

    __slots__ = ()


def read_text(data: bytes) -> str | UnreadableText:
    """What a connection makes of a text; a value never makes a row unreadable."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return UnreadableText(data)


class Tx:
    """An open write transaction; every statement of the node goes through it."""

    __slots__ = ("_connection", "_fault", "adopted", "gate_closed", "log_touched")

    def __init__(self, connection: Any, fault: Fault) -> None:
        self._connection = connection
        self._fault = fault
        self.adopted = False  # whether there are adopted tables
        self.gate_closed = False
        self.log_touched = False  # whether rows that the log had before are others by now, or gone

    def close_gate(self) -> None:
        """What is written to adopted tables from here on is this node's own: no trigger notes it (store/capture.py)."""
        if not self.gate_closed:
            self.execute("INSERT INTO meshnode_gate VALUES (1)")
            self.gate_closed = True

    def open_gate(self) -> None:
        """Before the commit: no other connection may ever see the gate closed."""
        self.execute("DELETE FROM meshnode_gate")
        self.gate_closed = False

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """Run one statement and return its cursor."""
        self._fault(sql)
        return self._connection.execute(sql, parameters)

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> Any:
        """Run one statement for every row."""
        self._fault(sql)
        return self._connection.executemany(sql, rows)

    @property
    def active(self) -> bool:
        """Whether the transaction is still open: a trigger's RAISE(ROLLBACK), or a full disk, ends it early."""
        return bool(self._connection.in_transaction)

    @contextmanager
    def savepoint(self, name: str = "meshnode_inner") -> Iterator[None]:
        """Undo only what happens inside, if it raises."""
        self.execute(f"SAVEPOINT {name}")
        closed = self.gate_closed
        try:
            yield
        except BaseException:
            self.gate_closed = closed  # its row goes with the rest
            if self.active:
                self._connection.execute(f"ROLLBACK TO {name}")
                self._connection.execute(f"RELEASE {name}")
            raise
        self.execute(f"RELEASE {name}")


class Database:
    """Opens the file with what durability needs: WAL and `synchronous=FULL` (an ack follows an fsync, profile §8).

    `sqlite` is the DB-API module (sqlite3, or SQLCipher's with the file's `key`). Raises StoreError when the file
    cannot be used.
    """

    shared = False  # whether an application writes here too, and wants its turn
    _held_s = 0.0  # how long the last transaction kept it from writing
    _ended = 0.0  # when

    def __init__(
        self,
        path: Path,
        *,
        sqlite: ModuleType,
        key: bytes | None = None,
        fault: Fault = no_fault,
        timing: Timing = Timing(),  # frozen
    ) -> None:
        self.path = path
        self._timing = timing
        self.sqlite = sqlite
        self._key = key
        self._fault = fault
        try:
            self._connection = connect(
                sqlite,
                str(path),
                key,
                isolation_level=None,
                cached_statements=STATEMENT_CACHE,
                check_same_thread=False,
            )
            self._connection.text_factory = read_text
            self._connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            self._connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
            self._connection.execute(f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES}")
            self._connection.execute("PRAGMA foreign_keys = OFF")  # profile §5: rows arrive in any order
        except sqlite.DatabaseError as error:
            raise unreadable(path, error, key) from error

    @contextmanager
    def transaction(self) -> Iterator[Tx]:
        """One atomic batch: committed and on disk when the block ends, undone when it raises.

        StoreError where the database or the disk fails, BusyError where another program keeps it locked.
        """
        tx = Tx(self._connection, self._fault)
        if self.shared:
            self._give_way()
        try:
            tx.execute("BEGIN IMMEDIATE")
            begun = self._timing.now()
            yield tx
            if tx.gate_closed:
                tx.open_gate()
            done = self._timing.now()
            tx.execute("COMMIT")
            self._ended = self._timing.now()
            self._held_s = self._ended - begun
            self._timing.committed(done - begun, self._ended - done)
        except BaseException as error:
            _let_go(error)
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            if isinstance(error, self.sqlite.Error):
                raise _store_error(self.path, error) from error
            raise

    def _give_way(self) -> None:
        """Leave the database alone for as long as the last transaction held it: an application that waits looks only
        now and then whether it can write, and would find it taken each time by one that begins again at once."""
        wait = min(self._held_s, WAY_S) - (self._timing.now() - self._ended)
        if wait > 0:
            self._timing.sleep(wait)

    @contextmanager
    def beside(self, path: Path) -> Iterator[None]:
        """Another file, which is not encrypted, under the name `source`. StoreError where it cannot be read."""
        try:
            self._connection.execute("ATTACH ? AS source", (str(path),))
        except self.sqlite.Error as error:
            raise _store_error(path, error) from error
        try:
            yield
        finally:
            self._connection.execute("DETACH source")

    def commit_early(self) -> None:
        """A commit need not be on the disk when it returns: a power cut may undo the last ones, in their order.

        For what can be made again.
        """
        self._connection.execute("PRAGMA synchronous = NORMAL")

    def commit_durably(self) -> None:
        """Every commit is on the disk when it returns, as usual; those that were early are when this returns."""
        self._connection.execute("PRAGMA synchronous = FULL")
        with self.transaction() as tx:
            tx.close_gate()  # writes, so that there is a commit: its fsync is of all that is in the WAL

    def overwrite_deleted(self) -> None:
        """What is deleted from here on leaves no trace in the free pages."""
        self._connection.execute("PRAGMA secure_delete = ON").fetchall()

    def keep_journal(self, mode: str) -> None:
        """Keep the journal as the file's owner had it, where no other program has the file open."""
        with suppress(self.sqlite.OperationalError):
            self._connection.execute("PRAGMA busy_timeout = 0")
            self._connection.execute(f"PRAGMA journal_mode = {'DELETE' if mode == 'delete' else 'WAL'}").fetchall()

    def rewrite(self) -> None:
        """Write every page anew, so that nothing that was deleted is left in any.

        Overwriting what is deleted would not be enough: what a page held before its rows moved to another stays in its
        free space. Takes the time and, meanwhile, the disk space of the whole database. The old pages are in the file
        until `empty_wal` has put the new ones over them. StoreError where it fails; nothing is lost then.
        """
        try:
            self._fault("VACUUM")
            self._connection.execute("VACUUM")
        except self.sqlite.Error as error:
            raise StoreError(
                f"what was deleted is gone from the tables, but not yet from the file {self.path}: {error}; "
                "the node will try again"
            ) from error

    def empty_wal(self, wait_ms: int | None = None) -> None:
        """Bring the WAL into the file and cut it to nothing. BusyError where another program reads on for `wait_ms`."""
        usual = self._connection.execute("PRAGMA busy_timeout").fetchone()[0]
        try:
            self._fault("PRAGMA wal_checkpoint")
            self._connection.execute(f"PRAGMA busy_timeout = {usual if wait_ms is None else wait_ms}")
            busy = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        except self.sqlite.Error as error:
            raise StoreError(
                f"what was deleted is gone from the tables, but old pages of the database {self.path} are still there: "
                f"{error}; the node will try again"
            ) from error
        finally:
            self._connection.execute(f"PRAGMA busy_timeout = {usual}")
        if busy:
            raise BusyError(
                f"what was deleted is gone from the tables, but another program reads the database {self.path} and "
                "keeps its old pages: close it, and the node will try again"
            )

    def copy_into(self, path: Path) -> None:
        """Copy the database as it stands, page by page, into a file that is there and empty. StoreError where it fails.

        A statement that writes it anew would need every collation and function of the application.
        """
        try:
            with closing(connect(self.sqlite, str(path), self._key, isolation_level=None)) as copy:
                self._connection.backup(copy)
        except (self.sqlite.Error, OSError) as error:
            raise trouble(path, f"cannot copy the database {self.path} into {path}", error) from error

    def rekey(self, key: bytes) -> None:
        """Encrypt a file that is encrypted under another key. StoreError where it fails; then the old one opens it."""
        try:
            rekey(self._connection, key)
        except self.sqlite.Error as error:
            raise _store_error(self.path, error) from error
        self._key = key

    def close(self) -> None:
        """Close the writing connection."""
        self._connection.close()


def _let_go(error: BaseException) -> None:
    """Close what the frames of a failed batch were reading, for as long as somebody keeps the error.

    A cursor among them would keep its snapshot, and this connection would be locked by it once another program wrote.
    """
    seen: BaseException | None = error
    while seen is not None:
        traceback.clear_frames(seen.__traceback__)
        seen = seen.__cause__ or seen.__context__


def _store_error(path: Path, error: Exception) -> StoreError:
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == _SQLITE_BUSY or "locked" in str(error):
        return BusyError(f"another program keeps the database {path} locked: close it, or try again")
    return trouble(path, f"the database {path} failed and nothing of this batch was kept", error)

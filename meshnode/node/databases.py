"""The one way to a home's database: which DB-API module opens it, and under which key.

The key comes from the site key, so that there is one thing to keep: who has that, and its passphrase, opens the
database and every backup of it. Whether a file is encrypted shows in the file: nothing else has to be remembered.
"""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from meshnode.errors import DamagedError, StoreError, UsageError
from meshnode.node.cipher import sqlcipher
from meshnode.node.home import Home
from meshnode.node.homepath import default_home
from meshnode.store import connection
from meshnode.store.connection import connect, unreadable
from meshnode.store.database import BUSY_MS, Database, Timing
from meshnode.store.reader import Reader

if TYPE_CHECKING:  # libsodium is on no reading verb's start-up path
    from meshnode.model.site import SiteKey


SECTOR_BYTES = 512  # the least page of SQLite: every database, encrypted or not, is a multiple of it
NO_DATABASE_HERE = "restore it and the keys from one backup, or join again in a new home"


@dataclass(frozen=True, slots=True)
class DatabaseFile:
    """A database that can be opened as often as somebody needs it."""

    path: Path
    sqlite: ModuleType = sqlite3
    key: bytes | None = field(default=None, repr=False)

    def writer(self, timing: Timing | None = None) -> Database:
        """The writing connection."""
        return Database(self.path, sqlite=self.sqlite, key=self.key, timing=timing or Timing())

    def reader(self, *, immutable: bool = False) -> Reader:
        """A reading connection."""
        return Reader(self.path, sqlite=self.sqlite, key=self.key, immutable=immutable)

    @property
    def stands_alone(self) -> bool:
        """Where nothing can be written a WAL cannot be shared: without one, the database is read as it stands."""
        wal = self.path.with_name(self.path.name + "-wal")
        return not os.access(self.path.parent, os.W_OK) and not (wal.exists() and wal.stat().st_size)

    def opens(self) -> bool:
        """Whether it is the key of the file."""
        try:
            self.reader().close()
        except StoreError:
            return False
        return True


def encrypted_file(path: Path, key: SiteKey) -> DatabaseFile:
    """A database that is encrypted, or to be made so, under what comes from this site key."""
    return DatabaseFile(path, sqlcipher(), key.database_key())


def is_encrypted(path: Path) -> bool:
    """Whether a file is there, and is no database that can be read without a key; StoreError where none can tell."""
    return connection.is_encrypted(sqlite3, path)


def database_of(home: Home, key: SiteKey | None = None) -> DatabaseFile:
    """The home's database as it is; the site key is read where it is encrypted, unless the caller has it."""
    path = home.database_path
    if not is_encrypted(path):
        if home.encrypt and home.founded and path.exists():
            raise StoreError(
                f"the database {path} was made without encryption: open the home without `encrypt`, or move it into a "
                "new one by `meshnode identity export` and `meshnode identity import --encrypt`"
            )
        return DatabaseFile(path)
    if path.stat().st_size % SECTOR_BYTES:
        raise DamagedError(f"{path} is no database: {NO_DATABASE_HERE}")
    try:
        sqlcipher()
    except UsageError as error:
        raise StoreError(
            f"{path} is an encrypted database, or none at all: {error} to open it, else {NO_DATABASE_HERE}"
        ) from error
    file = encrypted_file(path, home.site_key() if key is None else key)
    if home.renewed_key_path.exists() and not file.opens():  # a renewal was cut short behind that
        return encrypted_file(path, home.renewed_key())
    return file


def open_database(home: Home | str | os.PathLike[str] | None = None, *, read_only: bool = False) -> Any:
    """A DB-API connection to a node's database, for the application's own tables and for reading those of the mesh.

    It is one of `sqlite3`, or of `sqlcipher3` where the database is encrypted; an application's own statements, and
    its errors, are that module's. `home` is as for `Node`. What is written into a table of the mesh by it stays on this
    device unless the table is adopted (`Node.adopt`): write there through the node. Raises NotFoundError where there is
    no node, IdentityError where the key does not open, StoreError where the database does not.
    """
    place = home if isinstance(home, Home) else Home(home if home is not None else default_home())
    place.refuse_empty()
    file = database_of(place)
    target = f"{file.path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}"
    try:
        opened = connect(file.sqlite, target, file.key, uri=True)
        opened.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    except file.sqlite.DatabaseError as error:
        raise unreadable(file.path, error, file.key) from error
    return opened


def create_private(path: Path) -> None:
    """An empty database of mode 0600: it keeps invite secrets. SQLite gives its WAL the same mode.

    One that is there is not opened: closing it would drop the locks of the application's connections to it.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return
    except OSError as error:
        raise StoreError(f"cannot make the database {path}: {error.strerror}") from error

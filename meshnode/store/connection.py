"""How every connection to a database is made: with the key first, where the file is encrypted.

An encrypted file is SQLCipher's: every page of the database, of its WAL and of a journal under AES-256 with a MAC of
its own. What SQLite would put into files besides (sorting, savepoints, VACUUM) stays in memory.
"""

from __future__ import annotations

import weakref
from collections import Counter
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from meshnode.errors import DamagedError, NoRoomError, NotAllowedError, StoreError
from meshnode.store.trouble import trouble

KEY_BYTES: Final = 32
NO_DATABASE: Final = "SQLITE_NOTADB"

_Inode = tuple[int, int]

_encrypted_here: Final[Counter[_Inode]] = Counter()
"""Encrypted files that this process has connections to. It is the module's since file locks are the process's."""


def is_encrypted(sqlite: ModuleType, path: Path) -> bool:
    """Whether a file is there that is no database to those who have no key; `sqlite` is a module that knows none.

    SQLite looks, on page one alone, past WAL and locks. Were the file opened and closed by hand, the locks of every
    connection that this process has to it would be gone (POSIX; sqlite.org/howtocorrupt.html §2.2), and so they would
    if another SQLite library did it than the one that has them: hence files known to be encrypted are not looked at.
    Raises StoreError where the file cannot be read.
    """
    if not path.exists():
        return False
    if not path.is_file():
        raise StoreError(f"cannot read the database {path}: it is no file")
    if _inode(path) in _encrypted_here:
        return True
    try:
        with closing(sqlite.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            connection.execute("PRAGMA schema_version").fetchone()
    except sqlite.DatabaseError as error:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith("SQLITE_CANTOPEN"):
            raise trouble(path, f"cannot read the database {path}", error) from error
        return bool(name == NO_DATABASE)
    return False


def connect(sqlite: ModuleType, target: str, key: bytes | None, **options: Any) -> Any:
    """A connection of a DB-API module; `key` is the file's, None where it is not encrypted.

    Raises the module's DatabaseError where the file cannot be read.
    """
    if key is None:
        return sqlite.connect(target, **options)
    connection = sqlite.connect(target, factory=_noted(sqlite), **options)
    try:
        connection.execute("PRAGMA cipher_log_level = NONE")  # it would write to standard error by itself
        connection.execute(f"PRAGMA key = {_literal(key)}")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA recursive_triggers = OFF")  # as sqlite3 has it
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # only now is the key tried
        connection.note()
    except BaseException:
        connection.close()
        raise
    return connection


class _Noted:
    """What a module's connection is besides, so that it is noted here for as long as it is open."""

    gone: weakref.finalize[Any, Any]

    def note(self) -> None:
        """Note the file that it has open."""
        inode = _inode(Path(self.execute("PRAGMA database_list").fetchone()[2]))  # type: ignore[attr-defined]
        _encrypted_here[inode] += 1
        self.gone = weakref.finalize(self, _forget_encrypted, inode)

    def close(self) -> None:
        """As the module does it."""
        super().close()  # type: ignore[misc]
        if hasattr(self, "gone"):
            self.gone()


def _forget_encrypted(inode: _Inode) -> None:
    _encrypted_here[inode] -= 1
    if not _encrypted_here[inode]:
        del _encrypted_here[inode]


def _inode(path: Path) -> _Inode:
    status = path.stat()
    return status.st_dev, status.st_ino


@lru_cache(maxsize=4)
def _noted(sqlite: ModuleType) -> type[Any]:
    return type("Connection", (_Noted, sqlite.Connection), {})


def rekey(connection: Any, key: bytes) -> None:
    """Write every page anew under another key: one transaction, all of them or none."""
    connection.execute(f"PRAGMA rekey = {_literal(key)}")


def encrypt_into(sqlite: ModuleType, plain: Path, path: Path, key: bytes) -> None:
    """Write the content of a database that is not encrypted into a file that is there and empty, encrypted.

    StoreError where it fails.
    """
    try:
        with closing(connect(sqlite, str(path), key, isolation_level=None)) as connection:
            connection.execute("ATTACH ? AS plain KEY ''", (str(plain),))
            connection.execute("SELECT sqlcipher_export('main', 'plain')").fetchall()
            for pragma in ("user_version", "application_id"):  # the application's, which an export leaves out
                number = connection.execute(f"PRAGMA plain.{pragma}").fetchone()[0]
                connection.execute(f"PRAGMA main.{pragma} = {int(number)}")
            connection.execute("DETACH plain")
    except sqlite.Error as error:
        raise trouble(path, f"cannot encrypt the database {plain} into {path}", error) from error


def unreadable(path: Path, error: Exception, key: bytes | None) -> StoreError:
    """What to tell a person whose database does not open."""
    found = trouble(path, f"cannot open the database {path}", error)
    if key is None or isinstance(found, NoRoomError | NotAllowedError):
        return found
    return DamagedError(
        f"cannot open the database {path}: {error}; it is damaged, or encrypted under another key than the site key of "
        "this home: restore both from the same backup"
    )


def _literal(key: bytes) -> str:
    """A key as such, which no passphrase function is run over."""
    if len(key) != KEY_BYTES:
        raise StoreError(f"the key of a database has {KEY_BYTES} bytes, not {len(key)}")
    return f"\"x'{key.hex()}'\""

"""How every connection to a database is made: with the key first, where the file is encrypted.

An encrypted file is SQLCipher's: every page of the database, of its WAL and of a journal under AES-256 with a MAC of
its own. What SQLite would put into files besides (sorting, savepoints, VACUUM) stays in memory.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

from meshnode.errors import StoreError

KEY_BYTES = 32
HEADER = b"SQLite format 3\x00"
"""How a file begins that is not encrypted."""


def connect(sqlite: ModuleType, target: str, key: bytes | None, **options: Any) -> Any:
    """A connection of a DB-API module; `key` is the file's, None where it is not encrypted.

    Raises the module's DatabaseError where the file cannot be read.
    """
    connection = sqlite.connect(target, **options)
    if key is None:
        return connection
    try:
        connection.execute("PRAGMA cipher_log_level = NONE")  # it would write to standard error by itself
        connection.execute(f"PRAGMA key = {_literal(key)}")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA recursive_triggers = OFF")  # as sqlite3 has it
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # only now is the key tried
    except BaseException:
        connection.close()
        raise
    return connection


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
        raise StoreError(f"cannot encrypt the database {plain} into {path}: {error}") from error


def unreadable(path: object, error: Exception, key: bytes | None) -> StoreError:
    """What to tell a person whose database does not open."""
    if key is None:
        return StoreError(f"cannot open the database {path}: {error}")
    return StoreError(
        f"cannot open the database {path}: {error}; it is damaged, or encrypted under another key than the site key of "
        "this home: restore both from the same backup"
    )


def _literal(key: bytes) -> str:
    """A key as such, which no passphrase function is run over."""
    if len(key) != KEY_BYTES:
        raise StoreError(f"the key of a database has {KEY_BYTES} bytes, not {len(key)}")
    return f"\"x'{key.hex()}'\""

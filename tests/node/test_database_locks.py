"""Nothing that looks at a database's file takes the locks away that this process has on it (howtocorrupt.html §2.2).

Without them another process that closes the file believes to be the last one, and removes the WAL under the node.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from meshnode import open_database
from meshnode.node.config import Config
from meshnode.node.databases import database_of, is_encrypted
from meshnode.node.doctor.look_database import read_through
from meshnode.node.doctor.patient import Patient
from meshnode.node.founding import found
from meshnode.node.home import Home

LOOKS: dict[str, Callable[[Home], Any]] = {
    "is_encrypted": lambda home: is_encrypted(home.database_path),
    "database_of": database_of,
    "open_database": lambda home: open_database(home).close(),
    "doctor": lambda home: read_through(Patient(home, 0), 5.0),
}
LOCKED = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)  # SQLite's SHARED_FIRST and SHARED_SIZE
    except OSError:
        sys.exit(3)
"""


def _is_locked(path: Path) -> bool:
    """Whether another process is kept from what only the last connection to a database may do."""
    return subprocess.run([sys.executable, "-c", LOCKED, str(path)], check=False).returncode == 3


async def _founded(path: Path, *, encrypt: bool) -> Home:
    home = Home(path, encrypt=encrypt)
    home.prepare()
    await found(home, name="desk")
    return home


@pytest.mark.parametrize("encrypt", [False, True])
@pytest.mark.parametrize("look", LOOKS)
async def test_a_look_at_the_file_keeps_its_locks(tmp_path: Path, look: str, encrypt: bool) -> None:
    home = await _founded(tmp_path / "home", encrypt=encrypt)
    path = home.database_path
    with closing(database_of(home).writer()) as database:
        with database.transaction() as tx:
            tx.execute("SELECT count(*) FROM sqlite_master").fetchone()
        assert _is_locked(path)
        LOOKS[look](home)
        assert _is_locked(path)
        assert is_encrypted(path) is encrypt
    assert not _is_locked(path)


async def test_founding_in_a_database_that_is_open_keeps_its_locks(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as application:
        application.execute("PRAGMA journal_mode = WAL")
        application.execute("CREATE TABLE own (x)")
        assert _is_locked(path)
        home = Home(tmp_path / "home", Config(database=str(path)))
        home.prepare()
        await found(home, name="desk")
        assert _is_locked(path)


def test_what_is_no_database_is_told_from_one(tmp_path: Path) -> None:
    path = tmp_path / "some.db"
    assert not is_encrypted(path)
    for content, encrypted in ((b"", False), (b"hello", True), (b"x" * 4096, True)):
        path.write_bytes(content)
        assert is_encrypted(path) is encrypted, content[:8]


async def test_a_file_that_takes_the_place_of_an_encrypted_one_is_looked_at(tmp_path: Path) -> None:
    home = await _founded(tmp_path / "home", encrypt=True)
    database_of(home).reader().close()
    home.database_path.unlink()
    plain = sqlite3.connect(home.database_path)
    plain.execute("CREATE TABLE own (x)")
    plain.close()
    assert not is_encrypted(home.database_path)

"""The tables that a run's applications have, and databases that have them, made once and copied for every run."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from support.mesh_context import START_MS
from support.records import FOUNDER, MESH_ID, founding, site_key, vouch

from meshnode.engine.engine import Engine
from meshnode.engine.environment import Environment
from meshnode.engine.membership import add_records
from meshnode.engine.registry import TableSpec
from meshnode.store.database import Database

PAGE_BYTES = 1024  # small ones: most of what a commit costs is copying pages
MEMORY = Path("/dev/shm")  # where there is one
NOTES = TableSpec("main", "notes", {"id": "TEXT"}, {"title": "TEXT", "n": "INTEGER"})
LATE = TableSpec("main", "late", {"id": "TEXT"}, {"title": "TEXT"})
EXTRA = "extra"  # the column that `notes` gains in the middle of a run


@dataclass(frozen=True, slots=True)
class Plain:
    """A table as the reference model asks for it: a text key `id`, and columns that take whatever is written here."""

    columns: tuple[str, ...]

    def resolves(self, key: Mapping[str, Any]) -> bool:
        """Whether these columns are its key."""
        return key.keys() == {"id"} and isinstance(key["id"], str)

    def takes(self, _column: str, _value: Any) -> bool:
        """It refuses no value."""
        return True

    def shown(self, _key: Mapping[str, Any], values: Mapping[str, Any]) -> tuple[Any, ...]:
        """Every row is allowed, and what was never written is null."""
        return tuple(values.get(name) for name in self.columns)


SHAPES = {NOTES.name: Plain(("extra", "n", "title")), LATE.name: Plain(("title",))}


def memory_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder that costs no disk, where the platform has one."""
    return tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None, prefix="meshnode-sim-")


def first_records(numbers: Sequence[int]) -> list[bytes]:
    """The founding of the mesh by the first of these sites, and its vouches for the others."""
    first = site_key(numbers[0])
    return [*founding(first), *(vouch(first, site_key(number), 2 + number) for number in numbers[1:])]


@lru_cache(maxsize=256)
def database(number: int, members: tuple[int, ...]) -> bytes:
    """The database of a node that has `notes` and knows these first members: none of one that was not let in yet."""
    return _database(number, first_records(members) if members else [])


def _database(number: int, records: Sequence[bytes]) -> bytes:
    with memory_folder() as folder:
        path = Path(folder) / "node.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            connection.execute("VACUUM")
        database = Database(path, sqlite=sqlite3)
        database._connection.execute("PRAGMA synchronous = OFF")
        engine = Engine.create(
            database,
            Environment(lambda: START_MS, bytes, sqlite3),
            key=site_key(number),
            mesh_id=MESH_ID,
            founder_public_key=FOUNDER.public_key,
            incarnation=bytes([number]) * 16,
        )
        engine.context.transact(lambda tx: add_records(engine.context, tx, records, peer=None))
        engine.register_table(NOTES)
        engine.close()
        return path.read_bytes()

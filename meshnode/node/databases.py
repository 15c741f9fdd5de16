"""The one way to a home's database: which DB-API module opens it, and how."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from meshnode.node.home import Home
from meshnode.store.database import Database
from meshnode.store.reader import Reader


@dataclass(frozen=True, slots=True)
class DatabaseFile:
    """A database that can be opened as often as somebody needs it."""

    path: Path
    sqlite: ModuleType

    def writer(self) -> Database:
        """The writing connection."""
        return Database(self.path, sqlite=self.sqlite)

    def reader(self, *, immutable: bool = False) -> Reader:
        """A reading connection."""
        return Reader(self.path, sqlite=self.sqlite, immutable=immutable)


def database_of(home: Home) -> DatabaseFile:
    """The home's database as it is."""
    return DatabaseFile(home.database_path, sqlite3)

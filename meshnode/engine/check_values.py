"""What the columns of a destination make of values, asked of SQLite itself beside the database (profile §5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from meshnode.store.database import Tx
from meshnode.store.tables import Destination, quote


class Shadow:
    """A table in memory with the same column types: a value that goes through it comes back as it is stored."""

    def __init__(self, sqlite: ModuleType, destination: Destination) -> None:
        self._names = tuple(destination.columns)
        self._key = tuple(column.name for column in destination.key)
        self._connection = sqlite.connect(":memory:", isolation_level=None)
        declared = [
            f"c{at} {column.strict or column.affinity}" for at, column in enumerate(destination.columns.values())
        ]
        types = ", ".join(declared) or ("none ANY" if destination.strict else "none")
        self._connection.execute(f"CREATE TABLE shadow ({types}){' STRICT' if destination.strict else ''}")
        self._connection.execute("INSERT INTO shadow DEFAULT VALUES")
        self._update = f"UPDATE shadow SET {', '.join(f'c{at} = ?' for at in range(len(self._names)))}"  # noqa: S608
        where = " AND ".join(f"{quote(name)} = ?" for name in self._key)
        named = ", ".join(map(quote, self._names)) or "1"
        self._select = f"SELECT {named} FROM {destination.quoted} WHERE {where}"  # noqa: S608

    def find(self, tx: Tx, key: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """What the destination holds of a row."""
        found: tuple[Any, ...] | None = tx.execute(self._select, [key[name] for name in self._key]).fetchone()
        return found

    def compare(self, values: Mapping[str, Any], found: tuple[Any, ...]) -> Iterator[tuple[str, Any, Any]]:
        """`(column, what these values become, what is there)`; a column without a value is null."""
        if self._names:
            self._connection.execute(self._update, [values.get(name) for name in self._names])
            stored = self._connection.execute("SELECT * FROM shadow").fetchone()
            yield from zip(self._names, stored, found, strict=True)

    def close(self) -> None:
        """Free it."""
        self._connection.close()

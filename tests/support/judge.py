"""SQLite as the judge of its own rules: what a table makes of keys and values, asked of a copy of it in memory."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from support.reference import Cells

_REFUSED = object()


class Judge:
    """One table by its statements, its triggers included; carries out `support.reference.Table`."""

    def __init__(self, name: str, statements: Sequence[str]) -> None:
        self._db = sqlite3.connect(":memory:", isolation_level=None)
        for statement in statements:
            self._db.execute(statement)
        described = self._db.execute(
            'SELECT name, type, pk, hidden, "notnull" AND dflt_value IS NOT NULL FROM pragma_table_xinfo(?)', (name,)
        ).fetchall()
        sql = "SELECT strict, wr FROM pragma_table_list WHERE schema = 'main' AND name = ?"
        strict, without_rowid = self._db.execute(sql, (name,)).fetchone()
        indexed = self._db.execute("SELECT 1 FROM pragma_index_list(?) WHERE origin = 'pk'", (name,)).fetchone()
        self.key = [row[0] for row in sorted(described, key=lambda row: row[2]) if row[2]]
        self.columns = [row[0] for row in described if not row[2] and not row[3]]
        self._defaults = frozenset(row[0] for row in described if row[4])
        unique = "SELECT 1 FROM pragma_index_list(?) WHERE \"unique\" AND origin <> 'pk'"
        self.usable = self._db.execute(unique, (name,)).fetchone() is None
        self._quoted = f'"{name}"'
        self._listed = ", ".join(f'"{each}"' for each in [*self.key, *self.columns])
        # The same types without any constraint: what they make of a value is asked of this one.
        alias = " PRIMARY KEY" if not indexed and not without_rowid else ""
        types = [f'"{row[0]}" {row[1]}{alias if row[2] else ""}' for row in described if not row[3]]
        self._db.execute(f"CREATE TABLE probe ({', '.join(types)}){' STRICT' if strict else ''}")
        self._stored: dict[tuple[str, str], Any] = {}

    def _probe(self, column: str, value: Any) -> Any:
        asked = (column, repr(value))
        if asked not in self._stored:
            try:
                self._db.execute("DELETE FROM probe")
                self._db.execute(f'INSERT INTO probe ("{column}") VALUES (?)', (value,))
                self._stored[asked] = self._db.execute(f'SELECT "{column}" FROM probe').fetchone()[0]
            except sqlite3.Error:
                self._stored[asked] = _REFUSED
        return self._stored[asked]

    def resolves(self, key: Mapping[str, Any]) -> bool:
        return sorted(key) == sorted(self.key) and all(
            repr(self._probe(name, value)) == repr(value) for name, value in key.items()
        )

    def takes(self, column: str, value: Any) -> bool:
        return self._probe(column, value) is not _REFUSED

    def stored(self, column: str, value: Any) -> Any:
        """What the column's affinity makes of it, as the API shows it: an infinity has no CBOR and is text there."""
        found = self._probe(column, value)
        if isinstance(found, float) and math.isinf(found):
            return "Infinity" if found > 0 else "-Infinity"
        return found

    def shown(self, key: Mapping[str, Any], values: Mapping[str, Any]) -> Cells | None:
        """The row as an INSERT of all its columns leaves it; a NOT NULL column without a value shows its default."""
        names = [name for name in self.columns if name in values or name not in self._defaults]
        cells = [*(key[name] for name in self.key), *(values.get(name) for name in names)]
        listed = ", ".join(f'"{each}"' for each in [*self.key, *names])
        sql = f"INSERT OR ABORT INTO {self._quoted} ({listed}) VALUES ({', '.join('?' * len(cells))})"
        try:
            self._db.execute("BEGIN")
            self._db.execute(sql, cells)
            found: Cells | None = self._db.execute(f"SELECT {self._listed} FROM {self._quoted}").fetchone()
        except sqlite3.Error:
            found = None
        if self._db.in_transaction:  # a trigger's RAISE(ROLLBACK) has ended it
            self._db.execute("ROLLBACK")
        return found


@lru_cache(4096)
def judge_of(name: str, statements: tuple[str, ...]) -> Judge:
    """The same judge for the same table."""
    return Judge(name, statements)

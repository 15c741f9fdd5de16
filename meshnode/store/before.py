"""What a row held before it is written: told with its change, and kept no longer than that (profile §5)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any, Final

from meshnode.merge.rows import RowState
from meshnode.store.changes import OLD_BYTES
from meshnode.store.database import Tx
from meshnode.store.queries import presentable
from meshnode.store.tables import Destination, quote

NOTHING: Final[frozenset[str]] = frozenset()


def clocked(state: RowState, destination: Destination) -> Container[str]:
    """The columns of a row that hold something: a value that was written, or the null of a delete."""
    if not state.exists:
        return NOTHING
    return frozenset(destination.columns) if state.tombstone is not None else frozenset(state.columns)


def old_values(shown: Iterable[tuple[str, Any]], held: Container[str]) -> dict[str, Any]:
    """Of what SQL shows of a row, the columns that hold something, but for what is too long to be kept twice."""
    values = {name: presentable(value) for name, value in shown if name in held}
    return {name: value for name, value in values.items() if not _is_long(value)}


class Before:
    """Reads the rows of one table as they are in SQL."""

    def __init__(self, tx: Tx, destination: Destination) -> None:
        self._tx = tx
        self.names = list(destination.columns)
        names = ", ".join(map(quote, self.names)) or "1"
        where = " AND ".join(f"{quote(column.name)} = ?" for column in destination.key)
        self._select = f"SELECT {names} FROM {destination.quoted} WHERE {where}"  # noqa: S608

    def values(self, key: Sequence[Any], held: Container[str]) -> dict[str, Any]:
        """What a row holds; nothing where SQL has no such row."""
        found = self._tx.execute(self._select, key).fetchone()
        return {} if found is None else old_values(zip(self.names, found, strict=False), held)


def _is_long(value: Any) -> bool:
    return isinstance(value, str | bytes) and len(value) > OLD_BYTES

"""One table of a blocking node: `node.table.Table` for threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, Self, TypeVar

from meshnode.node.callbacks import Subscription
from meshnode.node.change import Change
from meshnode.node.table import Key, Misfit, Table
from meshnode.node.threaded import BlockingIterator, Failed, Threaded
from meshnode.node.views import Receipt
from meshnode.node.where import Where
from meshnode.node.writing import Write

T = TypeVar("T")

_ROWS_AT_ONCE: Final = 256  # fetched from the node's thread together


class BlockingTable(Generic[T]):
    """Rows of type `T`. Every method is that of `Table`, and waits."""

    def __init__(self, node: Threaded[Any], table: Table[T]) -> None:
        self._node = node
        self._table = table

    @property
    def name(self) -> str:
        """`name`, or `schema.name`."""
        return self._table.name

    def create(self, *, key: str | Sequence[str], own_numbers: bool = False, table_class: str | None = None) -> Self:
        """Make the SQL table of the type's fields if there is none, and let it take part in the mesh."""
        self._node.run(lambda _: self._table.create(key=key, own_numbers=own_numbers, table_class=table_class))
        return self

    def upsert(self, *rows: T) -> Receipt:
        """Let these rows be as given, all of them or none; only columns that differ are written."""
        return self._node.write([self._table.upserting(row) for row in rows])

    def patch(self, key: Key, /, **columns: Any) -> Receipt:
        """Give these columns of a row these values."""
        return self._node.write([self._table.patching(key, columns)])

    def delete(self, key: Key, /) -> Receipt:
        """Delete a row."""
        return self._node.write([self._table.deleting(key)])

    def delete_where(self, where: Where | Mapping[str, Any], /) -> Receipt:
        """Delete every row that this is true of."""
        return self._node.write([self._table.deleting_where(where)])

    def get(self, key: Key, /) -> T | None:
        """One row, None where there is none."""
        return self._node.run(lambda _: self._table.get(key))

    def rows(
        self, where: Where | Mapping[str, Any] | None = None, *, misfit: Misfit | None = None
    ) -> BlockingIterator[T]:
        """The rows, in the order of their keys, fetched some hundred at a time."""
        return self._node.follow(lambda _: self._table.rows(where, misfit=misfit), at_once=_ROWS_AT_ONCE)

    def count(self, where: Where | Mapping[str, Any] | None = None) -> int:
        """How many rows there are, or of how many this is true."""
        return self._node.run(lambda _: self._table.count(where))

    def changes(self, *, since: int | None = None) -> BlockingIterator[Change[T]]:
        """Changes of the table as they happen; the iterator waits for the next."""
        since = self._node.beginning(since)
        return self._node.follow(lambda _: self._table.changes(since=since))

    def on_changes(
        self, callback: Callable[[Change[T]], object], *, since: int | None = None, failed: Failed | None = None
    ) -> Subscription[Change[T]]:
        """The same as calls of `callback`, until it is cancelled or the node ends."""
        since = self._node.beginning(since)
        return self._node.subscribe(lambda _: self._table.changes(since=since), callback, failed)

    # --- as a transaction wants it

    def upserting(self, row: T) -> Write:
        """What `upsert` writes."""
        return self._table.upserting(row)

    def patching(self, key: Key, columns: Mapping[str, Any]) -> Write:
        """What `patch` writes."""
        return self._table.patching(key, columns)

    def deleting(self, key: Key) -> Write:
        """What `delete` writes."""
        return self._table.deleting(key)

    def __repr__(self) -> str:
        return f"Blocking{self._table!r}"

"""Several rows of several tables written as one: all of them are signed and on disk together, or none is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from meshnode.errors import UsageError
from meshnode.node.jsonvalues import checked_values
from meshnode.node.views import Receipt, Values, parse_table
from meshnode.node.writing import Intent, Write

if TYPE_CHECKING:
    from meshnode.node.blocking_table import BlockingTable
    from meshnode.node.table import Key, Table

T = TypeVar("T")


class Transaction:
    """Collects what is to be written when the block ends.

    Nothing is written before that: what is read in the block is what was there before it. Atomic here: other devices
    apply each delivered batch as one, but one that is cut may reach them in two.
    """

    def __init__(self) -> None:
        self._receipt: Receipt | None = None
        self._writes: list[Write] = []
        self._ended = False

    @property
    def receipt(self) -> Receipt:
        """What was written, once the block has ended; of nothing, where nothing differed.

        UsageError before that, and where the block ended by an error: then nothing was written.
        """
        if self._receipt is None:
            why = "an error ended it" if self._ended else "rows are written when the block ends: ask after it"
            raise UsageError(f"nothing of this transaction was written: {why}")
        return self._receipt

    def upsert(self, table: Table[T] | BlockingTable[T], /, *rows: T) -> None:
        """Let these rows be as given, as `Table.upsert` does."""
        for row in rows:
            self._add(table.upserting(row))

    def patch(self, table: Table[Any] | BlockingTable[Any], key: Key, /, **columns: Any) -> None:
        """Give these columns of one row these values; at the end NotFoundError where it is not."""
        self._add(table.patching(key, columns))

    def delete(self, table: Table[Any] | BlockingTable[Any], key: Key, /) -> None:
        """Delete one row; at the end NotFoundError where it is not, and nothing is written."""
        self._add(table.deleting(key))

    def put(self, table: str, key: Values, columns: Values) -> None:
        """Write these columns of one row, there or not, as `Node.put` does."""
        self._add(_plain(table, Intent.PUT, key, columns))

    def remove(self, table: str, key: Values) -> None:
        """Delete one row, as `Node.remove` does."""
        self._add(_plain(table, Intent.DELETE, key, {}))

    def end(self) -> Sequence[Write]:
        """No more can be added; what there is to write."""
        self._ended = True
        return self._writes

    def wrote(self, receipt: Receipt) -> None:
        """It has been, or nothing had to be."""
        self._receipt = receipt

    def _add(self, write: Write) -> None:
        if self._ended:
            raise UsageError("this transaction has ended: begin another one")
        self._writes.append(write)


def _plain(table: str, intent: Intent, key: Values, columns: Mapping[str, Any]) -> Write:
    schema, name = parse_table(table)
    return Write(schema, name, intent, checked_values(columns), checked_values(key))

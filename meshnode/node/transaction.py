"""Several rows of several tables written as one: all of them are signed and on disk together, or none is."""

from __future__ import annotations

from collections.abc import Sequence

from meshnode.engine.write import LocalChange
from meshnode.errors import UsageError
from meshnode.model.event import Event
from meshnode.node.jsonvalues import checked_value
from meshnode.node.views import Receipt, Values, parse_table


class Transaction:
    """Collects what is to be written; `receipt` is there once the block has ended without an error.

    Atomic here: other devices apply each delivered batch as one, but one that is cut may reach them in two.
    """

    def __init__(self) -> None:
        self.receipt: Receipt | None = None
        self._changes: list[LocalChange] = []
        self._tables: set[str] = set()
        self._ended = False

    def put(self, table: str, key: Values, columns: Values) -> None:
        """Write these columns of one row, after whatever was asked for before."""
        self._add(table, key, {name: checked_value(value) for name, value in columns.items()})

    def remove(self, table: str, key: Values) -> None:
        """Delete one row; at the end NotFoundError where there is none, and nothing is written."""
        self._add(table, key, None)

    def end(self) -> Sequence[LocalChange]:
        """No more can be added; what there is to write."""
        self._ended = True
        return self._changes

    def written(self, events: Sequence[Event]) -> None:
        """They are on disk now."""
        self.receipt = Receipt(
            table=", ".join(sorted(self._tables)),
            events=len(events),
            hlc=events[-1].hlc[:],
            event_ids=[event.event_id.hex() for event in events],
        )

    def _add(self, table: str, key: Values, columns: Values | None) -> None:
        if self._ended:
            raise UsageError("this transaction has ended: begin another one")
        checked = {name: checked_value(value) for name, value in key.items()}
        self._changes.append(LocalChange(*parse_table(table), checked, columns))
        self._tables.add(table)

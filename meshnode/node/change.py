"""One change of a table as a program has it: a `ChangeView` whose values are the program's own (SSP/1 §2)."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from meshnode.node.rowtypes import RowType
from meshnode.node.views import ChangeView, RowView
from meshnode.store import changes

T = TypeVar("T")


class Change(Generic[T]):
    """What happened to one row. `seq` is where to go on from; `row` is the row as it was when this was told."""

    __slots__ = ("_now", "_row_type", "view")

    def __init__(self, row_type: RowType[T], view: ChangeView, now: RowView | None) -> None:
        self._row_type = row_type
        self._now = now
        self.view = view
        """The change as `Node.changes` tells it."""

    @property
    def seq(self) -> int:
        """Its place in the change sequence of this node: strictly increasing, durable, given as `since` to go on."""
        return self.view.seq

    @property
    def table(self) -> str:
        """The table's name."""
        return self.view.table

    @property
    def key(self) -> dict[str, Any]:
        """Which row: key columns by name. Empty where a row was forgotten, which one is not kept."""
        return self._row_type.read(self.view.key)

    @property
    def op(self) -> str:
        """`upsert`, `delete`, `resurrect`, `withhold`, `show`, `taken-back` or `forget`."""
        return self.view.op

    @property
    def exists(self) -> bool:
        """Whether the row is in the table after this."""
        return self.view.exists

    @property
    def row(self) -> T | None:
        """The row as it was when this change was told: as new as that, or newer. None where it is not there any more.

        RowError where the type has no place for what is there.
        """
        return None if self._now is None else self._row_type.row(self._now)

    @property
    def new(self) -> dict[str, Any]:
        """The values of the columns that changed, None for a cleared one; of a row that is new here all it has."""
        return self._row_type.read(self.view.columns)

    @property
    def old(self) -> dict[str, Any]:
        """What those columns held before, of a row that went away all that it held.

        A column is absent where it held nothing that anybody wrote, or more than 4 KiB.
        """
        return self._row_type.read(self.view.old)

    @property
    def local(self) -> bool:
        """Whether this node wrote it."""
        return self.view.local

    @property
    def site(self) -> str | None:
        """The site id of who wrote it; None where rows are told instead of changes."""
        return self.view.site

    @property
    def cleared(self) -> list[str]:
        """Columns that a delete cleared, with nothing written into them since."""
        return self.view.cleared

    @property
    def unmaterialized(self) -> list[str]:
        """Columns that are as if nobody had ever written them."""
        return self.view.unmaterialized

    @property
    def partial(self) -> bool:
        """Whether values from below the table's horizon may be missing (SSP/1 §13.4)."""
        return self.view.partial

    @property
    def resurrected(self) -> bool:
        """Whether the row had been deleted and exists again (SSP/1 §13.2)."""
        return self.view.op == changes.RESURRECT

    @property
    def withheld(self) -> bool:
        """Whether the row exists and its own table does not allow it as it stands (profile §5)."""
        return self.view.op == changes.WITHHOLD

    @property
    def taken_back(self) -> bool:
        """Whether writes of somebody who may not write were taken out of the row (profile §9)."""
        return self.view.op == changes.TAKEN_BACK

    def __repr__(self) -> str:
        who = "here" if self.local else f"by {(self.site or '')[:8] or 'somebody'}"
        return f"Change({self.seq}, {self.op} {self.table} {self.view.key}, {who}, {self.view.columns})"

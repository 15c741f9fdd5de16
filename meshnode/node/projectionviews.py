"""What an app that is attached to a node is told of its schema, and what it writes into it."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from meshnode.node.views import ChangeView, Receipt, RowView, Values, View

WRITES_PER_CALL: Final = 10_000  # rows that one call of `write_schema` takes: one transaction


class ColumnShape(View, frozen=True, kw_only=True):
    """One column, by all that decides which values it keeps."""

    name: str
    type: str  # its affinity, of a STRICT table its type


class TableShape(View, frozen=True, kw_only=True):
    """One table of the schema as a projection makes it."""

    name: str  # without the schema
    key: list[ColumnShape]
    columns: list[ColumnShape]
    strict: bool = False
    rowid_key: bool = False  # the key is the rowid


class ProjectedChange(View, frozen=True, kw_only=True):
    """One change, its table without the schema, and the row as it is now."""

    change: ChangeView
    row: RowView | None = None  # null: it is not there


class ProjectionPage(View, frozen=True, kw_only=True):
    """What is applied together, in one transaction, and where the projection then is."""

    mesh: str  # id of the mesh
    site: str  # id of this device
    epoch: str  # of this run of the node: a position is an epoch with a number
    seq: int  # of the change sequence; counts only where no rows are told, or these are the last ones
    rows: Literal["", "first", "more", "last", "all"] = ""  # rows are told instead of changes: which part of them
    current: bool = False  # there was nothing beyond it
    tables: list[TableShape] | None = None  # all there are, where that is news
    changes: list[ProjectedChange] = msgspec.field(default_factory=list)


class RowWrite(View, frozen=True, kw_only=True):
    """One row to write, its table without the schema."""

    table: str
    intent: Literal["put", "upsert", "patch", "delete"]
    columns: Values = msgspec.field(default_factory=dict)
    key: Values | None = None  # null: the key columns are among `columns`


class WrittenView(View, frozen=True, kw_only=True):
    """What was written; a projection shows it that is at the `seq` of the receipt in this epoch, or beyond."""

    receipt: Receipt
    epoch: str

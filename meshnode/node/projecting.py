"""One schema of a node for an app that is attached to it: told as it changes, and written.

An app is told of its own schema and writes there alone. Acknowledgements to peers stand on the log (profile §8): how
far an app is, or whether there is one, is none of their business. Nothing is kept here for an app: whoever is too far
behind, or was at a position that this database never had, is told every row.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple

import msgspec

from meshnode.engine.engine import Engine
from meshnode.errors import UsageError
from meshnode.limits import NAME_BYTES
from meshnode.model.event import is_reserved
from meshnode.node import following, reading
from meshnode.node.changefeed import CHANGE_PAGE
from meshnode.node.jsonvalues import checked_values
from meshnode.node.projectionviews import (
    WRITES_PER_CALL,
    ColumnShape,
    ProjectedChange,
    ProjectionPage,
    RowWrite,
    TableShape,
    WrittenView,
)
from meshnode.node.stored import Stored
from meshnode.node.views import ChangeView, RowView, table_text
from meshnode.node.writing import Intent, Write, receipt_of, write_rows
from meshnode.store import epochs, meta, queries
from meshnode.store.database import Tx
from meshnode.store.tables import Column, Destination

_PARTS: Final = {(True, True): "all", (True, False): "first", (False, False): "more", (False, True): "last"}


class Projecting(Stored):
    """The operations of attached apps."""

    async def project(self, schema: str, *, epoch: str = "", since: int = 0) -> AsyncIterator[ProjectionPage]:
        """One schema beyond a position as it changes; every row first where this database was never there."""
        named = _Schema.named(schema)
        if self._ended():
            return
        given = _epoch(epoch)
        at = await self.storage.read(lambda tx: _Reached(_begin(tx, given, since)))
        while not self._ended():
            rung, before = self.storage.changed.listen(), at
            page, at = await self.storage.read(lambda tx, at=at: _next_page(tx, named, at))  # type: ignore[misc]
            if page is not None:
                yield page
            if at.place == before.place:
                await self.storage.changed.wait(rung, self._poll_s())

    async def write_schema(self, schema: str, writes: Sequence[RowWrite]) -> WrittenView:
        """Write rows of one schema, all of them or none; signed and on disk when this returns."""
        named = _Schema.named(schema)
        if len(writes) > WRITES_PER_CALL:
            raise UsageError(f"at most {WRITES_PER_CALL} rows fit one call")
        planned = [named.write(each) for each in writes]
        tables = [table_text(each.schema, each.table) for each in planned]

        def write(engine: Engine) -> WrittenView:
            context = engine.context

            def work(tx: Tx) -> WrittenView:
                receipt = receipt_of(context, tables, write_rows(context, tx, planned))
                return WrittenView(receipt=receipt, epoch=epochs.current(tx).hex())

            return context.transact(work)

        return await self._write(write)


class _Schema(NamedTuple):
    """One schema, and the names of its tables."""

    name: str

    @classmethod
    def named(cls, name: str) -> _Schema:
        """UsageError where there can be none of that name."""
        if not name or "." in name or len(name.encode("utf-8", "replace")) > NAME_BYTES or is_reserved(name, "t"):
            raise UsageError(f"{name[:40]!r} names no schema: a word without a dot, of at most {NAME_BYTES} bytes")
        return cls(name)

    def has(self, text: str) -> bool:
        """Whether a table, as it is named with its schema, is of this one."""
        return self.plain(text) is not None

    def plain(self, text: str) -> str | None:
        """Its name without the schema; None of a table of another one."""
        schema, dot, name = text.partition(".")
        if not dot:
            schema, name = "main", text
        return name if schema == self.name else None

    def write(self, row: RowWrite) -> Write:
        """What is asked for, in this schema whatever it names; UsageError for values that there cannot be."""
        if "." in row.table:
            raise UsageError(f"{row.table[:40]!r} names a table with a schema: an app names its own ones without")
        key = None if row.key is None else checked_values(row.key)
        return Write(self.name, row.table, Intent(row.intent), checked_values(row.columns), key)


class _Reached(NamedTuple):
    """How far one app was told, and as of which schema version the tables were."""

    place: following.Place
    version: int = -1
    shapes: list[TableShape] | None = None


def _begin(tx: Tx, epoch: bytes, since: int) -> following.Place:
    return following.Place(since) if epochs.has_passed(tx, epoch, since) else following.every_row()


def _epoch(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise UsageError(f"{text[:40]!r} is no epoch: hex digits") from error


def _next_page(tx: Tx, schema: _Schema, at: _Reached) -> tuple[ProjectionPage | None, _Reached]:
    """What comes next, over one snapshot; None where there is nothing."""
    place, told_rows = at.place, at.place.rows is not None or not following.is_kept(tx, at.place.seq)
    found, then = following.read_on(tx, place, schema.has, CHANGE_PAGE)
    rows = [None] * len(found) if told_rows else reading.rows_of(tx, found)
    version = tx.execute("PRAGMA schema_version").fetchone()[0]
    shapes = at.shapes if version == at.version else _shapes(tx, schema)
    reached = _Reached(then, version, shapes)
    if then == place and shapes == at.shapes:
        return None, reached
    page = ProjectionPage(
        mesh=meta.read_bytes(tx, meta.MESH_ID).hex(),
        site=meta.read_bytes(tx, meta.SITE).hex(),
        epoch=epochs.current(tx).hex(),
        seq=then.seq,
        rows=_PARTS[place.rows is None, then.rows is None] if told_rows else "",  # type: ignore[arg-type]
        current=then.rows is None and then.seq >= queries.last_change(tx),
        tables=None if shapes == at.shapes else shapes,
        changes=[_projected(schema, change, row) for change, row in zip(found, rows, strict=True)],
    )
    return page, reached


def _projected(schema: _Schema, change: ChangeView, row: RowView | None) -> ProjectedChange:
    told = msgspec.structs.replace(change, table=schema.plain(change.table) or "")
    if row is None and change.exists and change.site is None:  # a row that is told instead of a change
        row = RowView(
            key=change.key, columns=change.columns, cleared=change.cleared, unmaterialized=change.unmaterialized
        )
    return ProjectedChange(change=told, row=row)


def _shapes(tx: Tx, schema: _Schema) -> list[TableShape]:
    """The tables of the schema that can be used now."""
    return [
        _shape(entry.name, found)
        for entry, found in queries.registered_tables(tx)
        if entry.schema == schema.name and isinstance(found, Destination)
    ]


def _shape(name: str, destination: Destination) -> TableShape:
    return TableShape(
        name=name,
        key=[_column(each) for each in destination.key],
        columns=[_column(each) for each in destination.columns.values()],
        strict=destination.strict,
        rowid_key=destination.rowid_key,
    )


def _column(column: Column) -> ColumnShape:
    return ColumnShape(name=column.name, type=column.strict or column.affinity.value)

"""One table as a program has it: rows that are its own dataclasses, Structs or dicts, written, read and followed.

What can be kept is what SSP/1 §2 and profile §4 have: see `node.fieldtypes`. A table is a name: making one costs
nothing, and whether there is such a table shows when it is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, Self, TypeAlias, TypeVar

from meshnode.errors import RowError, UsageError
from meshnode.model.event import Scalar
from meshnode.node import reading
from meshnode.node.change import Change
from meshnode.node.fieldtypes import kept, shown
from meshnode.node.rowtypes import RowType
from meshnode.node.storage import Storage
from meshnode.node.views import ChangeView, Receipt, RowView, TableView, parse_table, table_text
from meshnode.node.where import Where, condition_of, row_count, row_page
from meshnode.node.writing import Intent, Write, named_key
from meshnode.node.writing import Key as KeptKey
from meshnode.store import queries
from meshnode.store.database import Tx

T = TypeVar("T")

Key: TypeAlias = Any
"""Which row: the value of the key column, or a mapping of all key columns where there are several."""

Misfit: TypeAlias = Callable[[RowError], object]
"""Told of a row that the type has no place for, which is then passed over."""

_ROWS_ON_THE_LOOP: Final = 64  # converted on the event loop: some milliseconds; more than that on a thread

_NO_KEYS: Final = ("bool", "float")  # of no value that a key can have (profile §4)


class Host(Protocol):
    """What a table needs of its node."""

    @property
    def storage(self) -> Storage: ...

    async def write_rows(self, writes: Sequence[Write]) -> Receipt: ...

    async def add_table(
        self,
        table: str,
        key: Mapping[str, str],
        columns: Mapping[str, str],
        *,
        own_numbers: bool = False,
        table_class: str | None = None,
    ) -> TableView: ...

    def change_pages(
        self, *, since: int | None, table: str | None, with_rows: bool
    ) -> AsyncIterator[list[tuple[ChangeView, RowView | None]]]: ...


class Table(Generic[T]):
    """Rows of type `T`; `await node.table("notes", Note).get("n1")`.

    Every method raises NotFoundError where the node has no such table, and RowError, which names table and column, for
    a value that cannot be kept: a naive datetime, NaN, an infinity, an integer of more than 64 bits, half a surrogate.
    """

    def __init__(self, host: Host, name: str, python: type[T]) -> None:
        self.schema, self.plain_name = parse_table(name)
        self.row_type: RowType[T] = RowType.of(table_text(self.schema, self.plain_name), python)
        self._host = host

    @property
    def name(self) -> str:
        """`name`, or `schema.name`."""
        return self.row_type.table

    async def create(
        self, *, key: str | Sequence[str], own_numbers: bool = False, table_class: str | None = None
    ) -> Self:
        """Make the SQL table of the type's fields if there is none, and let it take part in the mesh; the table itself.

        `key` names the field, or fields, of the primary key. What is there already stays as it is: RegistrationError
        where it cannot take part or is another table, RowError where the type lacks a place in it. `own_numbers`: an
        integer key that the program chooses itself, without two devices ever choosing the same. `table_class` is
        `shared`, `raw` or `private`.
        """
        if not self.row_type.fields:
            raise UsageError(f"table {self.name!r} has rows without a type: make it by `node.add_table`")
        names = [key] if isinstance(key, str) else list(key)
        fields = {field.column: field.kind for field in self.row_type.fields}
        declared = {name: kind.sql for name, kind in fields.items()}
        for name in names:
            if name not in fields:
                raise RowError(self.name, name, f"{self.row_type.python.__name__} has no such field to be a key")
            if fields[name].name in _NO_KEYS:
                raise RowError(self.name, name, f"a {fields[name].name} is no key: let it be a str, an int or bytes")
        keys = {name: declared.pop(name) for name in names}
        await self._host.add_table(self.name, keys, declared, own_numbers=own_numbers, table_class=table_class)
        return self

    async def upsert(self, *rows: T) -> Receipt:
        """Let these rows be as given, all of them or none; signed and on disk when this returns.

        Of a row that is there only the columns that differ are written: what other devices write into the others at
        the same time stays. The receipt counts what was written, 0 where everything was so already.
        """
        if len(rows) > _ROWS_ON_THE_LOOP:
            writes = await asyncio.to_thread(lambda: [self.upserting(row) for row in rows])
        else:
            writes = [self.upserting(row) for row in rows]
        return await self._host.write_rows(writes)

    async def patch(self, key: Key, /, **columns: Any) -> Receipt:
        """Give these columns of a row these values, None included; all others stay. NotFoundError where it is not."""
        return await self._host.write_rows([self.patching(key, columns)])

    async def delete(self, key: Key, /) -> Receipt:
        """Delete a row; NotFoundError where it is not."""
        return await self._host.write_rows([self.deleting(key)])

    async def delete_where(self, where: Where | Mapping[str, Any], /) -> Receipt:
        """Delete every row that this is true of when it is done, `{}` of all; the receipt counts them, 0 is no error.

        One transaction, as `upsert` is: while a great many rows go nothing else is written here.
        """
        return await self._host.write_rows([self.deleting_where(where)])

    async def get(self, key: Key, /) -> T | None:
        """One row, None where there is none; RowError where the type has no place for what is there."""

        def read(tx: Tx) -> RowView | None:
            table = queries.Table(tx, self.schema, self.plain_name)
            self.row_type.check(table.destination)
            row = table.get(named_key(table.destination, kept_key))
            return None if row is None else reading.row_view(row)

        kept_key = self._key(key)
        found = await self._host.storage.read(read)
        return None if found is None else self.row_type.row(found)

    async def rows(
        self, where: Where | Mapping[str, Any] | None = None, *, misfit: Misfit | None = None
    ) -> AsyncIterator[T]:
        """The rows, in the order of their keys; of a mapping those whose columns are equal, or by `Where(sql, …)`.

        They are read a page at a time, each page as the table is then. A row that the type has no place for, since any
        member may have written it, ends this by RowError, or is told to `misfit` and passed over.
        """
        condition = condition_of(where, self.row_type)
        name, storage = (self.schema, self.plain_name), self._host.storage
        read = storage.read_apart if condition.sql else storage.read  # SQL of others may take its time
        after: tuple[Scalar, ...] | None = None
        while True:
            page = await read(lambda tx, at=after: row_page(tx, self.row_type, name, condition, at))  # type: ignore[misc]
            for view in page.rows:
                try:
                    row = self.row_type.row(view)
                except RowError as error:
                    if misfit is None:
                        raise
                    misfit(error)
                    continue
                yield row
            after = page.after
            if after is None:
                return

    async def count(self, where: Where | Mapping[str, Any] | None = None) -> int:
        """How many rows there are, or of how many this is true: those that the SQL table shows."""
        condition, name = condition_of(where, self.row_type), (self.schema, self.plain_name)
        return await self._host.storage.read_apart(lambda tx: row_count(tx, self.row_type, name, condition))

    async def changes(self, *, since: int | None = None) -> AsyncIterator[Change[T]]:
        """Changes of the table as they happen, without gap; with None, from now on. Ends with the node.

        To go on later, keep `change.seq` and give it as `since`; to go on from what was read, or from a write of one's
        own, give what `node.seq()` said before, or `receipt.seq`. Who was away for more than the last 100,000 changes
        is told every row instead, and then goes on.
        """
        pages = self._host.change_pages(since=since, table=self.name, with_rows=True)
        async for page in pages:
            for view, row in page:
                yield Change(self.row_type, view, row)

    # --- as a transaction wants it

    def upserting(self, row: T) -> Write:
        """What `upsert` writes."""
        return Write(self.schema, self.plain_name, Intent.UPSERT, self.row_type.values(row))

    def patching(self, key: Key, columns: Mapping[str, Any]) -> Write:
        """What `patch` writes."""
        if not columns:
            raise UsageError(f"nothing to patch in table {self.name!r}: name a column and its value")
        return Write(self.schema, self.plain_name, Intent.PATCH, self.row_type.columns(columns), self._key(key))

    def deleting(self, key: Key) -> Write:
        """What `delete` writes."""
        return Write(self.schema, self.plain_name, Intent.DELETE, {}, self._key(key))

    def deleting_where(self, where: Where | Mapping[str, Any]) -> Write:
        """What `delete_where` writes."""
        if where is None:
            raise UsageError(f"say which rows of table {self.name!r} are to be deleted: all of them are {{}}")
        condition = condition_of(where, self.row_type)
        return Write(self.schema, self.plain_name, Intent.DELETE_WHERE, {}, condition=condition)

    def _key(self, key: Key) -> KeptKey:
        if key is None:
            raise RowError(self.name, "", "None is no key")
        try:
            return {name: kept(value) for name, value in key.items()} if isinstance(key, Mapping) else kept(key)
        except ValueError as error:
            raise RowError(self.name, "", f"{shown(key)} is no key: {error}") from error

    def __repr__(self) -> str:
        return f"Table({self.name!r}, {self.row_type.python.__name__})"

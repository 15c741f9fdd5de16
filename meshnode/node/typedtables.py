"""Typed tables and live queries over whatever has a storage and takes writes: a node, or an attached app."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol, TypeVar, overload

from meshnode.node import live, table
from meshnode.node.live import Params, live_rows, query_rows, rows_until
from meshnode.node.table import Table
from meshnode.store import queries

T = TypeVar("T")


class Host(table.Host, live.Host, Protocol):
    """What these operations need."""


class TypedTables:
    """These operations."""

    @overload
    def table(self: Host, name: str) -> Table[dict[str, Any]]: ...

    @overload
    def table(self: Host, name: str, row: type[T]) -> Table[T]: ...

    def table(self: Host, name: str, row: type[Any] = dict) -> Table[Any]:
        """A table with its rows as a dataclass or msgspec.Struct, whose fields are columns; without one, as dicts.

        `name` is `notes`, or `schema.notes`. UsageError where a field is of a type that no column can hold (SSP/1 §2).
        """
        return Table(self, name, row)

    @overload
    def live(self: Host, sql: str, params: Params = ...) -> AsyncIterator[list[dict[str, Any]]]: ...

    @overload
    def live(self: Host, sql: str, params: Params = ..., *, row: type[T]) -> AsyncIterator[list[T]]: ...

    def live(self: Host, sql: str, params: Params = (), *, row: type[Any] = dict) -> AsyncIterator[list[Any]]:
        """The rows of one SELECT, at once and again whenever they are others; ends with the node.

        It runs on a thread and a read-only connection of its own, over whatever is in the database: tables of the
        mesh, and the program's own. Each result is whole, at most 100,000 rows, with the columns by name, in dicts or
        in `row`. Writes that follow each other closely are told once. UsageError where it is no SELECT, or SQLite
        refuses it.
        """
        return live_rows(self, sql, params, row)

    @overload
    async def query(self: Host, sql: str, params: Params = ...) -> list[dict[str, Any]]: ...

    @overload
    async def query(self: Host, sql: str, params: Params = ..., *, row: type[T]) -> list[T]: ...

    async def query(self: Host, sql: str, params: Params = (), *, row: type[Any] = dict) -> list[Any]:
        """The rows of one SELECT now: what `live` tells first."""
        return await query_rows(self, sql, params, row)

    @overload
    async def until(
        self: Host,
        sql: str,
        params: Params = ...,
        *,
        when: Callable[[list[dict[str, Any]]], object] = ...,
        timeout_s: float | None = ...,
    ) -> list[dict[str, Any]]: ...

    @overload
    async def until(
        self: Host,
        sql: str,
        params: Params = ...,
        *,
        row: type[T],
        when: Callable[[list[T]], object] = ...,
        timeout_s: float | None = ...,
    ) -> list[T]: ...

    async def until(
        self: Host,
        sql: str,
        params: Params = (),
        *,
        row: type[Any] = dict,
        when: Callable[[list[Any]], object] = bool,
        timeout_s: float | None = None,
    ) -> list[Any]:
        """The rows of one SELECT, as in `live`, as soon as there are any, or as soon as `when` says yes to them.

        A SELECT that always has a row, as of `count(*)`, wants a `when` or a HAVING. BehindError after `timeout_s`
        seconds, ClosedError where the node is closed before.
        """
        return await rows_until(self, sql, params, row, when, timeout_s)

    async def seq(self: Host) -> int:
        """How far the change sequence is: what is read after this, `changes(since=…)` goes on from without a gap."""
        return await self.storage.read(queries.last_change)

"""Typed tables and live queries for threads: `node.typedtables` that waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from meshnode.node.blocking_table import BlockingTable
from meshnode.node.callbacks import Subscription
from meshnode.node.live import Params, live_rows, query_rows, rows_until
from meshnode.node.table import Table
from meshnode.node.threaded import BlockingIterator, Failed, N, Threaded

T = TypeVar("T")


class BlockingTables(Threaded[N], Generic[N]):
    """These operations."""

    @overload
    def table(self, name: str) -> BlockingTable[dict[str, Any]]: ...

    @overload
    def table(self, name: str, row: type[T]) -> BlockingTable[T]: ...

    def table(self, name: str, row: type[Any] = dict) -> BlockingTable[Any]:
        """A table with its rows as a dataclass or msgspec.Struct; without one, as dicts."""
        return BlockingTable(self, Table(self._node, name, row))

    @overload
    def live(self, sql: str, params: Params = ...) -> BlockingIterator[list[dict[str, Any]]]: ...

    @overload
    def live(self, sql: str, params: Params = ..., *, row: type[T]) -> BlockingIterator[list[T]]: ...

    def live(self, sql: str, params: Params = (), *, row: type[Any] = dict) -> BlockingIterator[list[Any]]:
        """The rows of one SELECT, at once and again whenever they are others."""
        return self.follow(lambda node: live_rows(node, sql, params, row))

    @overload
    def query(self, sql: str, params: Params = ...) -> list[dict[str, Any]]: ...

    @overload
    def query(self, sql: str, params: Params = ..., *, row: type[T]) -> list[T]: ...

    def query(self, sql: str, params: Params = (), *, row: type[Any] = dict) -> list[Any]:
        """The rows of one SELECT now."""
        return self.run(lambda node: query_rows(node, sql, params, row))

    @overload
    def until(
        self,
        sql: str,
        params: Params = ...,
        *,
        when: Callable[[list[dict[str, Any]]], object] = ...,
        timeout_s: float | None = ...,
    ) -> list[dict[str, Any]]: ...

    @overload
    def until(
        self,
        sql: str,
        params: Params = ...,
        *,
        row: type[T],
        when: Callable[[list[T]], object] = ...,
        timeout_s: float | None = ...,
    ) -> list[T]: ...

    def until(
        self,
        sql: str,
        params: Params = (),
        *,
        row: type[Any] = dict,
        when: Callable[[list[Any]], object] = bool,
        timeout_s: float | None = None,
    ) -> list[Any]:
        """The rows of one SELECT as soon as there are any, or `when` says yes to them, on the node's own thread."""
        return self.run(lambda node: rows_until(node, sql, params, row, when, timeout_s))

    @overload
    def on_live(
        self,
        callback: Callable[[list[dict[str, Any]]], object],
        sql: str,
        params: Params = ...,
        *,
        failed: Failed | None = ...,
    ) -> Subscription[list[dict[str, Any]]]: ...

    @overload
    def on_live(
        self,
        callback: Callable[[list[T]], object],
        sql: str,
        params: Params = ...,
        *,
        row: type[T],
        failed: Failed | None = ...,
    ) -> Subscription[list[T]]: ...

    def on_live(
        self,
        callback: Callable[[list[Any]], object],
        sql: str,
        params: Params = (),
        *,
        row: type[Any] = dict,
        failed: Failed | None = None,
    ) -> Subscription[list[Any]]:
        """The same as calls of `callback`."""
        return self.subscribe(lambda node: live_rows(node, sql, params, row), callback, failed)

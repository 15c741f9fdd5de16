"""What a program has of a node that runs inside it: typed tables, live queries, waiting for others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, TypeVar, overload

from meshnode.errors import BehindError, ClosedError
from meshnode.model.site import site_text
from meshnode.node.bell import Bell
from meshnode.node.live import Params, live_rows, query_rows, short_sql
from meshnode.node.local import LocalNode
from meshnode.node.peering import wait_result
from meshnode.node.table import Table
from meshnode.node.views import WaitResult
from meshnode.store import queries

T = TypeVar("T")

WAIT_LOOK_S = 1.0  # seconds at most between two looks of `wait`


class Embedding(LocalNode):
    """These operations over a node's storage."""

    @overload
    def table(self, name: str) -> Table[dict[str, Any]]: ...

    @overload
    def table(self, name: str, row: type[T]) -> Table[T]: ...

    def table(self, name: str, row: type[Any] = dict) -> Table[Any]:
        """A table with its rows as a dataclass or msgspec.Struct, whose fields are columns; without one, as dicts.

        `name` is `notes`, or `schema.notes`. UsageError where a field is of a type that no column can hold (SSP/1 §2).
        """
        return Table(self, name, row)

    @overload
    def live(self, sql: str, params: Params = ...) -> AsyncIterator[list[dict[str, Any]]]: ...

    @overload
    def live(self, sql: str, params: Params = ..., *, row: type[T]) -> AsyncIterator[list[T]]: ...

    def live(self, sql: str, params: Params = (), *, row: type[Any] = dict) -> AsyncIterator[list[Any]]:
        """The rows of one SELECT, at once and again whenever they are others; ends with the node.

        It runs on a thread and a read-only connection of its own, over whatever is in the database: tables of the
        mesh, and the program's own. Each result is whole, at most 100,000 rows, with the columns by name, in dicts or
        in `row`. Writes that follow each other closely are told once. UsageError where it is no SELECT, or SQLite
        refuses it.
        """
        return live_rows(self, sql, params, row)

    @overload
    async def query(self, sql: str, params: Params = ...) -> list[dict[str, Any]]: ...

    @overload
    async def query(self, sql: str, params: Params = ..., *, row: type[T]) -> list[T]: ...

    async def query(self, sql: str, params: Params = (), *, row: type[Any] = dict) -> list[Any]:
        """The rows of one SELECT now: what `live` tells first."""
        return await query_rows(self, sql, params, row)

    @overload
    async def until(
        self,
        sql: str,
        params: Params = ...,
        *,
        when: Callable[[list[dict[str, Any]]], object] = ...,
        timeout_s: float | None = ...,
    ) -> list[dict[str, Any]]: ...

    @overload
    async def until(
        self,
        sql: str,
        params: Params = ...,
        *,
        row: type[T],
        when: Callable[[list[T]], object] = ...,
        timeout_s: float | None = ...,
    ) -> list[T]: ...

    async def until(
        self,
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
        try:
            async with asyncio.timeout(timeout_s):
                async with aclosing(live_rows(self, sql, params, row)) as results:
                    async for rows in results:
                        if when(rows):
                            return rows
        except TimeoutError as error:
            raise BehindError(f"after {timeout_s} s there is not yet what {short_sql(sql)} waits for") from error
        raise ClosedError("this node was closed before what was waited for came")

    async def seq(self) -> int:
        """How far the change sequence is: what is read after this, `changes(since=…)` goes on from without a gap."""
        return await self.storage.read(queries.last_change)

    async def wait_synced(self, peer: str | None = None, *, timeout_s: float = 60.0) -> WaitResult:
        """Until a member, by name or site id, has all that this node holds and this node all of its; or every member.

        BehindError after `timeout_s` seconds, which says who is behind and why; NotFoundError where there is no such
        member.
        """
        only = None if peer is None else await self.storage.read(lambda tx: self._others(tx, peer)[0].site)
        result = await self._until_complete(timeout_s, only=only)
        if not result.complete:
            who = "; ".join(f"{each.name or each.short}: {each.reason}" for each in result.behind)
            raise BehindError(f"not everything is everywhere after {timeout_s:g} s: {result.reason or who}")
        return result

    async def wait(self, *, timeout_s: float, live_only: bool = False) -> WaitResult:
        """Until everybody has everything, or `timeout_s` seconds are over."""
        return await self._until_complete(timeout_s, live_only=live_only)

    # --- for the running node to refine

    def _hurry(self) -> None:
        """Somebody waits for the others to have everything."""

    # --- how

    async def _until_complete(
        self, timeout_s: float, *, live_only: bool = False, only: bytes | None = None
    ) -> WaitResult:
        loop = asyncio.get_running_loop()
        end, hurry_at = loop.time() + timeout_s, 0.0
        while True:
            rung = self.storage.changed.listen()
            views = [view for view in await self.peers() if only is None or view.site == site_text(only)]
            result = wait_result(views, live_only=live_only)
            left = end - loop.time()
            if result.complete or left <= 0 or self._ended():
                return result
            if loop.time() >= hurry_at:
                hurry_at = loop.time() + WAIT_LOOK_S  # what it starts rings the bell too
                self._hurry()
            await Bell.wait(rung, min(left, WAIT_LOOK_S))

"""What a node tells from its store: itself, its mesh, its rows and what changes, how far delivery is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TypeAlias

from meshnode.errors import NotFoundError, UsageError
from meshnode.model.wording import quoted
from meshnode.node import following, reading, syncing
from meshnode.node.api import ROWS_PER_PAGE
from meshnode.node.explaining import explanation
from meshnode.node.jsonvalues import checked_values
from meshnode.node.metrics import kept, metrics_of
from meshnode.node.metricviews import MetricView
from meshnode.node.overview import status_of
from meshnode.node.peering import Heard, peer_views
from meshnode.node.storage import wall_ms
from meshnode.node.stored import Stored, refuse_no_number
from meshnode.node.views import (
    ChangeView,
    CheckReport,
    FrontierView,
    PeerView,
    RowExplanation,
    RowView,
    Status,
    SyncStateView,
    TableDigest,
    TableView,
    Values,
    parse_table,
    table_text,
)
from meshnode.store import meta
from meshnode.store.database import Tx

ChangePage: TypeAlias = list[tuple[ChangeView, RowView | None]]
"""Changes, each with its row as it is now, where that was asked for."""

CHANGE_PAGE = 256  # changes, or rows, read at a time for one subscriber


class Telling(Stored):
    """The operations that only read; nothing of them waits for the writer."""

    async def status(self) -> Status:
        """How the node is; `running` is false here."""
        heard = self._heard()  # of the event loop: what is read runs on another thread
        return await self.storage.read(lambda tx: self._status(tx, heard))

    async def metrics(self) -> list[MetricView]:
        """What the store says; a node that runs has more."""
        heard = self._heard()  # of the event loop
        return metrics_of(await self.storage.read(lambda tx: kept(self._mesh(tx, heard))), self.home.database_path)

    async def peers(self) -> list[PeerView]:
        """The other members."""
        heard = self._heard()
        return await self.storage.read(lambda tx: peer_views(self._mesh(tx, heard)))

    async def tables(self) -> list[TableView]:
        """The registered tables, by name."""
        return await self.storage.read(reading.table_views)

    async def get(self, table: str, key: Values) -> RowView | None:
        """One live row."""
        schema, name = parse_table(table)
        return await self.storage.read(lambda tx: reading.one_row(tx, schema, name, checked_values(key)))

    async def explain(self, table: str, key: Values) -> RowExplanation | None:
        """Why one row is as it is."""
        schema, name = parse_table(table)
        return await self.storage.read(lambda tx: explanation(tx, schema, name, checked_values(key)))

    async def rows(
        self,
        table: str,
        *,
        limit: int = ROWS_PER_PAGE,
        after: Values | None = None,
        before: Values | None = None,
    ) -> list[RowView]:
        """Live rows in key-bytes order."""
        schema, name = parse_table(table)
        if before is not None:
            if after is not None:
                raise UsageError("rows are read beyond a key or below one, not both")
            below = checked_values(before)
            return await self.storage.read(lambda tx: reading.row_page_back(tx, schema, name, limit, below))
        beyond = None if after is None else checked_values(after)
        return await self.storage.read(lambda tx: reading.row_page(tx, schema, name, limit, beyond))

    async def digest(self, table: str | None = None) -> list[TableDigest]:
        """The digest of one table, or of every one."""

        def read(tx: Tx) -> list[TableDigest]:
            names = reading.table_names(tx) if table is None else [parse_table(table)]
            return [reading.table_digest(tx, schema, name) for schema, name in names]

        return await self.storage.read(read)

    async def check(self, *, repair: bool = False) -> CheckReport:
        """Everything recomputed from the log, on a connection of its own: other reads go on meanwhile."""
        if repair:
            raise UsageError("the node was opened for reading only")
        from meshnode.node.checking import check_report  # of no use to most verbs

        return await self.storage.read_apart(
            lambda tx: check_report(tx, self.storage.file.sqlite, self._membership(tx))
        )

    async def changes(self, *, since: int | None = None, table: str | None = None) -> AsyncIterator[ChangeView]:
        """Changes beyond `since` as they happen; a subscriber that was away too long gets every row first."""
        async for page in self.change_pages(since=since, table=table):
            for change, _ in page:
                yield change

    async def change_pages(
        self, *, since: int | None, table: str | None, with_rows: bool = False
    ) -> AsyncIterator[ChangePage]:
        """The same, as they are read; `with_rows`, each with its row as it is in the same snapshot."""
        refuse_no_number(since)
        if self._ended():
            return
        named = None if table is None else table_text(*parse_table(table))
        if named is not None and named not in {view.table for view in await self.tables()}:
            raise NotFoundError(f"table {quoted(named)} is not registered: add it first")
        place = await self.storage.read(lambda tx: following.begin(tx, since))
        while not self._ended():
            rung, before = self.storage.changed.listen(), place

            def read(tx: Tx, at: following.Place = place) -> tuple[ChangePage, following.Place]:
                found, then = following.read_on(tx, at, named, CHANGE_PAGE)
                rows = reading.rows_of(tx, found) if with_rows else [None] * len(found)
                return list(zip(found, rows, strict=True)), then

            page, place = await self.storage.read(read)
            if page:
                yield page
            if place == before:
                await self.storage.changed.wait(rung, self._poll_s())

    async def sync_state(self, peer: str | None = None) -> list[SyncStateView]:
        """Both streams to each other member, or to one."""
        heard = self._heard()  # of the event loop
        return await self.storage.read(lambda tx: syncing.sync_states(tx, self._others(tx, peer), heard, wall_ms()))

    async def frontier(self, peer: str | None = None) -> list[FrontierView]:
        """The causal frontier, or one member's slot."""

        def read(tx: Tx) -> list[FrontierView]:
            own, wanted = meta.read_bytes(tx, meta.SITE), None if peer is None else self._others(tx, peer)
            return syncing.frontier_views(tx, self._membership(tx), own, wanted)

        return await self.storage.read(read)

    # --- the rest

    def _status(self, tx: Tx, heard: Mapping[bytes, Heard]) -> Status:
        return status_of(
            self._mesh(tx, heard), self.home, self._incarnation(), encrypted=self.storage.file.key is not None
        )

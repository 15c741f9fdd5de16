"""The durable change sequence of a database, followed as it grows: of a node's own, and of an attached app's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, Protocol, TypeAlias

from meshnode.errors import NotFoundError
from meshnode.model.wording import quoted
from meshnode.node import following, reading
from meshnode.node.storage import Storage
from meshnode.node.stored import refuse_no_number
from meshnode.node.views import ChangeView, RowView, parse_table, table_text
from meshnode.store.database import Tx

ChangePage: TypeAlias = list[tuple[ChangeView, RowView | None]]
"""Changes, each with its row as it is now, where that was asked for."""

CHANGE_PAGE: Final = 256  # changes, or rows, read at a time for one subscriber


class Host(Protocol):
    """What is followed."""

    @property
    def storage(self) -> Storage: ...

    def _ended(self) -> bool: ...

    def _poll_s(self) -> float | None: ...

    def change_pages(
        self, *, since: int | None, table: str | None, with_rows: bool = False
    ) -> AsyncIterator[ChangePage]: ...


class ChangeFeed:
    """These operations over whatever has a storage."""

    async def changes(self: Host, *, since: int | None = None, table: str | None = None) -> AsyncIterator[ChangeView]:
        """Changes beyond `since` as they happen; a subscriber that was away too long gets every row first."""
        async for page in self.change_pages(since=since, table=table):
            for change, _ in page:
                yield change

    async def change_pages(
        self: Host, *, since: int | None, table: str | None, with_rows: bool = False
    ) -> AsyncIterator[ChangePage]:
        """The same, as they are read; `with_rows`, each with its row as it is in the same snapshot."""
        refuse_no_number(since)
        if self._ended():
            return
        named = None if table is None else table_text(*parse_table(table))
        if named is not None and named not in {view.table for view in await self.storage.read(reading.table_views)}:
            raise NotFoundError(f"table {quoted(named)} is not registered: add it first")
        place = await self.storage.read(lambda tx: following.begin(tx, since))
        while not self._ended():
            rung, before, known = self.storage.changed.listen(), place, self.storage.last_change()

            def read(tx: Tx, at: following.Place = place) -> tuple[ChangePage, following.Place]:
                found, then = following.read_on(tx, at, lambda text: named in (None, text), CHANGE_PAGE)
                rows = reading.rows_of(tx, found) if with_rows else [None] * len(found)
                return list(zip(found, rows, strict=True)), then

            page, place = await self.storage.read(read)
            if page:
                yield page
            told = place == before or (known is not None and place == following.Place(known))
            while told and not self._ended():
                await self.storage.changed.wait(rung, self._poll_s())
                rung = self.storage.changed.listen()
                if known is None or self.storage.last_change() != known:
                    break  # most rings are of the delivery to a peer, and tell no subscriber anything

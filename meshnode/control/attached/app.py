"""`attach`: an app's own database as a copy of one schema of the node that runs on this device.

Reading is from that database, on the app's own threads; writing is the node's, which signs it and has it in its log
before the call returns. The copy follows by itself. What peers are acknowledged stands on the node's log alone, and an
app that lags, hangs or crashes holds nobody up.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from meshnode.control.attached.follower import Follower, is_final, nobody_there
from meshnode.control.client import ControlClient
from meshnode.errors import BusyError, ClosedError, MeshError, TransportError, UsageError
from meshnode.node import reading
from meshnode.node.bell import Bell
from meshnode.node.changefeed import ChangeFeed
from meshnode.node.databases import DatabaseFile
from meshnode.node.home import Home
from meshnode.node.homepath import default_home
from meshnode.node.lock import HomeLock, holder_of, lock_alone
from meshnode.node.projection import Projection
from meshnode.node.projectiontables import SCHEMA
from meshnode.node.projectionviews import RowWrite
from meshnode.node.storage import Storage, wall_ms
from meshnode.node.transacting import Transacting
from meshnode.node.typedtables import TypedTables
from meshnode.node.views import PeerView, Receipt, TableView, table_text
from meshnode.node.where import matching_keys
from meshnode.node.writing import Intent, Write, named_key
from meshnode.store import queries
from meshnode.store.database import Tx

PATIENCE_S: Final = 10.0  # seconds that a node which is not there, as while it is restarted, is waited for


class Attached(TypedTables, ChangeFeed, Transacting):
    """An app that is attached to the node of this device: `async with attach("notes.db", schema="notes") as app:`.

    It has the tables of one schema, under their plain names, and sees no other. One event loop only; every method
    raises errors of `meshnode.errors` and no others.
    """

    def __init__(self, database: Path, schema: str, home: Home, *, patience_s: float, shown: bool) -> None:
        self.schema = schema
        """The schema whose tables these are."""
        self._home = home
        self._file = DatabaseFile(database)
        self._patience_s = patience_s
        self._wait_shown = shown
        self._collecting: set[asyncio.Task[Any] | None] = set()
        self._entered = self._left = False
        self._lock: HomeLock | None = None
        self._storage: Storage | None = None
        self._follower: Follower | None = None
        self._following: asyncio.Task[None] | None = None

    # --- life

    async def __aenter__(self) -> Self:
        if self._entered:
            raise ClosedError("an app is attached once: attach it again by another `attach`")
        self._entered = True
        try:
            await self._open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave the node; it goes on. Again is nothing more."""
        self._entered = self._left = True
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        if self._storage is not None:
            self._storage.changed.ring()
            await self._storage.close()
        follower, self._follower = self._follower, None
        if follower is not None:
            await follower.close()
        if self._lock is not None:
            self._lock.release()

    async def _open(self) -> None:
        await asyncio.to_thread(self._file.path.parent.mkdir, parents=True, exist_ok=True)
        self._lock = await self._lock_database()
        projection = await asyncio.to_thread(Projection, self._file, self.schema, wall_ms)
        self._storage = Storage(self._file, None)
        self._follower = Follower(self._home, projection, self._storage.changed)
        self._following = asyncio.create_task(self._follower.run(), name="meshnode-attached")
        await self.caught_up(timeout_s=None)

    async def _lock_database(self) -> HomeLock:
        path = self._file.path.with_name(f"{self._file.path.name}-attached")
        try:
            return await lock_alone(path, "an attached app", wait_s=self._patience_s)
        except BusyError as error:
            holder = holder_of(path)
            who = f"process {holder.pid}" if holder else "another process"
            raise BusyError(
                f"{who} has attached {self._file.path} already: stop it, or attach another file; any program may read "
                "this one by SQL"
            ) from error

    # --- the node

    @property
    def connected(self) -> bool:
        """Whether the node is there now; where it is not, it is looked for, and reading goes on meanwhile."""
        return self._running.client is not None

    @property
    def current(self) -> bool:
        """Whether the node is there, and nothing of it is known to be missing here."""
        return self._running.current

    async def caught_up(self, *, timeout_s: float | None = 60.0) -> None:
        """Until the database has all that the node has. TransportError where no node runs for `patience_s` seconds.

        After `timeout_s` seconds BusyError; None is without end.
        """
        await self._until(lambda: self._running.current, timeout_s)

    async def peers(self) -> list[PeerView]:
        """The other devices, linked or not."""
        return await (await self._node()).peers()

    # --- tables

    @property
    def storage(self) -> Storage:
        """The app's database; ClosedError before it was attached, and after it was left."""
        if self._storage is None or self._left:
            raise ClosedError("this app is not attached: `async with attach(…) as app:`")
        return self._storage

    async def tables(self) -> list[TableView]:
        """The tables of the schema, by name."""
        return await self.storage.read(reading.table_views)

    async def add_table(
        self,
        table: str,
        key: Mapping[str, str],
        columns: Mapping[str, str],
        *,
        own_numbers: bool = False,
        table_class: str | None = None,
    ) -> TableView:
        """Create and register a table of the schema at the node, or register one that exists; until it is here too."""
        name = self._own(table)
        client = await self._node()
        await client.add_table(
            table_text(self.schema, name), key, columns, own_numbers=own_numbers, table_class=table_class
        )
        await self._until(lambda: any(each.name == name for each in self._running.at.shapes), self._patience_s)
        return next(view for view in await self.tables() if view.table == name)

    async def write_rows(self, writes: Sequence[Write]) -> Receipt:
        """Write them together, or none and an error: in the node's log when this returns, and in this database.

        Where the copy cannot follow any more it is not waited for. TransportError where the node went away while it was
        asked: then they may be written, or not. The receipt's `seq` is that of this database before them, so that
        `changes(since=receipt.seq)` tells them too. `delete_where` deletes what it is true of here.
        """
        self.refuse_in_transaction()

        def asked(tx: Tx) -> tuple[list[RowWrite], int]:
            return [row for each in writes for row in self._asked(tx, each)], queries.last_change(tx)

        rows, seq = await self.storage.read(asked)
        written = await (await self._node()).write_schema(self.schema, rows)
        if self._wait_shown:
            with suppress(MeshError):  # it is written all the same
                await self._until(lambda: self._running.shows(written), None)
        return msgspec.structs.replace(written.receipt, seq=seq)

    def refuse_ended(self) -> None:
        """ClosedError where it is not attached."""
        _ = self.storage

    # --- how

    @property
    def _running(self) -> Follower:
        if self._follower is None:
            raise ClosedError("this app is not attached: `async with attach(…) as app:`")
        return self._follower

    async def _node(self) -> ControlClient:
        """The node, waited for while it is restarted."""
        await self._until(lambda: self._running.client is not None, self._patience_s)
        client = self._running.client
        assert client is not None
        return client

    async def _until(self, holds: Callable[[], bool], timeout_s: float | None) -> None:
        """Raises what keeps it from ever holding, and TransportError where no node comes."""
        loop, changed = asyncio.get_running_loop(), self.storage.changed
        end = None if timeout_s is None else loop.time() + timeout_s
        alone_since: float | None = None
        while True:
            rung = changed.listen()
            if holds():
                return
            error = self._running.error
            if error is not None and is_final(error):
                raise error
            now = loop.time()
            alone_since = None if self._running.client is not None else alone_since or now
            ends = [each for each in (end, alone_since and alone_since + self._patience_s) if each is not None]
            if alone_since is not None and now >= alone_since + self._patience_s:
                raise error or TransportError(nobody_there(self._home))
            if end is not None and now >= end:
                raise BusyError(f"{self._file.path} is not up to the node yet: it goes on by itself")
            await Bell.wait(rung, min(ends) - now if ends else None)
            if self._left:
                raise ClosedError("this app was detached")

    def _asked(self, tx: Tx, write: Write) -> list[RowWrite]:
        name = self._own(table_text(write.schema, write.table))
        if write.intent is Intent.DELETE_WHERE:
            found = matching_keys(tx, queries.Table(tx, SCHEMA, name).destination, write.condition)
            return [RowWrite(table=name, intent="delete", key=key) for key in found]
        key = write.key
        if key is not None and not isinstance(key, Mapping):
            key = named_key(queries.Table(tx, SCHEMA, name).destination, key)
        columns, named = dict(write.columns), None if key is None else dict(key)
        return [RowWrite(table=name, intent=write.intent.value, columns=columns, key=named)]

    def _own(self, table: str) -> str:
        if "." in table:
            raise UsageError(
                f"this app is attached to schema {self.schema!r}: it names the tables of that one, without the schema, "
                f"and has no others such as {table!r}"
            )
        return table

    def _ended(self) -> bool:
        return self._left

    def _poll_s(self) -> float | None:
        return None


def attach(
    database: str | os.PathLike[str],
    *,
    schema: str,
    home: Home | str | os.PathLike[str] | None = None,
    patience_s: float = PATIENCE_S,
    shown: bool = True,
) -> Attached:
    """An app that shares the node which runs on this device, to be entered: `async with attach(…) as app:`.

    `database` is the app's own SQLite file; the tables of `schema` are kept in it beside whatever the app has there,
    and made again from the node where they lag or are lost. `home` is the node's (default: `MESHNODE_HOME`, else the
    platform's data folder). Writes return once the node has them on disk and, with `shown`, this database too.

    Entering returns once the copy is up to the node. It raises TransportError where no node runs there for
    `patience_s` seconds, BusyError where another process has attached the file, ConfigError for a file of another
    schema, mesh, or a node's own, RegistrationError where the file has a table of the app's under a name of the schema.
    """
    place = home if isinstance(home, Home) else Home(Path(home) if home is not None else default_home())
    path = Path(database).expanduser().absolute()
    return Attached(path, schema, place, patience_s=patience_s, shown=shown)

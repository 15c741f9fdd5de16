"""An engine on a real database with members that the test names, a clock that the test holds, and events by hand."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from meshnode.engine.commit import commit_events
from meshnode.engine.engine import Engine
from meshnode.engine.environment import Environment
from meshnode.engine.registry import TableSpec
from meshnode.engine.verify import Checked, Verified
from meshnode.model.event import Event, author_event
from meshnode.model.hlc import Hlc
from meshnode.model.member import Member
from meshnode.model.membership import Membership
from meshnode.model.scope import Scope
from meshnode.model.site import SiteKey, site_id_of
from meshnode.model.verdict import Judgement
from meshnode.store.database import Database, Fault, Timing, Tx, no_fault
from meshnode.store.notices import Notice, latest
from meshnode.store.queries import Change, Row, Table, changes_since
from meshnode.store.reader import Reader
from support.mesh_context import TestTime
from support.records import FOUNDER, MESH_ID, site_key

NOTES = TableSpec("main", "notes", {"id": "TEXT"}, dict.fromkeys(("title", "done", "rank", "blob", "n", "note"), ""))
PLAIN = TableSpec("main", "t", {"id": ""}, {"a": "", "b": "", "c": ""})


def members(keys: Iterable[bytes], roles: Mapping[bytes, str] = {}, cutoffs: Mapping[bytes, Hlc] = {}) -> Membership:
    """A membership that no records were walked for: public keys, roles in force at every HLC, cutoffs."""
    by_site = {}
    for public_key in keys:
        site = site_id_of(public_key)
        role = roles.get(site, "member")
        by_site[site] = Member(
            site=site,
            public_key=public_key,
            name="device",
            admitted=bytes(32),
            vouched_by=FOUNDER.site,
            vouched_at=Hlc(0, 0),
            role_starts=() if role == "member" else (Hlc(0, 0),),
            roles=() if role == "member" else (role,),
            cutoff=cutoffs.get(site),
        )
    return Membership(FOUNDER.site, FOUNDER.public_key, frozenset(), by_site)


class Bench:
    """One node's engine; sites 1, 2, 3 are members unless told otherwise, site 1 is the node itself."""

    def __init__(
        self,
        folder: Path,
        *,
        own: int | SiteKey = 1,
        membership: Membership | None = None,
        mesh_id: bytes = MESH_ID,
        time: TestTime | None = None,
        name: str = "node.db",
        fault: Fault = no_fault,
        durable: bool = False,
    ) -> None:
        self.durable = durable
        self.path = folder / name
        self.key = own if isinstance(own, SiteKey) else site_key(own)
        self.mesh_id = mesh_id
        self.time = time or TestTime()
        self.fault = fault
        self.membership = membership or members(site_key(number).public_key for number in (1, 2, 3))
        self.engine = self._begin()

    def _begin(self) -> Engine:
        return Engine.create(
            self._database(),
            self._env(),
            key=self.key,
            mesh_id=self.mesh_id,
            founder_public_key=FOUNDER.public_key,
            incarnation=bytes(16),
            load=lambda _tx, _founder: self.membership,
        )

    def _database(self) -> Database:
        database = Database(self.path, sqlite=sqlite3, fault=lambda point: self.fault(point))
        if not self.durable:  # nothing here pulls the plug, and an fsync per batch is most of a test's time
            database._connection.execute("PRAGMA synchronous = OFF")
        return database

    def _env(self) -> Environment:
        return Environment(self.time.wall_ms, self.time.random_bytes, sqlite3)

    def reopen(self) -> None:
        """The same node after a restart."""
        self.engine.close()
        self.engine = Engine.open(self._database(), self._env(), self.key, load=lambda _tx, _founder: self.membership)

    def sql(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """What an application does with the same file on a connection of its own."""
        with closing(sqlite3.connect(self.path, isolation_level=None, timeout=10)) as connection:
            return connection.execute(statement, parameters).fetchall()

    def event(
        self,
        site: int | SiteKey,
        clock: tuple[int, int] | int,
        key: Mapping[str, Any] | None,
        columns: Mapping[str, Any] | None,
        *,
        table: str = "t",
        schema: str = "main",
    ) -> Event:
        """An event signed by a member; a clock given as a number is that many ms after the tests' start."""
        physical, logical = clock if isinstance(clock, tuple) else (TestTime().now_ms + clock, 0)
        signer = site if isinstance(site, SiteKey) else site_key(site)
        return author_event(
            signer, self.mesh_id, schema=schema, table=table, row_key=key, columns=columns, hlc=Hlc(physical, logical)
        )

    def deliver(
        self,
        events: Sequence[bytes | Event],
        *,
        peer: int | None = 2,
        author_stream: bool = True,
        scope: Scope | None = None,
    ) -> list[str]:
        """Verdicts of events that came from a peer in one batch."""
        data = [each.data if isinstance(each, Event) else each for each in events]
        return [each.text() for each in self.judge(data, peer=peer, author_stream=author_stream, scope=scope)]

    def judge(
        self, data: Sequence[bytes], *, peer: int | None, author_stream: bool = True, scope: Scope | None = None
    ) -> list[Judgement]:
        return self.commit(self.engine.verify(data), peer=peer, author_stream=author_stream, scope=scope)

    def commit(
        self, checked: Sequence[Checked], *, peer: int | None, author_stream: bool = True, scope: Scope | None = None
    ) -> list[Judgement]:
        context = self.engine.context
        return context.transact(
            lambda tx: commit_events(
                context,
                tx,
                checked,
                author_stream=author_stream,
                scope=scope or Scope(),
                peer=None if peer is None else site_key(peer).site,
            )
        )

    def read(self, query: Callable[..., Any], *arguments: Any) -> Any:
        """Run a query over a snapshot, as another process would."""
        with closing(Reader(self.path, sqlite=sqlite3)) as reader, reader.snapshot() as tx:
            return query(tx, *arguments)

    def rows(self, table: str = "t", schema: str = "main") -> dict[bytes, Row]:
        found: list[Row] = self.read(lambda tx: list(Table(tx, schema, table).rows()))
        return {row.key_bytes: row for row in found}

    def get(self, key: Mapping[str, Any], table: str = "t") -> dict[str, Any] | None:
        row: Row | None = self.read(lambda tx: Table(tx, "main", table).get(key))
        return None if row is None else row.columns

    def digest(self, table: str = "t") -> tuple[bytes, int]:
        found: tuple[bytes, int] = self.read(lambda tx: Table(tx, "main", table).digest())
        return found

    def changes(self, since: int = 0) -> list[Change]:
        found: list[Change] = self.read(changes_since, since, 1000, 2**30)
        return found

    def notices(self) -> dict[str, Notice]:
        """The latest notice of each kind."""
        found: list[Notice] = self.read(latest, 1000)
        return {each.kind: each for each in reversed(found)}


class _OneConnection(Database):
    """A database in memory: it lives as long as its only connection, which every start of the node is given."""

    def __init__(self, connection: sqlite3.Connection, fault: Fault) -> None:
        self.path, self.sqlite, self._fault, self._connection = Path(":memory:"), sqlite3, fault, connection
        self._timing = Timing()

    def close(self) -> None:
        """The node ends, the database stays."""


class MemoryBench(Bench):
    """The same without a file, ten times as fast to make; the application shares the node's connection."""

    def __init__(self, *, fresh: bool = False) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=512)
        if not fresh:
            self._connection.deserialize(_empty())
        self._fresh = fresh
        super().__init__(Path(), name=":memory:")

    def _begin(self) -> Engine:
        return super()._begin() if self._fresh else self._opened()

    def _opened(self) -> Engine:
        return Engine.open(self._database(), self._env(), self.key, load=lambda _tx, _founder: self.membership)

    def _database(self) -> Database:
        return _OneConnection(self._connection, lambda point: self.fault(point))

    def reopen(self) -> None:
        self.engine = self._opened()

    def close(self) -> None:
        """Give the memory back."""
        self._connection.close()

    def sql(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, parameters).fetchall()

    def read(self, query: Callable[..., Any], *arguments: Any) -> Any:
        return query(Tx(self._connection, no_fault), *arguments)

    def deliver_verified(self, events: Iterable[Event]) -> list[str]:
        """Like `deliver`, of events whose signatures this test has just made itself."""
        generation = self.engine.context.generation
        checked = [Verified(event, generation) for event in events]
        return [each.text() for each in self.commit(checked, peer=2, author_stream=False)]


@cache
def _empty() -> bytes:
    """The database of a node that knows nothing yet."""
    bench = MemoryBench(fresh=True)
    try:
        return bench._connection.serialize()
    finally:
        bench.close()

"""A SELECT whose rows are told again whenever they are others: on its own thread, over its own read-only connection.

What it reads is found by SQLite itself. While all of that are tables of the mesh, the change sequence says whether to
look again; otherwise every commit of anybody does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from meshnode.errors import UsageError
from meshnode.node.bell import Bell
from meshnode.node.databases import DatabaseFile
from meshnode.node.fieldtypes import kept
from meshnode.node.rowtypes import RowType
from meshnode.node.storage import Storage
from meshnode.node.views import RowView
from meshnode.store import queries
from meshnode.store.database import Tx
from meshnode.store.names import TableNumbers
from meshnode.store.queries import presentable

LIVE_ROWS: Final = 100_000  # of one result: it is in memory, for as long as the query lives
LOOK_S: Final = 0.5  # seconds between two looks at what is not of the mesh: other programs ring no bell
REST_S: Final = 0.01  # seconds between two runs at least; as long as a run took, where that is more
_CHUNK: Final = 256  # rows read, and compared, at a time: other threads have their turn between
_SHOWN_CHARACTERS: Final = 80

Params: TypeAlias = Sequence[Any] | Mapping[str, Any]


class Host(Protocol):
    """What a live query needs of its node."""

    @property
    def storage(self) -> Storage: ...

    def _ended(self) -> bool: ...

    def refuse_ended(self) -> None: ...


class _Moment(NamedTuple):
    """What says whether the database may be another: this connection's count of others' commits, schema, changes."""

    commits: int
    schema: int
    change: int


async def query_rows(host: Host, sql: str, params: Params, row: type[Any]) -> list[Any]:
    """The result as it is now; whoever does not wait for it any more ends it."""
    host.refuse_ended()
    file = host.storage.file
    begun: list[LiveQuery] = []

    def run() -> list[Any]:
        with closing(LiveQuery(file, sql, params, row)) as query:
            begun.append(query)
            return query.look() or []

    try:
        return await asyncio.to_thread(run)
    except asyncio.CancelledError:
        for query in begun:
            query.interrupt()
        raise


async def live_rows(host: Host, sql: str, params: Params, row: type[Any]) -> AsyncGenerator[list[Any]]:
    """Each result that is another than the one before, until the node ends."""
    if host._ended():
        return
    changed, loop = host.storage.changed, asyncio.get_running_loop()
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="meshnode-live")
    query: LiveQuery | None = None
    try:
        query = await loop.run_in_executor(thread, LiveQuery, host.storage.file, sql, params, row)
        while not host._ended():
            rung, began = changed.listen(), loop.time()
            result = await loop.run_in_executor(thread, query.look)
            took = loop.time() - began
            if result is not None:
                yield result
            await Bell.wait(rung, LOOK_S if query.reads_others else None)
            if not host._ended():
                await asyncio.sleep(max(REST_S, took))  # what is written meanwhile is told with it
    finally:
        if query is not None:
            query.interrupt()
            thread.submit(query.close)
        thread.shutdown(wait=False)


class LiveQuery:
    """One SELECT and its last result. Used on one thread, but for `interrupt`."""

    def __init__(self, file: DatabaseFile, sql: str, params: Params, row: type[Any]) -> None:
        self.reads_others = False  # something else than tables of the mesh
        self._sql = sql
        self._params = _kept(sql, params)
        self._row_type: RowType[Any] = RowType.of(_short(sql), row)
        self._file = file
        self._reader = file.reader()
        self._reads: set[str] = set()
        self._last: list[tuple[Any, ...]] | None = None
        self._moment: _Moment | None = None
        self._ended = False

    def look(self) -> list[Any] | None:
        """The rows, None where they are what they were. UsageError where SQLite refuses the SELECT."""
        with self._reader.snapshot() as tx:
            moment = _moment(tx)
            if self._moment is not None and not self._may_differ(tx, self._moment, moment):
                self._moment = moment
                return None
            names, rows = self._run(tx)
            self.reads_others = not self._reads <= _mesh_tables(tx).keys()
            self._moment = moment
        if self._last is not None and _alike(self._last, rows):
            return None
        self._last = rows
        return [self._as_row(names, values) for values in rows]

    def interrupt(self) -> None:
        """Nobody wants the result any more."""
        self._ended = True
        self._reader.interrupt()

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()

    def _may_differ(self, tx: Tx, before: _Moment, now: _Moment) -> bool:
        if self.reads_others or before.schema != now.schema:
            return before != now
        if before.change == now.change:
            return False
        tables = _mesh_tables(tx)
        numbers = [tables[name] for name in self._reads if name in tables]
        marks = ", ".join("?" * len(numbers))
        newest = tx.execute(
            f"SELECT max(seq) FROM meshnode_changes WHERE seq > ? AND table_no IN ({marks})",  # noqa: S608
            (before.change, *numbers),
        ).fetchone()[0]
        return newest is not None or queries.oldest_change(tx) > before.change + 1

    def _run(self, tx: Tx) -> tuple[list[str], list[tuple[Any, ...]]]:
        self._reads.clear()
        try:
            cursor = self._reader.select(tx, self._sql, self._params, self._reads)
            if cursor.description is None:
                raise UsageError(f"{short_sql(self._sql)} is no SELECT")
            names = [column[0] for column in cursor.description]
            rows: list[tuple[Any, ...]] = []
            while not self._ended and (chunk := cursor.fetchmany(_CHUNK)):
                rows += [tuple(map(presentable, values)) for values in chunk]
                if len(rows) > LIVE_ROWS:
                    raise UsageError(f"{short_sql(self._sql)} has more than {LIVE_ROWS} rows: give it a LIMIT")
        except (self._file.sqlite.Error, self._file.sqlite.Warning) as error:
            if self._ended:
                raise
            what = "only a SELECT can be run here" if "not authorized" in str(error) else str(error)
            raise UsageError(f"{short_sql(self._sql)}: {what}") from error
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise UsageError(f"{short_sql(self._sql)} has several columns {min(twice)!r}: name them apart by AS")
        return names, rows

    def _as_row(self, names: Sequence[str], values: Sequence[Any]) -> Any:
        return self._row_type.row(RowView(key={}, columns=dict(zip(names, values, strict=True))))


def _kept(sql: str, params: Params) -> Any:
    if not isinstance(sql, str):
        raise UsageError(f"a query is the text of a SELECT, not {sql!r}")
    try:
        if isinstance(params, Mapping):
            return {name: kept(value) for name, value in params.items()}
        if isinstance(params, str | bytes) or not isinstance(params, Sequence):
            raise UsageError(f"the parameters of {short_sql(sql)} are a list of them, or a mapping of their names")
        return tuple(map(kept, params))
    except ValueError as error:
        raise UsageError(f"a parameter of {short_sql(sql)}: {error}") from error


def _moment(tx: Tx) -> _Moment:
    commits = tx.execute("PRAGMA data_version").fetchone()[0]
    schema = tx.execute("PRAGMA schema_version").fetchone()[0]
    return _Moment(commits, schema, queries.last_change(tx))


def _mesh_tables(tx: Tx) -> dict[str, int]:
    """The registered tables as SQL names them, and their numbers."""
    found = TableNumbers().registered(tx)
    return {each.text: each.no for each in found if each.no is not None}


def _alike(before: list[tuple[Any, ...]], now: list[tuple[Any, ...]]) -> bool:
    """A piece at a time: one comparison of all of them would keep every other thread waiting."""
    starts = range(0, len(now), _CHUNK)
    return len(before) == len(now) and all(before[at : at + _CHUNK] == now[at : at + _CHUNK] for at in starts)


def short_sql(sql: str) -> str:
    """A query as a message has it."""
    return repr(_short(sql))


def _short(sql: str) -> str:
    text = " ".join(sql.split())
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"

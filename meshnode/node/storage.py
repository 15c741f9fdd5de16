"""The node's database behind two threads: one writes, one reads; nothing on the event loop waits for the disk."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import closing, suppress
from typing import TYPE_CHECKING, TypeVar

from meshnode.engine.environment import Environment
from meshnode.errors import ClosedError, MeshError, StoreError, UsageError
from meshnode.model.logevent import LogEvent, log_event
from meshnode.model.site import SiteKey, short_text
from meshnode.node.bell import Bell
from meshnode.node.databases import DatabaseFile
from meshnode.node.meter import Meter
from meshnode.node.noticelog import NoticeLog
from meshnode.store.database import Tx
from meshnode.store.notices import Notice
from meshnode.store.schema import check_readable
from meshnode.store.writer import OWN, Writer, writer_executor

if TYPE_CHECKING:
    from meshnode.engine.engine import Engine
    from meshnode.engine.verify import Checked
    from meshnode.node.verifiers import Door, Verifiers

T = TypeVar("T")

LEFT = "this node was left: open its home again to go on"

logger = logging.getLogger("meshnode.storage")


def wall_ms() -> int:
    """The wall clock in milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


def environment(file: DatabaseFile) -> Environment:
    """The world outside, as a node in production sees it."""
    return Environment(wall_ms=wall_ms, random_bytes=secrets.token_bytes, sqlite=file.sqlite)


def _verifiers() -> Verifiers:
    from meshnode.node.verifiers import Verifiers  # of no use to who only reads

    return Verifiers()


class Storage:
    """Reads on one thread, writes on another; `changed` rings after every write."""

    def __init__(self, file: DatabaseFile, engine: Engine | None, meter: Meter | None = None) -> None:
        self.file = file
        self.meter = meter or Meter(time.monotonic)
        self.changed = Bell()
        self._closing = False
        self._following = False  # rows are being brought up to a changed schema or membership
        self._notices = NoticeLog(time.monotonic)
        self._engine = engine
        self._reader = file.reader(immutable=engine is None and file.stands_alone)
        self._readers: Executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="meshnode-reader")
        self._verifiers = _verifiers() if engine is not None else None
        self._writer: Writer | None = Writer(writer_executor()) if engine is not None else None

    @classmethod
    def open(cls, file: DatabaseFile, key: SiteKey | None) -> Storage:
        """The database of a node; without a site key it is only read. StoreError where it cannot be used."""
        if not file.path.exists():
            raise StoreError(
                f"the database {file.path} is missing: restore it from a backup, set `database` of config.toml back "
                "where that names another place, or join again in a new home"
            )
        if key is None:
            storage = cls(file, None)
            try:
                with storage._reader.snapshot() as tx:
                    check_readable(tx)
            except BaseException:
                storage._close()
                raise
            return storage
        from meshnode.engine.engine import Engine  # of no use to who only reads

        meter = Meter(time.monotonic)
        return cls(file, Engine.open(file.writer(meter.timing), environment(file), key), meter)

    @property
    def engine(self) -> Engine:
        """What writes; UsageError where this storage only reads."""
        if self._engine is None:
            raise UsageError("the node was opened for reading only")
        return self._engine

    async def read(self, query: Callable[[Tx], T]) -> T:
        """Run one query over one snapshot."""

        def run() -> tuple[T, int]:
            with self._reader.snapshot() as tx:
                return query(tx), tx.execute("PRAGMA schema_version").fetchone()[0]

        self.meter.reads += 1
        try:
            result, version = await asyncio.wrap_future(_submitted(lambda: self._readers.submit(run)))
        finally:
            self.meter.reads -= 1
        if self._engine is not None and self._writer is not None:
            self._follow_schema(self._engine, self._writer, version)
        return result

    def last_change(self) -> int | None:
        """The end of the change sequence; None where another process writes it, so that only a look can tell."""
        return None if self._engine is None else self._engine.context.last_change

    async def read_apart(self, query: Callable[[Tx], T]) -> T:
        """Run one long query over one snapshot, on a thread and a connection of its own."""
        if self._closing:
            raise ClosedError(LEFT)

        def run() -> T:
            with closing(self.file.reader()) as reader, reader.snapshot() as tx:
                return query(tx)

        return await asyncio.to_thread(run)

    def verify(self, events: Sequence[bytes], door: Door) -> Future[Sequence[Checked]]:
        """The door's first step for one batch, which needs no database."""
        verifiers = self._verifiers
        assert verifiers is not None
        return _submitted(lambda: verifiers.verify(events, door))

    async def write(self, job: Callable[[Engine], T], lane: bytes | None = OWN) -> T:
        """Run one job on the writer thread; what it committed is on disk when this returns.

        `lane` is the site of the peer that it serves: peers take turns with each other and with this node's own work.
        """
        engine, writer, meter = self.engine, self._writer, self.meter
        assert writer is not None
        asked = meter.now()

        def run() -> tuple[T, list[Notice]]:
            begun = meter.now()
            meter.waits.observe(begun - asked)
            result = job(engine)
            self._measure(engine, lane, meter.now() - begun)
            surfaced = engine.context.take_surfaced()
            meter.surfaced(surfaced)
            return result, surfaced

        # A cancelled caller does not stop a job that runs: the database decides, and the bell rings all the same.
        result, surfaced = await asyncio.shield(asyncio.wrap_future(_submitted(lambda: writer.submit(run, lane))))
        self._follow_schema(engine, writer)
        self._notices.tell(surfaced)
        self.changed.ring()
        return result

    def _measure(self, engine: Engine, lane: bytes | None, seconds: float) -> None:
        judged = engine.context.take_judged()
        self.meter.judged(judged, seconds)
        if judged:
            name = "own" if lane is OWN else short_text(lane)
            log_event(
                logger, logging.DEBUG, LogEvent.BATCH_COMMITTED, lane=name, events=judged.total(), seconds=seconds
            )

    def jobs_waiting(self) -> tuple[int, int]:
        """How many writing jobs of this node wait for their turn, and how many of all peers together."""
        return (0, 0) if self._writer is None else self._writer.waiting()

    def _follow_schema(self, engine: Engine, writer: Writer, version: int | None = None) -> None:
        """Where the schema or the membership changed, bring the rows up to it, one step between the other jobs.

        `version` is the number of the schema that a reader saw: the writer looks by itself only when it has work.
        """
        noticed = version is not None and version != engine.context.schema_version
        if self._following or not (noticed or engine.context.is_behind):
            return
        self._following = True
        loop = asyncio.get_running_loop()

        def run() -> None:
            if self._closing:
                return  # the next start goes on
            more, moved = False, True
            try:
                more = engine.follow_schema()
            except MeshError as error:
                moved = False
                work = "bringing rows up to a changed schema or membership"
                log_event(logger, logging.WARNING, LogEvent.WORK_WAITS, work=work, reason=str(error))
            with suppress(RuntimeError):  # the node was left meanwhile
                if more:
                    writer.submit(run)
                loop.call_soon_threadsafe(self._followed, more, moved)

        with suppress(RuntimeError):
            writer.submit(run)

    def _followed(self, more: bool, moved: bool) -> None:
        self._following = more
        if moved:
            self.changed.ring()

    async def close(self) -> None:
        """Finish what is queued and close both connections."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._closing = True
        self._readers.shutdown()
        if self._verifiers is not None:
            self._verifiers.close()
        self._reader.close()
        if self._writer is not None and self._engine is not None:
            self._writer.shutdown()
            self._engine.close()


def _submitted(submit: Callable[[], Future[T]]) -> Future[T]:
    try:
        return submit()
    except RuntimeError as error:  # what an executor says after its shutdown
        raise ClosedError(LEFT) from error

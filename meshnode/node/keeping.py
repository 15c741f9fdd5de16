"""What a node keeps of its past, driven from the event loop: sweeps a step at a time, so that other work goes on.

And what it does by itself, at its start and for as long as it runs: it finishes what an earlier run did not.
"""

from __future__ import annotations

import asyncio
import logging

from meshnode.engine import retention
from meshnode.engine.engine import Engine
from meshnode.engine.forget import go_on_erasing
from meshnode.engine.sweep import Sweep
from meshnode.errors import MeshError
from meshnode.limits import ERASURE_AGAIN_S, ERASURE_WAIT_MS, SCHEMA_LOOK_S
from meshnode.model.hlc import Hlc
from meshnode.model.logevent import LogEvent, log_event
from meshnode.node import reading
from meshnode.node.storage import Storage
from meshnode.node.views import RetentionReport, parse_table, table_text
from meshnode.store.traces import EMPTY_WAL, erasure_due

LOG = logging.getLogger("meshnode.node")


async def keep_house(storage: Storage) -> None:
    """Until it is cancelled.

    Every read notices a schema that the application changed; while nothing else happens, the one here does.
    """
    loop = asyncio.get_running_loop()
    await finish_erasure(storage)
    await finish_evictions(storage)
    again = loop.time()
    while True:
        await asyncio.sleep(SCHEMA_LOOK_S)
        try:
            due = await storage.read(erasure_due)
        except MeshError as error:
            _waits("reading the database", error)
            continue
        if due is not None and (due == EMPTY_WAL or loop.time() >= again):
            await finish_erasure(storage)
            again = loop.time() + ERASURE_AGAIN_S


async def finish_erasure(storage: Storage) -> None:
    """Remove from the files what a forgetting that was cut short, or had a reader in its way, left there."""
    try:
        if await storage.read(erasure_due) is not None:
            await storage.write(lambda engine: go_on_erasing(engine.context, ERASURE_WAIT_MS))
    except MeshError as error:
        _waits("removing the traces of a forgotten row", error)


async def evict(storage: Storage, table: str, before_ms: int, *, everything: bool) -> RetentionReport:
    """Set a table's horizon and reclaim what is below it."""
    schema, name = parse_table(table)
    horizon = Hlc(before_ms, 0)
    sweep = await storage.write(
        lambda engine: retention.evict(engine.context, schema, name, horizon, everything=everything)
    )
    await _reclaim(storage, schema, name, sweep)
    return RetentionReport(
        tables=[table_text(schema, name)], events=sweep.events, bytes=sweep.bytes, horizon=(before_ms, 0)
    )


async def finish_evictions(storage: Storage) -> None:
    """Go on with the evictions that an earlier run of the node did not bring to their end."""
    try:
        for entry, sweep in await storage.write(lambda engine: retention.pending(engine.context)):
            await _reclaim(storage, entry.schema, entry.name, sweep)
    except MeshError as error:
        _waits("evicting, until the next start", error)


async def compact(storage: Storage, table: str | None) -> RetentionReport:
    """Take out of one table's log, or of every one's, what no row can need any more."""
    names = await storage.read(reading.table_names) if table is None else [parse_table(table)]
    events = size = 0
    for schema, name in names:
        sweep = await storage.write(
            lambda engine, schema=schema, name=name: retention.compaction(engine.context, schema, name)  # type: ignore[misc]
        )
        await _run(storage, sweep)
        events, size = events + sweep.events, size + sweep.bytes
    return RetentionReport(tables=[table_text(*each) for each in names], events=events, bytes=size)


async def _reclaim(storage: Storage, schema: str, name: str, sweep: Sweep) -> None:
    await _run(storage, sweep)
    await storage.write(lambda engine: retention.evicted(engine.context, schema, name))


async def _run(storage: Storage, sweep: Sweep) -> None:
    def step(_engine: Engine) -> bool:
        return sweep.step()

    try:
        while await storage.write(step):
            pass
    finally:
        await storage.write(lambda _engine: sweep.finish())


def _waits(work: str, error: MeshError) -> None:
    log_event(LOG, logging.WARNING, LogEvent.WORK_WAITS, work=work, reason=str(error))

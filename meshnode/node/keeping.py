"""What a node keeps of its past, driven from the event loop: sweeps a step at a time, so that other work goes on."""

from __future__ import annotations

from meshnode.engine import retention
from meshnode.engine.engine import Engine
from meshnode.engine.sweep import Sweep
from meshnode.model.hlc import Hlc
from meshnode.node import reading
from meshnode.node.storage import Storage
from meshnode.node.views import RetentionReport, parse_table, table_text


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
    for entry, sweep in await storage.write(lambda engine: retention.pending(engine.context)):
        await _reclaim(storage, entry.schema, entry.name, sweep)


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

"""The apply rate: foreign events through the engine's one door, in batches, on disk before any could be acknowledged.

The next batch is verified while this one is committed, by what a running node does it with. The raw rate of
the same signatures on one core is taken in turn with it, so that a busy moment of the machine strikes both.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from meshnode.bench.ceilings import verifying
from meshnode.bench.durability import fsyncs, wal_sequence
from meshnode.bench.figures import Apply
from meshnode.bench.homes import founded, new_author
from meshnode.bench.workload import batches, signed
from meshnode.engine.commit import commit_events
from meshnode.engine.engine import Engine
from meshnode.limits import BATCH_EVENTS
from meshnode.model.scope import Scope
from meshnode.node.databases import database_of
from meshnode.node.local import open_local
from meshnode.node.meter import Meter
from meshnode.node.storage import environment, wall_ms
from meshnode.node.verifiers import Door, Verifiers

TURN_EVENTS = 20 * BATCH_EVENTS  # that are verified raw, then applied


async def apply(folder: Path, seconds: float, most: int) -> Apply:
    """For so many seconds of applying, or until `most` events are applied."""
    home, author = await founded(folder), new_author()
    async with open_local(home, writing=True) as node:
        await node.vouch(author.public_key.hex(), name="author")
    key, meter = home.site_key(), Meter(time.monotonic)
    file = database_of(home, key)
    children_s = _children_cpu_s()
    with (
        closing(Engine.open(file.writer(meter.timing), environment(file), key)) as engine,
        closing(Verifiers()) as ahead,
    ):
        mesh_id, commits = engine.context.mesh_id, meter.commits.read()[0][-1]
        sequence = wal_sequence(home.database_path)
        done, applying_s, verifying_s, cpu_s = 0, 0.0, 0.0, 0.0
        now_ms = wall_ms()
        while applying_s < seconds and done < most:
            data = signed(author, mesh_id, done, min(TURN_EVENTS, most - done), now_ms)
            verifying_s += _verify_all(data, mesh_id, author.public_key)
            cpu, begun = time.process_time(), time.perf_counter()
            _apply(engine, author.site, data, ahead)
            applying_s, cpu_s = applying_s + time.perf_counter() - begun, cpu_s + time.process_time() - cpu
            done += len(data)
        synced = fsyncs(meter.commits.read()[0][-1] - commits, sequence, wal_sequence(home.database_path))
    cpu_s += _children_cpu_s() - children_s
    return Apply(
        per_s=done / applying_s,
        verify_per_s=done / verifying_s,
        fsyncs_per_1000=synced / done * 1000,
        cpu_us_per_event=cpu_s / done * 1e6,
    )


def _children_cpu_s() -> float:
    """Seconds of processor of the processes that were started here and ended."""
    used = os.times()
    return used.children_user + used.children_system


def _verify_all(data: Sequence[bytes], mesh_id: bytes, public_key: bytes) -> float:
    """Seconds that one core takes for these signatures alone."""
    verify = verifying(data, mesh_id, public_key)
    begun = time.perf_counter()
    for number in range(len(data)):
        verify(number)
    return time.perf_counter() - begun


def _apply(engine: Engine, author: bytes, data: Sequence[bytes], ahead: Verifiers) -> None:
    context, snapshot = engine.context, engine.context.snapshot
    assert snapshot is not None
    door = Door(snapshot.mesh_id, snapshot.membership, snapshot.generation)
    waiting = [ahead.verify(batch, door) for batch in batches(data, BATCH_EVENTS)]
    for each in waiting:
        checked = each.result()
        context.transact(
            lambda tx, checked=checked: commit_events(  # type: ignore[misc]
                context, tx, checked, author_stream=True, scope=Scope(), peer=author
            )
        )

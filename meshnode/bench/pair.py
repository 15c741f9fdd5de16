"""Two node processes: how soon a start shows a row, how fast one catches up, how late a live write is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final, cast

from meshnode.bench.durability import fsyncs, wal_sequence
from meshnode.bench.figures import CatchUp, Live, Start, Window, over, percentile
from meshnode.bench.homes import database_bytes, event_bytes, founded, joined, log_end, looking_at
from meshnode.bench.nodes import LOOPBACK, PATIENCE_S, NodeProcess, free_port, patience
from meshnode.bench.process import cpu_s
from meshnode.bench.workload import TABLE, TRANSACTION_ROWS, values, write_rows
from meshnode.errors import StoreError
from meshnode.node.views import ChangeView

SAMPLE_S: Final = 0.01  # between two looks at how far a catch-up is
STALL_S: Final = 30.0  # without a single event until a catch-up has failed
SIZES: Final = (1, 2, 5)  # and these by powers of ten: where a curve has points
FIRST_SIZE: Final = 1_000
WINDOW_EVENTS: Final = 5_000  # at least, or half of a smaller size

Sample = tuple[float, int]
"""Seconds from the link on, and the events that are there."""


@dataclass(slots=True)
class Pair:
    """`a` runs and wrote the table; `b` is a member that dials it, and does not run until it is started."""

    a: NodeProcess
    b: NodeProcess
    written: int = 0  # changes of the workload at `a`


@asynccontextmanager
async def pair(folder: Path) -> AsyncIterator[Pair]:
    """Homes and processes for one round."""
    ports = free_port(), free_port()
    home = await founded(folder / "a")
    (other,) = await joined(home, [folder / "b"], f"{LOOPBACK}:{ports[0]}")
    async with NodeProcess(home, ports[0]) as a:
        b = NodeProcess(other, ports[1], (ports[0],))
        try:
            yield Pair(a, b)
        finally:
            await b.stop()


async def start(both: Pair) -> Start:
    """Start `b` after a row was written at `a`."""
    await both.b.stop()
    key = f"start-{both.written}-{time.time_ns()}"
    await both.a.client.put(TABLE, {"id": key}, values(0))
    await both.b.start()
    up = time.perf_counter()
    seen = await both.b.has(f"SELECT 1 FROM {TABLE} WHERE id = ?", key)  # noqa: S608  # our own name
    return Start(to_up_s=up - both.b.started, to_first_row_s=seen - both.b.started)


async def catch_up(both: Pair, events: int, load_s: float) -> tuple[CatchUp, tuple[Window, ...]]:
    """Cut `b` off, write at `a` for so long or so many events, let `b` catch up; `b` runs, and has all before."""
    a, b = both.a, both.b
    await b.linked(1)
    await a.client.wait(timeout_s=PATIENCE_S)
    await b.client.set_online(False)
    with looking_at(a.home.database_path) as source, looking_at(b.home.database_path) as target:
        before, have = log_end(source), log_end(target)
        await _load(both, events, load_s)
        wanted, size = log_end(source) - before, event_bytes(source)
        used, commits = (cpu_s(a.pid), cpu_s(b.pid)), await b.commits()
        sequence, bytes_before = wal_sequence(b.home.database_path), database_bytes(target)
        await b.client.set_online(True)
        await b.linked(1)
        samples = await _sampled(lambda: log_end(target) - have, wanted)
        used = cpu_s(a.pid) - used[0], cpu_s(b.pid) - used[1]
        await a.client.wait(timeout_s=PATIENCE_S)
        synced = fsyncs(await b.commits() - commits, sequence, wal_sequence(b.home.database_path))
        grown = database_bytes(target) - bytes_before
    seconds, done = samples[-1]
    found = CatchUp(
        events=done,
        seconds=seconds,
        per_s=over(done, seconds),
        mb_per_s=over(done * size / 1e6, seconds),
        sender_cpu_s=used[0],
        receiver_cpu_s=used[1],
        sender_peak_mb=a.peak_mb(),
        receiver_peak_mb=b.peak_mb(),
        receiver_fsyncs_per_1000=synced / done * 1000,
        database_bytes_per_event=grown / done,
        event_bytes=size,
    )
    return found, windows(samples)


async def live(both: Pair, writes: int) -> Live:
    """Each write is seen by who follows the changes of `b` before the next one is made."""
    a, b = both.a.client, both.b.client
    await both.b.linked(1)
    taken: list[float] = []
    changes = cast("AsyncGenerator[ChangeView, None]", b.changes())
    waiting = asyncio.ensure_future(anext(changes))
    try:
        while not waiting.done():  # until the subscription stands
            await a.put(TABLE, {"id": "warm-up"}, values(0))
            await asyncio.wait({waiting}, timeout=0.1)
        await a.wait(timeout_s=PATIENCE_S)
        async with patience(PATIENCE_S + writes, f"not all of {writes} writes were seen at the other node"):
            for number in range(writes):
                key = {"id": f"live-{number}"}
                begun = time.perf_counter()
                await a.put(TABLE, key, values(number))
                while (await waiting).key != key:
                    waiting = asyncio.ensure_future(anext(changes))
                taken.append((time.perf_counter() - begun) * 1000)
    finally:
        waiting.cancel()
        await asyncio.wait({waiting})
        await changes.aclose()
    return Live(writes=writes, median_ms=median(taken), p99_ms=percentile(taken, 0.99), max_ms=max(taken))


def windows(samples: Sequence[Sample]) -> tuple[Window, ...]:
    """How fast the events before each size came; the last size is all there were."""
    total = samples[-1][1]
    sizes = [FIRST_SIZE * factor * 10**power for power in range(4) for factor in SIZES]
    found = []
    for size in [*(each for each in sizes if each < total), total]:
        from_events = size - min(max(size // 10, WINDOW_EVENTS), size // 2)
        begun, ended = _reached(samples, from_events), _reached(samples, size)
        if ended[0] > begun[0]:
            found.append(Window(events=size, per_s=(ended[1] - begun[1]) / (ended[0] - begun[0])))
    return tuple(found)


def _reached(samples: Sequence[Sample], events: int) -> Sample:
    return next((each for each in samples if each[1] >= events), samples[-1])


async def _load(both: Pair, events: int, load_s: float) -> None:
    end = time.perf_counter() + load_s
    for first in range(0, events, TRANSACTION_ROWS):
        count = min(TRANSACTION_ROWS, events - first)
        await write_rows(both.a.client, both.written, count)
        both.written += count
        if time.perf_counter() > end:
            return


async def _sampled(count: Callable[[], int], wanted: int) -> list[Sample]:
    """How many there are, again and again, until all are. StoreError where nothing comes for STALL_S."""
    begun = moved = time.perf_counter()
    samples: list[Sample] = [(0.0, 0)]
    while (done := samples[-1][1]) < wanted:
        await asyncio.sleep(SAMPLE_S)
        now, there = time.perf_counter(), count()
        if there > done:
            samples.append((now - begun, there))
            moved = now
        elif now - moved > STALL_S:
            raise StoreError(f"the catch-up stood still at {done} of {wanted} events: see `meshnode doctor`")
    return samples

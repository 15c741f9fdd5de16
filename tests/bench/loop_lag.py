"""How long an embedded node keeps its program's event loop, while 100,000 events come in. A measurement, not a test:

python tests/bench/loop_lag.py [--rows 100000] [--quiet] [--no-freeze] [--slow 5] [--switch 5]

The node runs on the program's own loop, and the program calls every method of the API meanwhile. `late` is by how much
a sleep of a millisecond was late: what a window or a request would feel, waiting for the interpreter's lock included,
and on a busy machine for a core. `busy` is the processor time of single callbacks: what of it is this program's doing.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
import tempfile
import time
from asyncio import events
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.nodes import COLUMNS, KEY, PATIENCE_S, TABLE, Process, free_port, loopback, note, pair_of_homes

from meshnode import Home, MeshError, Node, Where
from meshnode.node.local import open_local

BOUND_MS = 20.0  # what no call may exceed
TICK_S = 0.001
ROWS_AT_ONCE = 5000  # of what the other node holds, in one transaction


@dataclass
class Row:
    """A row of the table."""

    id: str
    title: str | None = None
    done: int | None = None


@dataclass(slots=True)
class Lag:
    """What was seen of the loop."""

    late_ms: list[float] = field(default_factory=list)
    busy_ms: list[float] = field(default_factory=list)
    slow: Counter[str] = field(default_factory=Counter)  # callbacks of more than the bound given
    gc_ms: list[float] = field(default_factory=list)  # of full collections, which hold the interpreter's lock
    calls: Counter[str] = field(default_factory=Counter)  # of the API


def watch_callbacks(lag: Lag, slow_ms: float) -> None:
    """Take the processor time of each callback of every loop of this process."""
    run = events.Handle._run

    def timed(handle: Any) -> Any:
        begun = time.thread_time()
        try:
            return run(handle)
        finally:
            took = (time.thread_time() - begun) * 1000
            if took >= 1:
                lag.busy_ms.append(took)
            if took >= slow_ms:
                lag.slow[f"{took // slow_ms * slow_ms:4.0f} ms {_named(handle)}"] += 1

    events.Handle._run = timed  # type: ignore[method-assign]


def watch_collections(lag: Lag) -> None:
    """Take how long each full garbage collection holds every thread up."""
    begun = [0.0]

    def told(phase: str, info: dict[str, int]) -> None:
        if info["generation"] == 2:
            if phase == "start":
                begun[0] = time.perf_counter()
            else:
                lag.gc_ms.append((time.perf_counter() - begun[0]) * 1000)

    gc.callbacks.append(told)


def _named(handle: Any) -> str:
    callback = handle._callback
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        coroutine = task.get_coro()
        return f"task {getattr(coroutine, '__qualname__', coroutine)}"
    return getattr(callback, "__qualname__", repr(callback))


def stolen_s() -> float:
    """Seconds of the cores that the host of a virtual machine gave to others, on Linux: what is late then is its."""
    try:
        return int(Path("/proc/stat").read_text().split(maxsplit=9)[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


async def sample(lag: Lag) -> None:
    """How late a timer is."""
    while True:
        begun = time.perf_counter()
        await asyncio.sleep(TICK_S)
        lag.late_ms.append((time.perf_counter() - begun - TICK_S) * 1000)


def calls_of(node: Node) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Every method that a program may call at any time, and what it is called with."""
    rows, mine = node.table(TABLE, Row), node.table("mine", Row)
    return {
        "status": node.status,
        "peers": node.peers,
        "members": node.members,
        "tables": node.tables,
        "policy": node.policy,
        "config": node.config,
        "metrics": node.metrics,
        "sync_state": node.sync_state,
        "frontier": node.frontier,
        "notices": node.notices,
        "conflicts": node.conflicts,
        "events": node.events,
        "rows": lambda: node.rows(TABLE),
        "get": lambda: node.get(TABLE, {"id": "n000001"}),
        "explain": lambda: node.explain(TABLE, {"id": "n000001"}),
        "put": lambda: node.put("mine", {"id": "x"}, {"title": "y"}),
        "table.upsert": lambda: mine.upsert(*(Row(f"r{number}", str(time.time())) for number in range(500))),
        "table.get": lambda: rows.get("n000001"),
        "table.rows": lambda: _some(rows.rows(), 3000),
        "table.rows(where)": lambda: _some(rows.rows(Where("done = 1")), 1000),
        "table.changes": lambda: _some(rows.changes(since=0), 1000),
        "live": lambda: _some(node.live(f"SELECT * FROM {TABLE} LIMIT 5000"), 1),
        "invite": node.invite,
        "wait": lambda: node.wait(timeout_s=0.01),
    }


async def _some(items: AsyncIterator[Any], most: int) -> None:
    count = 0
    async for _ in items:
        count += 1
        if count >= most:
            break
    with suppress(AttributeError):
        await items.aclose()  # type: ignore[attr-defined]


async def call_everything(node: Node, lag: Lag) -> None:
    """One after the other, and again."""
    while True:
        for name, call in calls_of(node).items():
            with suppress(MeshError):
                await call()
            lag.calls[name] += 1


async def measure(folder: Path, rows: int, lag: Lag, *, quiet: bool, freeze: bool) -> float:
    """One bootstrap; returns how long it took."""
    ports = free_port(), free_port()
    homes = await pair_of_homes(folder, ports)
    async with open_local(Home.load(homes[0]), writing=True) as source:
        for start in range(0, rows, ROWS_AT_ONCE):
            await source.import_rows(TABLE, [note(start + number) for number in range(min(ROWS_AT_ONCE, rows - start))])
    async with Process.on_loopback(homes[0], ports[0], afresh=True):
        lag.late_ms.clear()
        lag.busy_ms.clear()
        lag.slow.clear()
        lag.gc_ms.clear()
        watching = [asyncio.create_task(sample(lag))]
        begun = time.perf_counter()
        config = loopback(ports[0], port=ports[1], name="b")
        async with Node(homes[1], config=config, freeze=freeze) as node:
            await node.add_table("mine", KEY, COLUMNS)
            if not quiet:
                watching.append(asyncio.create_task(call_everything(node, lag)))
            async with asyncio.timeout(20 * PATIENCE_S):
                while (await node.status()).events < rows:  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
            took = time.perf_counter() - begun
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
    return took


def shown(name: str, values: list[float]) -> str:
    """Where some milliseconds lie."""
    ordered = sorted(values) or [0.0]
    at = {share: ordered[min(int(len(ordered) * share), len(ordered) - 1)] for share in (0.5, 0.99, 0.999)}
    over = sum(value > BOUND_MS for value in ordered)
    return (
        f"{name}: median {at[0.5]:.1f}, 99 % {at[0.99]:.1f}, 99.9 % {at[0.999]:.1f}, at most {ordered[-1]:.1f} ms;"
        f" {over} of {len(values)} over {BOUND_MS:.0f} ms"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--quiet", action="store_true", help="call nothing meanwhile")
    parser.add_argument("--no-freeze", action="store_true", help="leave the garbage collector alone")
    parser.add_argument("--slow", type=float, default=5.0, help="name callbacks that take this many milliseconds")
    parser.add_argument("--switch", type=float, default=5.0, help="milliseconds between two switches of threads")
    options = parser.parse_args()
    sys.setswitchinterval(options.switch / 1000)
    lag = Lag()
    watch_callbacks(lag, options.slow)
    watch_collections(lag)
    stolen = stolen_s()
    with tempfile.TemporaryDirectory() as folder:
        took = asyncio.run(measure(Path(folder), options.rows, lag, quiet=options.quiet, freeze=not options.no_freeze))
    print(f"{options.rows} events in {took:.1f} s; {lag.calls.total()} calls; {stolen_s() - stolen:.2f} s stolen")
    print(shown("late", lag.late_ms))
    print(shown("busy", lag.busy_ms), "(of callbacks that take 1 ms)")
    print(shown("full garbage collections", lag.gc_ms))
    for name, count in lag.slow.most_common(25):
        print(f"  {count:5} x {name}")


if __name__ == "__main__":
    main()

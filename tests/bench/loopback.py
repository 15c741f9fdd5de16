"""How fast two node processes on loopback are: bulk load, catching up, and single writes. A measurement, not a test:

    python tests/bench/loopback.py [--rows 10000] [--writes 200] [--json]

Rows count when they are visible at the receiver, which is after they were verified and are on disk there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.nodes import TABLE, Process, free_port, note, pair_of_homes

from meshnode.node.api import ROWS_PER_IMPORT
from meshnode.node.views import ChangeView


async def _load(a: Process, first: int, rows: int) -> None:
    for start in range(first, first + rows, ROWS_PER_IMPORT):
        batch = range(start, min(start + ROWS_PER_IMPORT, first + rows))
        await a.client.import_rows(TABLE, [note(number) for number in batch])


async def _arrived(b: Process, rows: int) -> None:
    """Until B has this many rows: the store is asked, as following every change would load the machine too.

    By its events, one a row: rows are counted up to a bound.
    """
    while (await b.client.status()).events < rows:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


def _cpu_s(node: Process) -> float:
    """Seconds of processor that a node has used, on Linux: on a busy machine they say more than the clock."""
    fields = Path(f"/proc/{node.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _bulk(a: Process, b: Process, rows: int) -> dict[str, float]:
    """Both nodes run and are linked."""
    assert (await a.client.wait(timeout_s=60)).complete
    used = _cpu_s(a), _cpu_s(b)
    begun = time.perf_counter()
    await _load(a, 0, rows)
    written = time.perf_counter() - begun
    await _arrived(b, rows)
    seconds = time.perf_counter() - begun
    cpu = {f"cpu_{name}_s": _cpu_s(node) - before for name, node, before in zip("ab", (a, b), used, strict=True)}
    return {"written_s": written, "arrived_s": seconds, "events_per_s": rows / seconds, **cpu}


async def _catch_up(a: Process, b: Process, rows: int) -> dict[str, float]:
    """B is cut off while A writes; the time is that from the link on."""
    await b.client.set_online(False)
    await _load(a, rows, rows)
    await b.client.set_online(True)
    while not (await b.client.peers())[0].linked:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    begun = time.perf_counter()
    before = (await b.client.status()).events
    await _arrived(b, 2 * rows)
    seconds = time.perf_counter() - begun
    return {"seconds": seconds, "events_per_s": (2 * rows - before) / seconds}


async def _live(a: Process, b: Process, writes: int) -> dict[str, float]:
    """From the call that writes one row at A to its change at a subscriber of B; the next one after that."""
    assert (await a.client.wait(timeout_s=60)).complete
    changes: AsyncIterator[ChangeView] = b.client.changes()
    waiting = asyncio.ensure_future(anext(changes))
    seen: list[float] = []
    await a.client.put(TABLE, {"id": "warm up"}, {})  # until the subscription stands
    while not waiting.done():
        await asyncio.wait({waiting}, timeout=0.1)
        await a.client.put(TABLE, {"id": "warm up"}, {})
    assert (await a.client.wait(timeout_s=60)).complete
    for number in range(writes):
        begun = time.perf_counter()
        await a.client.put(TABLE, {"id": f"live{number}"}, {"title": "one row"})
        while (await waiting).key != {"id": f"live{number}"}:
            waiting = asyncio.ensure_future(anext(changes))
        seen.append((time.perf_counter() - begun) * 1000)
    await changes.aclose()  # type: ignore[attr-defined]
    seen.sort()
    return {"median_ms": statistics.median(seen), "p99_ms": seen[int(len(seen) * 0.99) - 1], "max_ms": seen[-1]}


async def measure(folder: Path, rows: int, writes: int) -> dict[str, dict[str, float]]:
    """All three."""
    ports = free_port(), free_port()
    homes = await pair_of_homes(folder, ports)
    async with (
        Process.on_loopback(homes[0], ports[0], afresh=True) as a,
        Process.on_loopback(homes[1], ports[1], ports[0], afresh=True) as b,
    ):
        result = {"bulk": await _bulk(a, b, rows), "catch_up": await _catch_up(a, b, rows)}
        result["live"] = await _live(a, b, writes)
        assert (await a.client.wait(timeout_s=60)).complete
        assert await a.client.digest() == await b.client.digest()
        await b.stop()
        await a.stop()
    return result


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--writes", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(measure(Path(folder), options.rows, options.writes))
    if options.json:
        print(json.dumps(result))
        return
    for name, figures in result.items():
        print(f"{name:9}", "   ".join(f"{what} {value:,.1f}" for what, value in figures.items()))


if __name__ == "__main__":
    main()

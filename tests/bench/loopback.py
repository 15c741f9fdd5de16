"""How fast two node processes on loopback are: bulk load, catching up, and single writes. A measurement, not a test:

    python tests/bench/loopback.py [--rows 10000] [--writes 200] [--json]

Rows count when they are visible at the receiver, which is after they were verified and are on disk there. Catching up
and single writes are those of `meshnode bench`; bulk load is what goes out while it is being written.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path

import msgspec

from meshnode.bench.homes import log_end, looking_at
from meshnode.bench.nodes import PATIENCE_S
from meshnode.bench.pair import Pair, catch_up, live, pair
from meshnode.bench.process import cpu_s
from meshnode.bench.workload import write_rows


async def _bulk(both: Pair, rows: int) -> dict[str, float]:
    """Both nodes run and are linked."""
    a, b = both.a, both.b
    await b.linked(1)
    assert (await a.client.wait(timeout_s=PATIENCE_S)).complete
    used = cpu_s(a.pid), cpu_s(b.pid)
    with looking_at(b.home.database_path) as seen:
        before, begun = log_end(seen), time.perf_counter()
        await write_rows(a.client, both.written, rows)
        both.written += rows
        written = time.perf_counter() - begun
        while log_end(seen) - before < rows:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        seconds = time.perf_counter() - begun
    cpu = {"cpu_a_s": cpu_s(a.pid) - used[0], "cpu_b_s": cpu_s(b.pid) - used[1]}
    return {"written_s": written, "arrived_s": seconds, "events_per_s": rows / seconds, **cpu}


async def measure(folder: Path, rows: int, writes: int) -> dict[str, dict[str, float]]:
    """All three."""
    async with pair(folder) as both:
        await both.b.start()
        result = {"bulk": await _bulk(both, rows)}
        caught, _ = await catch_up(both, rows, float("inf"))
        result["catch_up"] = msgspec.structs.asdict(caught)
        result["live"] = msgspec.structs.asdict(await live(both, writes))
        assert (await both.a.client.wait(timeout_s=PATIENCE_S)).complete
        assert await both.a.client.digest() == await both.b.client.digest()
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

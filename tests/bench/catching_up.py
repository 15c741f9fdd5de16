"""How late a live write is while 100,000 events catch up between two processes on loopback. A measurement, not a test:

python tests/bench/catching_up.py [--rows 100000] [--runs 1] [--no-live]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.catching_up import CatchUp, catch_up
from support.nodes import PATIENCE_S, Process, free_port, pair_of_homes


async def measure(folder: Path, rows: int, *, live: bool) -> CatchUp:
    """One run, in fresh homes."""
    ports = free_port(), free_port()
    homes = await pair_of_homes(folder, ports)
    async with (
        Process.on_loopback(homes[0], ports[0], afresh=True) as a,
        Process.on_loopback(homes[1], ports[1], ports[0], afresh=True) as b,
    ):
        result = await catch_up(a, b, rows, live=live)
        assert (await a.client.wait(timeout_s=PATIENCE_S)).complete
        assert await a.client.digest() == await b.client.digest()
        await b.stop()
        await a.stop()
    return result


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--no-live", action="store_true", help="only the catch-up, for what it costs by itself")
    options = parser.parse_args()
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory() as folder:
            result = asyncio.run(measure(Path(folder), options.rows, live=not options.no_live))
        print(
            f"{result.events} events in {result.seconds:.1f} s, {result.events / result.seconds:,.0f} a second;"
            f" CPU {result.cpu_s[0]:.1f} and {result.cpu_s[1]:.1f} s;"
            f" at most {result.peak_bytes[0] / 1e6:.0f} and {result.peak_bytes[1] / 1e6:.0f} MB",
            flush=True,
        )
        if result.late_ms:
            print(
                f"  {len(result.late_ms)} live rows: median {result.late(0.5):.0f} ms, 95 % {result.late(0.95):.0f} ms,"
                f" at most {max(result.late_ms):.0f} ms",
                flush=True,
            )


if __name__ == "__main__":
    main()

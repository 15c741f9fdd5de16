"""Two processes, one catching up: what is written meanwhile does not wait for that, and neither needs much memory.

`MESHNODE_CASES=10` lets it be 100,000 events. Figures: `tests/bench/catching_up.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

from support.catching_up import catch_up
from support.nodes import PATIENCE_S, Process, free_port, pair_of_homes

ROWS = 10_000 * int(os.environ.get("MESHNODE_CASES", "1"))
PEAK_BYTES = 150 * 10**6
LATE_MS = 500  # of every second live row, on a machine that does other things too; alone it is a fifth of that


async def test_a_live_write_does_not_wait_behind_a_bootstrap(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    homes = await pair_of_homes(tmp_path, ports)
    async with (
        Process.on_loopback(homes[0], ports[0], afresh=True) as a,
        Process.on_loopback(homes[1], ports[1], ports[0], afresh=True) as b,
    ):
        result = await catch_up(a, b, ROWS)
        print(result)
        assert max(result.peak_bytes) < PEAK_BYTES
        assert len(result.late_ms) >= 5, "rows written while it caught up arrived while it did"
        assert result.late(0.5) < LATE_MS
        for node in (a, b):
            assert (await node.client.wait(timeout_s=PATIENCE_S)).complete
        assert await a.client.digest() == await b.client.digest()
        assert (await a.client.status()).events == (await b.client.status()).events
        await b.stop()
        await a.stop()

"""What a node costs that has peers and nothing to do; and what writing to several costs over writing to one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from meshnode.bench.crowd import Crowd, crowd
from meshnode.bench.figures import FanOut, Idle
from meshnode.bench.nodes import PATIENCE_S
from meshnode.bench.process import cpu_s, fine_cpu_s, memory_mb
from meshnode.bench.workload import write_rows

SETTLE_S: Final = 1.0  # until a new link has told all that it has to tell


async def idle(folder: Path, peers: int, seconds: float) -> Idle:
    """Watched for so long with one peer, then with all; the peers are in a process of their own."""
    async with crowd(folder, peers) as they:
        one = await _watched(they, 1, seconds)
        everybody = await _watched(they, peers, seconds)
    return Idle(
        peers=peers,
        one_cpu_percent=one[0],
        all_cpu_percent=everybody[0],
        one_memory_mb=one[1],
        all_memory_mb=everybody[1],
    )


async def fan_out(folder: Path, peers: int, events: int) -> FanOut:
    """CPU of the author, in transactions of 500, from the first write until all who are there acknowledged the last."""
    async with crowd(folder, peers) as they:
        one = await _written(they, 1, 0, events)
        everybody = await _written(they, peers, events, events)
    return FanOut(events=events, peers=peers, one_cpu_s=one, all_cpu_s=everybody)


async def _watched(they: Crowd, peers: int, seconds: float) -> tuple[float, float]:
    await they.let_run(peers)
    await asyncio.sleep(SETTLE_S)
    before = fine_cpu_s(they.node.pid)
    await asyncio.sleep(seconds)
    return (fine_cpu_s(they.node.pid) - before) / seconds * 100, memory_mb(they.node.pid)


async def _written(they: Crowd, peers: int, first: int, events: int) -> float:
    await they.let_run(peers)
    before = cpu_s(they.node.pid)
    await write_rows(they.node.client, first, events)
    await they.node.client.wait(timeout_s=PATIENCE_S, live_only=True)
    return cpu_s(they.node.pid) - before

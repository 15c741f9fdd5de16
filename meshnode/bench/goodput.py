"""Goodput of one bulk stream on loopback between two processes: bare aioquic, and this node's endpoint (`bulk.py`)."""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from meshnode.bench.figures import Goodput
from meshnode.bench.nodes import PATIENCE_S, environment, free_port, patience
from meshnode.errors import StoreError

_PROGRAM: Final = "meshnode.bench.bulk"


async def goodput(seconds: float) -> Goodput:
    """Each for so many seconds, one after the other."""
    return Goodput(bare_mb_per_s=await _stream("bare", seconds), own_mb_per_s=await _stream("own", seconds))


async def _stream(kind: str, seconds: float) -> float:
    port, pipe = free_port(), asyncio.subprocess.PIPE
    processes = []

    async def begin(side: str) -> asyncio.subprocess.Process:
        words = (sys.executable, "-m", _PROGRAM, kind, side, str(seconds), str(port))
        process = await asyncio.create_subprocess_exec(
            *words, stdout=pipe, stderr=pipe, env=environment(), start_new_session=True
        )
        processes.append(process)
        return process

    try:
        async with patience(PATIENCE_S + 2 * seconds, f"the bulk stream of {kind} did not end"):
            server = await begin("serve")
            assert server.stdout is not None
            if await server.stdout.readline():
                await begin("dial")
                if told := await server.stdout.readline():
                    return float(told)
            raise StoreError(f"the bulk stream of {kind} failed: {await _last_words(processes)}")
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def _last_words(processes: list[asyncio.subprocess.Process]) -> str:
    for process in processes:
        if process.returncode is None:
            process.kill()
    said = [(await process.communicate())[1].decode(errors="replace").strip() for process in processes]
    return next((text.splitlines()[-1] for text in said if text), "it said nothing")

"""`verify` over the control API: a line as often as there is progress, and the report as the last one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec

from meshnode.control import requests as asked
from meshnode.node.api import Operations
from meshnode.node.verifyviews import VerifyProgress, VerifyReport


class VerifyLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Either how far a comparison is, or, in the last line, its report."""

    progress: VerifyProgress | None = None
    report: VerifyReport | None = None


async def lines(operations: Operations, arguments: asked.Verify) -> AsyncIterator[VerifyLine]:
    """Ends with the report, or raises; the comparison is given up where whoever asked has gone."""
    told: asyncio.Queue[VerifyProgress] = asyncio.Queue(1)

    def tell(progress: VerifyProgress) -> None:
        if told.full():
            told.get_nowait()  # who reads slowly reads the latest: nothing piles up for it
        told.put_nowait(progress)

    work = asyncio.ensure_future(
        operations.verify(arguments.peer, table=arguments.table, repair=arguments.repair, tell=tell)
    )
    following: asyncio.Future[VerifyProgress] | None = None
    try:
        while not work.done():
            following = asyncio.ensure_future(told.get())
            await asyncio.wait({work, following}, return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                yield VerifyLine(progress=following.result())
            else:
                following.cancel()
        yield VerifyLine(report=work.result())
    finally:
        pending = [task for task in (work, following) if task is not None]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

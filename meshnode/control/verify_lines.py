"""`verify` over the control API: a line of JSON as often as there is progress, and the report as the last one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable

from meshnode.control import requests as asked
from meshnode.control.failures import error_of, failure_of
from meshnode.errors import MeshError, TransportError
from meshnode.node.api import Operations
from meshnode.node.jsonvalues import from_json_builtins, parse_json, to_json, to_json_builtins
from meshnode.node.verifyviews import VerifyProgress, VerifyReport


async def lines(operations: Operations, arguments: asked.Verify, stopping: asyncio.Event) -> AsyncIterator[str]:
    """Ends with the report or an error; given up where whoever asked has gone, or the node stops."""
    told: asyncio.Queue[VerifyProgress] = asyncio.Queue()
    work = asyncio.ensure_future(
        operations.verify(arguments.peer, table=arguments.table, repair=arguments.repair, tell=told.put_nowait)
    )
    stop = asyncio.ensure_future(stopping.wait())
    try:
        while not work.done():
            following = asyncio.ensure_future(told.get())
            await asyncio.wait({work, stop, following}, return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                yield json.dumps({"progress": to_json_builtins(following.result())}) + "\n"
            else:
                following.cancel()
            if stop.done() and not work.done():
                raise TransportError("the node was stopped while it compared")
        yield json.dumps({"report": to_json_builtins(work.result())}) + "\n"
    except MeshError as error:
        yield to_json(failure_of(error)) + "\n"
    finally:
        for task in (work, stop):
            task.cancel()
        await asyncio.gather(work, stop, return_exceptions=True)


async def report_of(answer: AsyncIterator[bytes], tell: Callable[[VerifyProgress], None] | None) -> VerifyReport:
    """The report at the end of such lines; raises what they say if that is an error."""
    async for line in answer:
        raw = parse_json(line)
        if "error" in raw:
            raise error_of(from_json_builtins(raw, asked.Failure))
        if "report" in raw:
            return from_json_builtins(raw["report"], VerifyReport)
        if tell is not None:
            tell(from_json_builtins(raw["progress"], VerifyProgress))
    raise TransportError("the node went away while it compared")

"""Work that nobody waits for: it is kept until it is done, its errors go to the log, and it ends with its owner."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TypeVar

from meshnode.errors import MeshError
from meshnode.model.logevent import LogEvent, log_event

T = TypeVar("T")

logger = logging.getLogger("meshnode.network")


class Background:
    """Tasks under way; after `stop` there are none, and no new ones."""

    def __init__(self) -> None:
        self.stopped = False
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Begin it."""
        if self.stopped:
            work.close()  # the store may be closed by now
            return
        task = asyncio.get_running_loop().create_task(_logged(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # cancelled before it began, it would never have been awaited

    async def stop(self) -> None:
        """End what is under way."""
        self.stopped = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _logged(work: Coroutine[None, None, None]) -> None:
    try:
        await work
    except MeshError as error:
        log_event(logger, logging.WARNING, LogEvent.WORK_WAITS, work="work of the network", reason=str(error))
    except Exception:
        log_event(logger, logging.ERROR, LogEvent.FAULT, trace=True, work="work of the network")


async def to_the_end(work: Callable[[], T]) -> T:
    """Run it on a thread. Who is cancelled meanwhile waits for its end all the same, and holds what it needs."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise

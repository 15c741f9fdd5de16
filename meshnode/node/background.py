"""Work that nobody waits for: it is kept until it is done, its errors go to the log, and it ends with its owner."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

from meshnode.errors import MeshError

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
        logger.error("%s", error)
    except Exception:
        logger.exception("a background task of the network failed")

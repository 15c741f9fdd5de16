"""What an application writes into adopted tables is signed soon after, and costs next to nothing while it does not.

Every commit changes the WAL's length or its time, so looking at those is enough to notice one. The database is asked
whether anything was captured only then, and now and then all the same.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from meshnode.engine.engine import Engine
from meshnode.errors import MeshError
from meshnode.limits import CAPTURE_AGAIN_S, CAPTURE_LOOK_S
from meshnode.model.logevent import LogEvent, log_event
from meshnode.node.storage import Storage
from meshnode.store.capture import any_pending

LOG = logging.getLogger("meshnode.node")

_TICK_NS: Final = 20_000_000  # nanoseconds; a file's time may stand still for as long


async def sign_captured(storage: Storage, grew: Callable[[], None]) -> None:
    """Until it is cancelled; `grew` is told whenever there are new events."""
    wal = storage.file.path.with_name(storage.file.path.name + "-wal")
    loop = asyncio.get_running_loop()
    context = storage.engine.context
    seen: tuple[int, int] | None = None
    again = 0.0
    while True:
        if context.adopted:
            found = _stamp(wal)
            if found != seen or loop.time() >= again:
                # Another commit within the same tick would leave the stamp as it is: then look once more.
                seen = found if found is None or time.time_ns() - found[1] > _TICK_NS else None
                again = loop.time() + CAPTURE_AGAIN_S
                await _sign(storage, grew)
        await asyncio.sleep(CAPTURE_LOOK_S)


async def _sign(storage: Storage, grew: Callable[[], None]) -> None:
    context = storage.engine.context
    try:
        looking = any(place is not None for place in context.adopted.values())
        more = looking or await storage.read(any_pending)
        while more:
            before = context.next_position
            more = await storage.write(Engine.sign_captured)
            if context.next_position != before:
                grew()
    except MeshError as error:  # the database is locked, or full: what was captured waits there
        log_event(LOG, logging.WARNING, LogEvent.WORK_WAITS, work="signing what was written by SQL", reason=str(error))


def _stamp(wal: Path) -> tuple[int, int] | None:
    """Length and time of the WAL."""
    try:
        found = os.stat(wal)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns

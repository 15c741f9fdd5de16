"""What an application writes into adopted tables is signed soon after, and costs next to nothing while it does not.

A commit writes the WAL first and counts a moment later, after an fsync perhaps. So once the WAL was written the
database is asked a few times, less and less often, whether anything was captured; and now and then whatever happens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from meshnode.engine.engine import Engine
from meshnode.errors import MeshError, RegistrationError, UsageError
from meshnode.limits import CAPTURE_AGAIN_S, CAPTURE_LOOK_S
from meshnode.model.logevent import LogEvent, log_event
from meshnode.node.filewatch import FileWatch
from meshnode.node.storage import Storage
from meshnode.node.views import parse_table
from meshnode.store.capture import any_pending
from meshnode.store.database import Tx
from meshnode.store.unfit import all_faults, ordinary

LOG = logging.getLogger("meshnode.node")

_LOOKS_S: Final = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, CAPTURE_AGAIN_S)


async def fit_tables(storage: Storage, tables: Sequence[str], *, own_numbers: bool) -> list[tuple[str, str]]:
    """The names of tables of the node's database that can be adopted, of all that are there where none is named.

    Raises RegistrationError with all that is wrong with any of them.
    """
    if storage.file.key is not None:
        raise UsageError("the tables of an encrypted database are written through the node alone")

    def read(tx: Tx) -> list[tuple[str, str]]:
        named = [parse_table(table) for table in tables or ordinary(tx)]
        found = list(all_faults(tx, storage.file.sqlite, named, own_numbers=own_numbers))
        if found:
            raise RegistrationError("nothing was adopted; " + "; ".join(fault.text for fault in found))
        return named

    return await storage.read(read)


async def sign_captured(storage: Storage, grew: Callable[[], None]) -> None:
    """Until it is cancelled; `grew` is told whenever there are new events."""
    wal = storage.file.path.with_name(storage.file.path.name + "-wal")
    while True:
        rung = storage.changed.listen()
        if storage.engine.context.adopted:
            break
        await rung.wait()
    with FileWatch(wal) as watch:
        looks = 0
        while True:
            await _sign(storage, grew)
            if await watch.written(_LOOKS_S[looks]):
                looks = 0
                await asyncio.sleep(CAPTURE_LOOK_S / 4)  # one commit writes the WAL many times
            else:
                looks = min(looks + 1, len(_LOOKS_S) - 1)


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

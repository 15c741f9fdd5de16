"""This node's side of a comparison: read once on a thread and connection of its own, then it answers (profile §15)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from meshnode.engine.compare_scan import Scan
from meshnode.engine.compare_side import Side, send_again
from meshnode.model import comparison as words
from meshnode.model.comparison import Agreement
from meshnode.model.delivery import PATH
from meshnode.model.hlc import Hlc, beyond_skew
from meshnode.node.drive import PeerDriver
from meshnode.node.storage import Storage, wall_ms
from meshnode.sync.comparing import Ask

BREATH_S: Final = 0.0005  # seconds that reading stands still every slice: others want the interpreter too

OnItems = Callable[[int], None]
"""Called with how many items were read since it was called last, on any thread."""


class _Over(Exception):
    """Raised within a reading thread: nobody waits for it any more."""


class Reading:
    """One reading of the log and the rows, which can be given up."""

    def __init__(self, storage: Storage, alone: asyncio.Semaphore, on_items: OnItems) -> None:
        self._storage = storage
        self._alone = alone
        self._on_items = on_items
        self.over = False

    async def side(self, agreement: Agreement, driver: PeerDriver) -> Side:
        """Read everything that was agreed on; one reading at a time in this node."""
        offered = driver.offered.scope
        async with self._alone:
            with suppress(_Over):
                scan = await self._storage.read_apart(lambda tx: Scan(tx, agreement, self._breathe))
                return Side(scan, driver.peer, PATH, offered)
        raise asyncio.CancelledError

    def _breathe(self, items: int) -> None:
        if self.over:
            raise _Over
        self._on_items(items)
        time.sleep(BREATH_S)


async def answered(storage: Storage, driver: PeerDriver, side: Side, ask: Ask) -> tuple[Any, ...]:
    """What this node's side answers; what is sent again is a write, everything else only reads."""
    if ask.what == words.AGAIN:
        peer, positions = driver.peer, side.positions(ask.of)
        count = await storage.write(lambda engine: send_again(engine.context, peer, PATH, positions), peer)
        driver.log_grew()
        return (count,)
    if not ask.of and ask.what != words.TABLES:
        return ()
    snapshot = storage.engine.context.snapshot
    assert snapshot is not None
    return await storage.read_apart(lambda tx: side.answer_untrusted(tx, ask.what, ask.of, snapshot.membership))


def within_skew(theirs: Hlc, own: Hlc) -> Hlc:
    """A peer's reading that is too far ahead is treated as absent (profile §8)."""
    return own if beyond_skew(theirs.physical, wall_ms()) else theirs

"""One comparison that a peer asks for: told, agreed on, read, and its questions answered in turn (profile §15)."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from meshnode.engine import compare_told
from meshnode.engine.compare_side import Side
from meshnode.errors import ProtocolError
from meshnode.limits import COMPARE_ASKS, COMPARE_IDLE_S, COMPARE_WORK_S
from meshnode.model import comparison as words
from meshnode.model.comparison import NONCE_BYTES, agree, paired
from meshnode.model.frames import Compare, CompareAsk, CompareFrame, CompareTell
from meshnode.node.compare_reading import Reading, answered, within_skew
from meshnode.node.drive import PeerDriver
from meshnode.node.storage import Storage
from meshnode.sync.comparing import Ask


class Serving:
    """One comparison that a peer asks for."""

    def __init__(self, storage: Storage, driver: PeerDriver, opened: Compare, reading: Reading) -> None:
        self.id = opened.id
        self.driver = driver
        self.reading = reading
        self.worked_s = 0.0
        """Seconds that were spent on it: whoever asks waits as long before the next one."""
        self.task: asyncio.Task[None] | None = None
        self._storage = storage
        self._opened = opened
        self._asks: asyncio.Queue[CompareAsk] = asyncio.Queue(1)

    def heard_untrusted(self, frame: CompareFrame) -> None:
        """The next question; one at a time."""
        if not isinstance(frame, CompareAsk) or self._asks.full():
            raise ProtocolError("in a comparison one question waits for its answer before the next")
        self._asks.put_nowait(frame)

    async def run(self) -> str:
        """Tell what there is, read it, and answer; why it ends. TimeoutError where nothing is asked for too long."""
        theirs, offered = self._opened.tables, self.driver.offered.scope
        named = [(each.schema, each.name) for each in theirs]
        told = await self._storage.read(lambda tx: compare_told.tell(tx, offered, named=named))
        nonce = secrets.token_bytes(NONCE_BYTES)
        self.driver.compare(Compare(self.id, nonce, told.hlc, told.thinned, told.tables))
        first = await self._next(1)
        if first.what != words.TABLES or any(each >= len(told.tables) for each in first.of):
            raise ProtocolError("a comparison begins with the tables to compare, of those that were told")
        pairs = list(paired(theirs, told.tables).values())
        agreement = agree(
            (self._opened.nonce, nonce),
            (within_skew(self._opened.hlc, told.hlc), told.hlc),
            [pairs[each] for each in first.of],
            thinned=self._opened.thinned or told.thinned,
        )
        with self._working():
            side = await self.reading.side(agreement, self.driver)
        read_s = self.worked_s
        await self._answer(side, first)
        no = 2
        while no <= COMPARE_ASKS and self.worked_s - read_s <= COMPARE_WORK_S:
            await self._answer(side, await self._next(no))
            no += 1
        return "no more is answered in one comparison"

    @contextmanager
    def _working(self) -> Iterator[None]:
        begun = asyncio.get_running_loop().time()
        try:
            yield
        finally:
            self.worked_s += asyncio.get_running_loop().time() - begun

    async def _next(self, no: int) -> CompareAsk:
        async with asyncio.timeout(COMPARE_IDLE_S):
            ask = await self._asks.get()
        if ask.no != no:
            raise ProtocolError(f"question {ask.no} of a comparison where {no} is the next")
        return ask

    async def _answer(self, side: Side, ask: CompareAsk) -> None:
        with self._working():
            of = await answered(self._storage, self.driver, side, Ask(ask.what, ask.of))
        self.driver.compare(CompareTell(self.id, ask.no, ask.what, of))

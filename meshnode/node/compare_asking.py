"""One comparison that this node asks for, over the link to a peer (profile §15)."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from meshnode.engine import compare_told
from meshnode.engine.compare_side import Side
from meshnode.engine.compare_told import ToldTables
from meshnode.errors import CloseCode, ProtocolError, TransportError
from meshnode.limits import COMPARE_IDLE_S, COMPARE_SCAN_S, COMPARE_WAIT_S
from meshnode.model import comparison as words
from meshnode.model.comparison import CANNOT_READ, ID_BYTES, NONCE_BYTES, Agreement, TableTold, agree, paired
from meshnode.model.frames import Compare, CompareAsk, CompareEnd, CompareFrame, CompareTell
from meshnode.node.compare_reading import Reading, answered, within_skew
from meshnode.node.drive import PeerDriver
from meshnode.node.storage import Storage
from meshnode.sync.comparing import Ask, Narrowing


@dataclass(frozen=True, slots=True)
class Outcome:
    """One comparison that came to its end."""

    narrowed: Narrowing
    agreement: Agreement
    pairs: Sequence[tuple[TableTold, TableTold]]  # of the agreed tables, ours and theirs
    own: ToldTables
    refused: Sequence[tuple[str, str, bool]]  # schema, name and whether it is this side that does not take it whole


class Asking:
    """One comparison that this node asks for."""

    def __init__(self, storage: Storage, driver: PeerDriver, only: tuple[str, str] | None, reading: Reading) -> None:
        self.id = secrets.token_bytes(ID_BYTES)
        self.driver = driver
        self._storage = storage
        self._only = only
        self._reading = reading
        self._side: Side | None = None
        self._no = 0
        self._answer: asyncio.Future[Compare | CompareTell] | None = None
        self._over = False
        self._left_s = COMPARE_WAIT_S

    def heard_untrusted(self, frame: CompareFrame) -> None:
        """The peer's word; what was not asked for is a protocol-error."""
        if isinstance(frame, CompareEnd):
            todo = ": run `meshnode doctor` there" if frame.reason == CANNOT_READ else ""
            self.lost(f"the other side ended the comparison: {frame.reason}{todo}")
            return
        if self._answer is None or self._answer.done() or isinstance(frame, CompareAsk):
            raise ProtocolError("an answer that nobody asked for")
        self._answer.set_result(frame)

    def lost(self, why: str) -> None:
        """No more comes."""
        self._over = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(TransportError(why))

    def end(self) -> None:
        """Nobody waits for it any more."""
        self._reading.over = True
        if not self._over:
            self._over = True
            self.driver.compare(CompareEnd(self.id, "done"))

    async def run(self) -> Outcome:
        """Compare; TransportError where the peer does not go through with it."""
        offered, only = self.driver.offered.scope, self._only
        own = await self._storage.read(lambda tx: compare_told.tell(tx, offered, only=only))
        nonce = secrets.token_bytes(NONCE_BYTES)
        told = await self._exchange(Compare(self.id, nonce, own.hlc, own.thinned, own.tables), self._idle_s)
        if not isinstance(told, Compare):
            raise self._broke("it did not say what it has")
        theirs = told.tables
        chosen = await self._storage.read(lambda tx: compare_told.taken(tx, offered, theirs))
        names = {(each.schema, each.name) for each in own.tables}
        chosen = [each for each in chosen if only is None or tuple(theirs[each][:2]) in names]
        every = list(paired(own.tables, theirs).values())
        pairs = [every[each] for each in chosen]
        agreement = agree(
            (nonce, told.nonce),
            (own.hlc, within_skew(told.hlc, own.hlc)),
            pairs,
            thinned=own.thinned or told.thinned,
        )
        narrowed = Narrowing(chosen)
        await self.narrow(narrowed, agreement)
        told_names = {(each.schema, each.name) for each in theirs}
        refused = [(*name, False) for name in sorted(names - told_names)]
        if only is None:
            refused += [(*name, True) for name in sorted(told_names - {(each.schema, each.name) for each, _ in pairs})]
        return Outcome(narrowed, agreement, pairs, own, refused)

    async def narrow(self, narrowed: Narrowing, agreement: Agreement) -> None:
        """Go on until there is nothing to ask any more."""
        while (step := narrowed.step()) is not None:
            own = asyncio.ensure_future(self._own(step.own, agreement))
            theirs = asyncio.ensure_future(self._their(step.theirs))
            try:
                narrowed.take(*await asyncio.gather(own, theirs))
            except ProtocolError as error:
                raise self._broke(str(error)) from error
            finally:
                own.cancel()
                theirs.cancel()

    async def _own(self, ask: Ask, agreement: Agreement) -> tuple[Any, ...]:
        if self._side is None:
            self._side = await self._reading.side(agreement, self.driver)
        return await answered(self._storage, self.driver, self._side, ask)

    async def _their(self, ask: Ask) -> tuple[Any, ...]:
        if not ask.of and ask.what != words.TABLES:
            return ()
        self._no += 1
        question = CompareAsk(self.id, self._no, ask.what, ask.of)
        told = await self._exchange(question, COMPARE_SCAN_S if ask.what == words.TABLES else self._idle_s)
        if not isinstance(told, CompareTell) or (told.no, told.what) != (self._no, ask.what):
            raise self._broke("its answer is to another question")
        return told.of

    @property
    def _idle_s(self) -> float:
        """How long an answer is waited for: each may be slow, and not all of them."""
        return max(min(COMPARE_IDLE_S, self._left_s), 0.0)

    async def _exchange(self, frame: CompareFrame, seconds: float) -> Compare | CompareTell:
        if self._over:
            raise TransportError("the link ended while the two were compared")
        loop = asyncio.get_running_loop()
        asked = loop.time()
        self._answer = loop.create_future()
        self.driver.compare(frame)
        try:
            async with asyncio.timeout(seconds):
                return await self._answer
        except TimeoutError:
            slow = f" ({COMPARE_WAIT_S:g} s for all questions)" if seconds < COMPARE_IDLE_S else ""
            raise TransportError(f"the other side did not answer within {seconds:.0f} s{slow}") from None
        finally:
            self._answer = None
            if seconds <= COMPARE_IDLE_S:  # reading its log has its own time
                self._left_s -= loop.time() - asked

    def _broke(self, how: str) -> TransportError:
        self.driver.link.close(CloseCode.PROTOCOL_ERROR, f"a comparison: {how}")
        return TransportError(f"the other side broke the protocol of a comparison: {how}")

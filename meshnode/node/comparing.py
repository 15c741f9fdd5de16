"""Comparisons with other members over their links: the one that this node asks for, those that it answers (§15).

Reading is done on threads and connections of their own, one log at a time in the whole node; the loop and the writer
go on. A member is answered one comparison at a time, a few members at once, and has to wait between two at least as
long as reading and answering took, up to half a minute: nobody can keep this node at it all the time.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final

from meshnode.errors import MeshError, ProtocolError, UsageError
from meshnode.limits import COMPARISONS_SERVED
from meshnode.model.comparison import CANNOT_READ
from meshnode.model.frames import Compare, CompareAsk, CompareEnd, CompareFrame
from meshnode.model.logevent import LogEvent, log_event
from meshnode.model.site import short_text
from meshnode.node.compare_asking import Asking
from meshnode.node.compare_reading import OnItems, Reading
from meshnode.node.compare_serving import Serving
from meshnode.node.drive import PeerDriver
from meshnode.node.storage import Storage

PAUSE_S: Final = 1.0  # seconds at least between two comparisons that one member is answered
LONGEST_PAUSE_S: Final = 30.0  # seconds at most: whoever repairs compares once more, and waits for an answer

logger = logging.getLogger("meshnode.node")


class Comparisons:
    """All of a running node's."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._alone = asyncio.Semaphore(1)
        self._asking: dict[bytes, Asking] = {}
        self._serving: dict[bytes, Serving] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._free_at: dict[bytes, float] = {}  # by peer, when it may be answered again

    def open(self, driver: PeerDriver, only: tuple[str, str] | None, on_items: OnItems) -> Asking:
        """Begin one; UsageError where one with that peer is under way, or the peer does not know how."""
        if not driver.session.compares:
            raise UsageError("the meshnode over there does not know `verify`: bring it up to date")
        if driver.peer in self._asking:
            raise UsageError("a comparison with this member is under way already: wait for its end")
        asking = Asking(self._storage, driver, only, Reading(self._storage, self._alone, on_items))
        self._asking[driver.peer] = asking
        return asking

    def close(self, asking: Asking) -> None:
        """It is over."""
        asking.end()
        if self._asking.get(asking.driver.peer) is asking:
            del self._asking[asking.driver.peer]

    def heard_untrusted(self, driver: PeerDriver, frame: CompareFrame) -> None:
        """A frame of a comparison came; ProtocolError ends the link."""
        asking, serving = self._asking.get(driver.peer), self._serving.get(driver.peer)
        if asking is not None and asking.id == frame.id and asking.driver is driver:
            asking.heard_untrusted(frame)
        elif isinstance(frame, Compare):
            self._opened(driver, frame)
        elif serving is not None and serving.id == frame.id and serving.driver is driver:
            if isinstance(frame, CompareEnd):
                self._drop(serving)
            else:
                serving.heard_untrusted(frame)
        elif isinstance(frame, CompareAsk):
            driver.compare(CompareEnd(frame.id, "no such comparison here"))

    def ended(self, driver: PeerDriver) -> None:
        """The link is over, and so is what went on on it."""
        asking, serving = self._asking.get(driver.peer), self._serving.get(driver.peer)
        if asking is not None and asking.driver is driver:
            asking.lost("the link ended while the two were compared")
        if serving is not None and serving.driver is driver:
            self._drop(serving)

    async def stop(self) -> None:
        """Give up all of them."""
        for serving in list(self._serving.values()):
            self._drop(serving)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _opened(self, driver: PeerDriver, frame: Compare) -> None:
        if driver.peer in self._serving or len(self._tasks) >= COMPARISONS_SERVED:
            driver.compare(CompareEnd(frame.id, "busy with other comparisons: try again later"))
            return
        reading = Reading(self._storage, self._alone, lambda _items: None)
        serving = self._serving[driver.peer] = Serving(self._storage, driver, frame, reading)
        task = asyncio.get_running_loop().create_task(self._serve(serving))
        serving.task = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, serving: Serving) -> None:
        peer, loop = serving.driver.peer, asyncio.get_running_loop()
        reason = "not asked for too long"
        try:
            await asyncio.sleep(max(self._free_at.get(peer, 0.0) - loop.time(), 0.0))
            with suppress(TimeoutError):
                reason = await serving.run()
        except ProtocolError as error:
            serving.driver.link.close(error.code, str(error))
        except MeshError as error:
            work = f"a comparison for {short_text(peer)}"
            log_event(logger, logging.WARNING, LogEvent.WORK_WAITS, work=work, reason=str(error))
            reason = CANNOT_READ
        except Exception:
            work = f"a comparison for {short_text(peer)}"
            log_event(logger, logging.ERROR, LogEvent.FAULT, trace=True, work=work)
            reason = "internal error"
        finally:
            self._free_at[peer] = loop.time() + min(max(serving.worked_s, PAUSE_S), LONGEST_PAUSE_S)
            if self._serving.get(peer) is serving:
                del self._serving[peer]
                serving.driver.compare(CompareEnd(serving.id, reason))

    def _drop(self, serving: Serving) -> None:
        serving.reading.over = True
        self._serving.pop(serving.driver.peer, None)
        if serving.task is not None:
            serving.task.cancel()

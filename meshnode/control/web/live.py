"""Pages that stay true: one stream of server-sent events a page, with fragments of HTML as they come to differ.

Nothing is queued. A stream looks at the node when it may send again, so a page that reads slowly, or sleeps, gets the
latest and costs what one fragment takes; sources that change fast are looked at twice a second.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from meshnode.codec.digest import blake3_256
from meshnode.errors import MeshError
from meshnode.model.logevent import LogEvent, log_event
from meshnode.node.api import Operations
from meshnode.node.bell import Bell

LOG = logging.getLogger("meshnode.dashboard")
COARSE_TICKS: Final = 30  # ticks after which how long ago something was is told anew
TICK_S: Final = 1.0  # seconds between two looks at what tells nobody that it changed: links, and how far all are
APART_S: Final = 0.5  # seconds at least between two times that a fragment is sent, and a source is asked again
AGAIN_S: Final = 5.0  # seconds after which a source that failed, since the node was busy, is followed again
HEARTBEAT_S: Final = 15.0  # seconds after which a stream without news says that it lives
ALIVE_S: Final = 60.0  # seconds between two times that an open page lets its session live on
ENDED: Final = "ended"  # the event by which a page learns that its session is over
SEND_S: Final = 30.0  # seconds that a page may take to read what it was sent; then its stream ends
STREAMS: Final = 16  # open pages at once; against a page that opens one after another
RETRY_MS: Final = 2000  # what a browser waits before it connects again


class Wake(StrEnum):
    """What a fragment is looked at again for."""

    TICK = "tick"  # every second
    CHANGES = "changes"  # rows changed
    NOTICES = "notices"  # one arose
    CONFLICTS = "conflicts"  # one was recorded, or changed
    CHECKS = "checks"  # of doctor: one begins, or told something
    COARSE = "coarse"  # what tells how long ago something was, not to the second


@dataclass(frozen=True, slots=True)
class Due:
    """One fragment of an open page: the event's name, what wakes it, and its HTML now."""

    name: str
    wakes: frozenset[Wake]
    html: Callable[[], Awaitable[str]]
    shown: Hashable = None  # what it shows, of which page: streams of the same share one drawing; None shares with none


class Drawing(NamedTuple):
    """A fragment as it was drawn, or is being drawn."""

    state: tuple[int, ...]  # how often each of what wakes it had
    at_s: float
    html: asyncio.Task[str | None]


class Hub:
    """What all streams share: one follower a source, while any page is open."""

    def __init__(self, operations: Operations, stopping: asyncio.Event) -> None:
        self.stopping = stopping
        self.bell = Bell()
        self.seen = dict.fromkeys(Wake, 0)  # how often each source woke
        self._operations = operations
        self._streams = 0
        self._followers: list[asyncio.Task[None]] = []
        self._drawn: dict[Hashable, Drawing] = {}

    @property
    def full(self) -> bool:
        """No further page can be told."""
        return self._streams >= STREAMS

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """While a page is open."""
        self._streams += 1
        if self._streams == 1:
            sources = (self._tick, self._follow_changes, self._follow_notices, self._follow_conflicts)
            self._followers = [asyncio.create_task(self._go_on(each), name="meshnode-dashboard") for each in sources]
        try:
            yield
        finally:
            self._streams -= 1
            if self._streams == 0:
                followers, self._followers = self._followers, []
                work: list[asyncio.Task[Any]] = [*followers, *(each.html for each in self._drawn.values())]
                self._drawn = {}
                for each in work:
                    each.cancel()
                await asyncio.gather(*work, return_exceptions=True)

    async def html(self, fragment: Due, *, first: bool) -> str | None:
        """The fragment now; streams that show the same are woken at one moment, and it is drawn for all of them once.

        The first of a stream is its own: the page may have been shown after something that woke nobody.
        """
        now_s = asyncio.get_running_loop().time()
        state = tuple(self.seen[wake] for wake in Wake if wake in fragment.wakes)
        drawn = self._drawn.get(fragment.shown)
        if first or fragment.shown is None or drawn is None or drawn.state != state or now_s - drawn.at_s >= APART_S:
            done = [key for key, each in self._drawn.items() if each.html.done() and now_s - each.at_s >= APART_S]
            for key in done:
                del self._drawn[key]
            drawn = Drawing(state, now_s, asyncio.create_task(_html(fragment), name="meshnode-dashboard"))
            if fragment.shown is not None:
                self._drawn[fragment.shown] = drawn
        return await asyncio.shield(drawn.html)

    def wake(self, source: Wake) -> None:
        """Something of it is otherwise."""
        self.seen[source] += 1
        self.bell.ring()

    async def _go_on(self, work: Callable[[], Awaitable[None]]) -> None:
        """Follow a source again after it failed: open pages would say that they are connected, and stand still."""
        told = ""
        while True:
            try:
                return await work()
            except MeshError as error:
                if str(error) != told:  # once, however long it lasts
                    told = str(error)
                    log_event(LOG, logging.WARNING, LogEvent.WORK_WAITS, work="a source of the dashboard", reason=told)
            except Exception:
                return log_event(LOG, logging.ERROR, LogEvent.FAULT, trace=True, work="a source of the dashboard")
            await asyncio.sleep(AGAIN_S)
            for source in (Wake.CHANGES, Wake.NOTICES, Wake.CONFLICTS):  # what came meanwhile was not told
                self.wake(source)

    async def _tick(self) -> None:
        for tick in itertools.count(1):
            await asyncio.sleep(TICK_S)
            if tick % COARSE_TICKS == 0:
                self.seen[Wake.COARSE] += 1
            self.wake(Wake.TICK)

    async def _follow_changes(self) -> None:
        await self._follow(Wake.CHANGES, self._operations.changes())

    async def _follow_notices(self) -> None:
        async for _ in self._operations.follow_notices():
            self.wake(Wake.NOTICES)

    async def _follow_conflicts(self) -> None:
        await self._follow(Wake.CONFLICTS, self._operations.conflict_changes())

    async def _follow(self, source: Wake, views: AsyncIterator[Any]) -> None:
        """Take all there is, so that nothing is told late; wake at the first, and once more for what came meanwhile."""
        loop = asyncio.get_running_loop()
        later: asyncio.TimerHandle | None = None
        woke_s = -APART_S
        try:
            async with aclosing(views):  # type: ignore[type-var]
                async for _ in views:
                    if later is not None and later.when() > loop.time():
                        continue
                    at_s = max(loop.time(), woke_s + APART_S)
                    later, woke_s = loop.call_at(at_s, self.wake, source), at_s
        finally:
            if later is not None:
                later.cancel()


class LiveResponse(Response):
    """The stream of one page, until the page, its session or the node goes away.

    `alive` says whether the session is one still, and lets it live on: a page that is open is being looked at.
    """

    def __init__(self, hub: Hub, fragments: Sequence[Due], alive: Callable[[], bool] = lambda: True) -> None:
        super().__init__()
        self._hub = hub
        self._fragments = fragments
        self._alive = alive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve it."""
        hub = self._hub
        if hub.full:
            await Response("too many open pages\n", 503, media_type="text/plain")(scope, receive, send)
            return
        async with hub.watching():
            gone = asyncio.ensure_future(_gone(receive))
            stop = asyncio.ensure_future(hub.stopping.wait())
            told = asyncio.ensure_future(self._tell(send))
            try:
                await asyncio.wait({gone, stop, told}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in (gone, stop, told):
                    each.cancel()
                left, *_ = await asyncio.gather(gone, stop, told, return_exceptions=True)
            if left is not None:  # the page is still there
                with suppress(TimeoutError):
                    await _send(send, "", more=False)

    async def _tell(self, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await _send(send, f"retry: {RETRY_MS}\n\n")
        loop = asyncio.get_running_loop()
        pace, looked = Pace(self._fragments), set[str]()
        spoke_s = asked_s = loop.time()
        while not self._hub.stopping.is_set():
            if loop.time() - asked_s >= ALIVE_S:
                asked_s = loop.time()
                if not self._alive():
                    await _send(send, event_text(ENDED, ""))
                    return
            rung = self._hub.bell.listen()
            for fragment in pace.due(self._hub.seen, loop.time()):
                html = await self._hub.html(fragment, first=fragment.name not in looked)
                looked.add(fragment.name)
                if html is not None and pace.news(fragment, html, loop.time()):
                    await _send(send, event_text(fragment.name, html))
                    spoke_s = loop.time()
            now_s = loop.time()
            if now_s - spoke_s >= HEARTBEAT_S:
                await _send(send, ":\n\n")
                spoke_s = now_s
            await Bell.wait(rung, min(pace.wait_s(self._hub.seen, now_s), spoke_s + HEARTBEAT_S - now_s))


class Pace:
    """Which fragments of one stream are to be looked at, and whether they are news (time is an argument)."""

    def __init__(self, fragments: Sequence[Due]) -> None:
        self._fragments = fragments
        self._seen: dict[str, dict[Wake, int]] = {}
        self._looked_s: dict[str, float] = {}
        self._sent: dict[str, bytes] = {}

    def due(self, seen: Mapping[Wake, int], now_s: float) -> list[Due]:
        """Those that something woke, and that were not looked at just now; they count as looked at."""
        found = [each for each in self._fragments if self._woken(each, seen) and self._left_s(each, now_s) <= 0]
        for each in found:
            self._seen[each.name] = {wake: seen[wake] for wake in each.wakes}
            self._looked_s[each.name] = now_s
        return found

    def news(self, fragment: Due, html: str, now_s: float) -> bool:
        """Whether the page has something else; then it counts as sent."""
        digest = blake3_256(html.encode("utf-8", "replace"))
        self._looked_s[fragment.name] = now_s
        if self._sent.get(fragment.name) == digest:
            return False
        self._sent[fragment.name] = digest
        return True

    def wait_s(self, seen: Mapping[Wake, int], now_s: float) -> float:
        """Until the next may be looked at that was woken already; long where none was."""
        left = [self._left_s(each, now_s) for each in self._fragments if self._woken(each, seen)]
        return max(min(left, default=HEARTBEAT_S), 0.0)

    def _woken(self, fragment: Due, seen: Mapping[Wake, int]) -> bool:
        before = self._seen.get(fragment.name)
        return before is None or any(seen[wake] != before[wake] for wake in fragment.wakes)

    def _left_s(self, fragment: Due, now_s: float) -> float:
        looked_s = self._looked_s.get(fragment.name)
        return 0.0 if looked_s is None else looked_s + APART_S - now_s


def event_text(name: str, html: str) -> str:
    """One event; a line of HTML is a line of data."""
    lines = html.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return f"event: {name}\n" + "".join(f"data: {line}\n" for line in lines) + "\n"


async def _html(fragment: Due) -> str | None:
    try:
        return await fragment.html()
    except MeshError:
        return None  # the node stops, or is busy: what the page has stays
    except Exception:
        log_event(LOG, logging.ERROR, LogEvent.FAULT, trace=True, work=f"the fragment {fragment.name} of a page")
        return None


async def _send(send: Send, text: str, *, more: bool = True) -> None:
    message: dict[str, Any] = {"type": "http.response.body", "body": text.encode("utf-8", "replace"), "more_body": more}
    async with asyncio.timeout(SEND_S):
        await send(message)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

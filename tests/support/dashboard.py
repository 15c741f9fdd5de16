"""The dashboard for tests: a mesh of any size in memory, served in a thread of its own, and a browser that tells all.

Tests with a browser are synchronous: Playwright's loop runs in their thread while the browser is open.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, contextmanager
from types import TracebackType
from typing import Any, Self

import msgspec
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Playwright, Request, expect

from meshnode import Node
from meshnode.control.web.dashboard import Dashboard, serve_dashboard
from meshnode.node.api import ALL_EVENTS
from meshnode.node.eventviews import EVENTS_PER_PAGE, EventPage, EventQuery
from meshnode.node.metricviews import GAUGE, MetricView, labelled
from meshnode.node.storage import wall_ms
from meshnode.node.views import AskedView, NoticeView, PeerView, Status, SyncRequest
from support.memory_node import SITE, MemoryNode

CHROMIUM = "/usr/bin/chromium"
PATIENCE_MS = 30_000  # of a test that waits for a page
AXE_TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
NAMES = ("lap", "nas", "phone", "studio", "tablet", "attic", "van", "office-printer", "cellar", "garden-shed")


def peer(number: int, **values: Any) -> PeerView:
    """One member; the same number is always the same device."""
    site = f"{(number * 2654435761 + 12345) % 2**32:08x}{number:024x}"
    name = NAMES[number % len(NAMES)] + (f"-{number}" if number >= len(NAMES) else "")
    fields: dict[str, Any] = {"linked": True, "opened_by_us": number % 2 == 0, "software": "meshnode/1.0.0"}
    fields |= {"address": f"192.168.7.{number % 250}:4747", "last_seen_ms": wall_ms()}
    return PeerView(**{"site": site, "short": site[:8], "name": name, "role": "member", **fields, **values})


class MeshInMemory(MemoryNode):
    """Answers with what a test puts into `peers_now` and `said`; what it is asked for is in `asked`."""

    def __init__(self, peers: Sequence[PeerView] = (), **values: Any) -> None:
        super().__init__()
        self.peers_now = list(peers)
        self.said = values
        self.passed: dict[tuple[str, ...], float] = {}
        self.passes: Callable[[], None] = lambda: None
        self.asked: list[str | None] = []

    async def status(self) -> Status:
        fields: dict[str, Any] = {
            "running": True,
            "site": SITE,
            "short": SITE[:8],
            "name": "desk",
            "mesh_tag": "ab" * 4,
            "home": "/home/ada/mesh",
            "database": "/home/ada/mesh/meshnode.db",
            "role": "authority",
            "software": "meshnode/1.0.0",
            "port": 4747,
            "tables": 4,
            "rows": 100_000,
            "rows_more": True,
            "events": 1_482_113,
            "discovery": "on",
            "started_ms": wall_ms() - 9**7,
        }
        return Status(**{**fields, "peers": list(self.peers_now), **self.said})

    async def metrics(self) -> list[MetricView]:
        self.passes()
        return [labelled("meshnode_link_bytes", GAUGE, "Passed.", ["peer", "direction"], self.passed)]

    async def request_sync(self, peer: str | None = None, *, table: str | None = None) -> SyncRequest:
        self.asked.append(peer)
        chosen = [each for each in self.peers_now if peer in (None, each.site)]
        views = [AskedView(site=e.site, short=e.short, name=e.name, linked=e.linked, id="x", table="*") for e in chosen]
        return SyncRequest(asked=views)

    def follow_notices(self, *, kind: str | None = None, everything: bool = False) -> AsyncIterator[NoticeView]:
        return nothing()

    async def events(
        self, query: EventQuery = ALL_EVENTS, *, after: int = 0, before: int | None = None, limit: int = EVENTS_PER_PAGE
    ) -> EventPage:
        return EventPage(events=[], position=0, more=False)

    def changed(self, number: int, **values: Any) -> None:
        """One peer is otherwise from now on."""
        self.peers_now[number] = msgspec.structs.replace(self.peers_now[number], **values)


def large_mesh(members: int) -> MeshInMemory:
    """Some level, some behind, some away, one whose stream stands still; bytes pass over some links."""
    peers = [peer(number) for number in range(members)]
    for at in range(members):
        if at % 5 == 1:
            peers[at] = msgspec.structs.replace(peers[at], behind=3 + at * 17, ahead=at % 3)
        if at % 7 == 2:
            peers[at] = msgspec.structs.replace(
                peers[at], linked=False, opened_by_us=None, last_seen_ms=wall_ms() - 9**8
            )
        if at == 13:
            peers[at] = msgspec.structs.replace(peers[at], stuck=True, note="stored delivery state cannot be read")
    node = MeshInMemory(peers)

    def passes() -> None:
        for at, each in enumerate(node.peers_now):
            if each.linked and at % 3 != 2:
                for way, number in (("sent", 900 * (at + 1) ** 2), ("received", 70_000 if at % 2 else 0)):
                    node.passed[each.short, way] = node.passed.get((each.short, way), 0.0) + number

    node.passes = passes
    return node


class Served:
    """The dashboard of some operations, in a thread with a loop of its own, until it is stopped.

    A `Node` runs there meanwhile. `port` 0 is any.
    """

    def __init__(self, node: MemoryNode | Node, *, clock: Callable[[], float] | None = None, port: int = 0) -> None:
        self._node = node
        self._port = port
        self._clock = clock
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._up = threading.Event()
        self._dashboard: Dashboard | None = None
        self._thread = threading.Thread(target=self._run, name="dashboard")

    def __enter__(self) -> Self:
        self._thread.start()
        while not self._up.wait(0.1):
            assert self._thread.is_alive(), "the node did not start"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """As a node that stops."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(20)
            self._loop.close()

    def way_in(self) -> str:
        """An address that works once."""
        return self.do(self._let_in())

    def do(self, work: Any) -> Any:
        """Run a coroutine where the node is."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    def begin(self, work: Any) -> Future[Any]:
        """The same, and go on meanwhile."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    @property
    def node(self) -> Any:
        """What is served."""
        return self._node

    @property
    def origin(self) -> str:
        """Where it is served."""
        return self.way_in().partition("/enter")[0]

    async def _let_in(self) -> str:
        assert self._dashboard is not None
        return self._dashboard.let_in()[0].url

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        clock = {} if self._clock is None else {"clock": self._clock}
        async with AsyncExitStack() as entered:
            node = self._node
            if isinstance(node, Node):
                await entered.enter_async_context(node)
            dashboard = await entered.enter_async_context(serve_dashboard(node, self._port, **clock))
            self._dashboard = dashboard
            self._up.set()
            await self._stop.wait()


def chromium(playwright: Playwright) -> Browser:
    """Debian's; its sandbox does not work for root."""
    expect.set_options(timeout=PATIENCE_MS)
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    return playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"] if root else [])


class Watch:
    """What a page did that no page of ours may do."""

    def __init__(self, context: BrowserContext) -> None:
        self.wrong: list[str] = []
        self.expects_loss = False  # the node is stopped on purpose: then the browser says that it cannot reach it
        self._origin = ""
        context.on("console", self._console)
        context.on("weberror", lambda error: self.wrong.append(f"error: {error.error}"))
        context.on("request", self._request)

    def at(self, origin: str) -> None:
        """Where everything has to come from."""
        self._origin = origin

    def _console(self, message: ConsoleMessage) -> None:
        lost = self.expects_loss and message.text.startswith(("Failed to load resource", "[object Event]"))
        if message.type in ("error", "warning") and not lost:
            self.wrong.append(f"console: {message.text}")

    def _request(self, request: Request) -> None:
        if not request.url.startswith((self._origin + "/", "data:")):
            self.wrong.append(f"request: {request.url}")


@contextmanager
def visiting(browser: Browser, served: Served, **options: Any) -> Iterator[tuple[Page, Watch]]:
    """A page that came in, in a context of its own; fails where it did what it may not."""
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE_MS)
    watch = Watch(context)
    try:
        way_in = served.way_in()
        watch.at(way_in.partition("/enter")[0])
        page = context.new_page()
        page.goto(way_in)
        page.wait_for_url("**/")
        page.wait_for_selector("h1")
        yield page, watch
        assert not watch.wrong, watch.wrong
    finally:
        context.close()


def violations(page: Page) -> list[str]:
    """What the audit finds."""
    options = {"runOnly": {"type": "tag", "values": list(AXE_TAGS)}, "resultTypes": ["violations"]}
    found = Axe().run(page, options=options).response["violations"]
    return [f"{each['id']}: {each['help']}: {[node['html'][:200] for node in each['nodes'][:3]]}" for each in found]


def overflows(page: Page) -> bool:
    """Whether the page is wider than what shows it."""
    return bool(page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))


async def nothing() -> AsyncIterator[Any]:
    """A source that never tells anything."""
    await asyncio.Event().wait()
    yield

"""The dashboard as an application: its routes, and how it is served on loopback."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from meshnode.control.dashboardview import DashboardView
from meshnode.control.failures import status_of
from meshnode.control.serving import loopback_listener, serving
from meshnode.control.web.assets import Assets
from meshnode.control.web.doors import TICKET_S, Doors
from meshnode.control.web.examination import Examination
from meshnode.control.web.guard import ALIVE, ENTER, Guard, entered, new_secret
from meshnode.control.web.live import Due, Hub, LiveResponse, Wake
from meshnode.control.web.pages import EVERY, PAGES
from meshnode.control.web.rendering import Renderer, named_home
from meshnode.control.web.shell import shell_context
from meshnode.control.web.site import Context, Fragment, Looks, Page, Query, Web, said
from meshnode.errors import ConfigError, MeshError
from meshnode.model.logevent import LogEvent, log_event
from meshnode.node.api import Operations
from meshnode.node.homepath import platform_home
from meshnode.node.storage import wall_ms

LOG = logging.getLogger("meshnode.dashboard")
QUERY_CHARACTERS = 4096  # of all that a page's address says; against a mistaken page
INTERNAL = "The node failed in a way that it does not know: its log says more."


class Dashboard:
    """Served on a port of loopback; `let_in` opens it for one browser."""

    def __init__(self, doors: Doors, port: int) -> None:
        self._doors = doors
        self.port = port

    def let_in(self) -> tuple[DashboardView, float]:
        """A way in, and for how many seconds it is one."""
        url = f"http://127.0.0.1:{self.port}{ENTER}?{urlencode({'token': self._doors.ticket()})}"
        return DashboardView(url=url, expires_ms=wall_ms() + int(TICKET_S * 1000)), TICKET_S


@asynccontextmanager
async def serve_dashboard(
    operations: Operations, port: int = 0, *, last: int = 0, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[Dashboard]:
    """While it is entered, on `port`, else on `last` where that is free. ConfigError where the port cannot be used."""
    listener = loopback_listener(port, "dashboard_port") if port else _free_listener(last)
    port = listener.getsockname()[1]
    doors = Doors(clock, new_secret)
    stopping = asyncio.Event()
    home = named_home((await operations.status()).home, str(platform_home()))
    app = dashboard_app(operations, doors, port, stopping, home)
    async with serving(app, listener, stopping):
        yield Dashboard(doors, port)


def _free_listener(last: int) -> socket.socket:
    with suppress(ConfigError):  # another program's by now
        return loopback_listener(last)
    return loopback_listener()


def dashboard_app(operations: Operations, doors: Doors, port: int, stopping: asyncio.Event, home: str = "") -> Guard:
    """Everything that is served, behind the guard; `home` is what commands on pages have to name."""
    assets = Assets()
    style = assets.url("app.css")
    looks = Looks(operations, time.monotonic)
    hub = Hub(operations, stopping)
    web = Web(operations, looks, Renderer(assets, home), hub, wall_ms, Examination(operations, hub, wall_ms))

    async def enter(request: Request) -> Response:
        return entered(doors, request.query_params.get("token", ""), port, style)

    async def live(request: Request) -> Response:
        page = next((page for page in EVERY if page.name == request.path_params["page"]), None)
        if page is None:
            raise HTTPException(404)
        return LiveResponse(web.hub, fragments_of(web, page, _query(request)), request.scope[ALIVE])

    routes = [
        Route(ENTER, enter),
        Route("/static/{digest}/{name:path}", assets.serve),
        Route("/live/{page}", live, methods=["GET"]),
        *(Route(page.url, _page(web, page)) for page in EVERY),
        *(route for page in PAGES for route in page.routes(web)),
    ]
    app = Starlette(
        routes=routes,
        exception_handlers={MeshError: _failed(web), HTTPException: _refused(web), Exception: _broken(web)},
    )
    return Guard(Faultless(app), doors, port, style)


class Faultless:
    """A fault of ours was answered by a page, and is a line of the log: Starlette hands it on to the server as well."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        try:
            await self._app(scope, receive, send)
        except ClientDisconnect:
            return  # it went away while it was sending: nobody is there to be told
        except Exception:
            log_event(LOG, logging.ERROR, LogEvent.FAULT, trace=True, work="a page of the dashboard")


def fragments_of(web: Web, page: Page, query: Query) -> list[Due]:
    """All that stays true on a page: the shell's two and its own."""

    async def around(_web: Web, _query: Query) -> Context:
        return shell_context(PAGES, page.under or page.name, await web.looks.status(), web.now_ms())

    wakes = frozenset({Wake.TICK, Wake.NOTICES, Wake.CONFLICTS})
    shell = [Fragment("state", wakes, around), Fragment("nav", wakes, around)]

    def due(fragment: Fragment) -> Due:
        async def html() -> str:
            context = {"now_ms": web.now_ms(), **await fragment.context(web, query)}
            return web.render(f"fragments/{fragment.name}.html", context)

        return Due(fragment.name, fragment.wakes, html, (fragment.name, page.name, *sorted(query.items())))

    return [due(each) for each in (*shell, *page.fragments)]


def _page(web: Web, page: Page) -> Callable[[Request], Awaitable[Response]]:
    async def show(request: Request) -> Response:
        query = _query(request)
        status = await web.looks.status()
        context: dict[str, object] = {
            **shell_context(PAGES, page.under or page.name, status, web.now_ms()),
            "title": page.title,
            "query": query,
            "stream": f"/live/{page.name}?{urlencode(query)}",  # all of the query is the page's own: `page=2` too
            "theme": _theme(request),
        }
        for each in (*(fragment.context for fragment in page.fragments), page.context):
            if each is not None:
                context |= await each(web, query)
        return HTMLResponse(web.render(f"pages/{page.name}.html", context))

    return show


def _query(request: Request) -> Query:
    if len(request.url.query) > QUERY_CHARACTERS:
        raise HTTPException(414)
    return dict(request.query_params)


def _theme(request: Request) -> str:
    theme = request.cookies.get("meshnode-theme", "")
    return theme if theme in ("light", "dark") else ""


Handler = Callable[[Request, Exception], Awaitable[Response]]


def _failed(web: Web) -> Handler:
    async def handle(request: Request, error: Exception) -> Response:
        assert isinstance(error, MeshError)
        return said(web, request, str(error), kind="bad", status=status_of(type(error)))

    return handle


def _refused(web: Web) -> Handler:
    async def handle(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        text = "There is no such page." if error.status_code == 404 else error.detail
        return said(web, request, text, kind="bad", status=error.status_code)

    return handle


def _broken(web: Web) -> Handler:
    async def handle(request: Request, _error: Exception) -> Response:
        return said(web, request, INTERNAL, kind="bad", status=500)

    return handle

"""What every page is made with: the node's operations, looks that several pages share, and the way to HTML."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute

from meshnode.control.web.examination import Examination
from meshnode.control.web.live import Hub, Wake
from meshnode.control.web.rendering import Renderer
from meshnode.control.web.throughput import Throughput
from meshnode.errors import UsageError
from meshnode.node.api import Operations
from meshnode.node.views import Status

FORM_BYTES: Final = 1024 * 1024  # of one form; against a mistaken page
FORM_FIELDS: Final = 1000
FRESH_S: Final = 0.4  # seconds for which one look at the node serves every open page

Query = Mapping[str, str]
Context = Mapping[str, Any]


class Looks:
    """Reads that many pages want at the same moment are made once."""

    def __init__(self, operations: Operations, now_s: Callable[[], float]) -> None:
        self._operations = operations
        self._now_s = now_s
        self._looking = asyncio.Lock()
        self._status: tuple[float, Status] | None = None
        self._throughput = Throughput()

    async def status(self) -> Status:
        """How the node is, at most FRESH_S old."""
        async with self._looking:
            if self._status is None or self._now_s() - self._status[0] >= FRESH_S:
                self._status = (self._now_s(), await self._operations.status())
            return self._status[1]

    def forget(self) -> None:
        """An action changed something: the next look is a new one."""
        self._status = None

    async def throughput(self) -> Throughput:
        """What passes over each link, between the last two looks."""
        async with self._looking:
            if self._throughput.due(self._now_s()):
                self._throughput.take(await self._operations.metrics(), self._now_s())
            return self._throughput


@dataclass(frozen=True, slots=True)
class Web:
    """Handed to every page."""

    operations: Operations
    looks: Looks
    render: Renderer
    hub: Hub
    now_ms: Callable[[], int]
    examination: Examination


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part of a page that stays true: `fragments/NAME.html`, drawn with what `context` gives."""

    name: str
    wakes: frozenset[Wake]
    context: Callable[[Web, Query], Awaitable[Context]]


@dataclass(frozen=True, slots=True)
class Page:
    """One entry of the navigation: `pages/NAME.html` at `/NAME`, or at `path`."""

    name: str
    title: str
    key: str  # which letter after `g` goes there
    path: str = ""
    fragments: Sequence[Fragment] = ()
    context: Callable[[Web, Query], Awaitable[Context]] | None = None  # of what does not change while it is open
    routes: Callable[[Web], Sequence[BaseRoute]] = field(default=lambda _web: ())
    count: Callable[[Status], int] = field(default=lambda _status: 0)  # shown beside the title, 0 is not
    urgent: bool = False  # whether that number is to catch the eye

    @property
    def url(self) -> str:
        """Where it is."""
        return self.path or f"/{self.name}"


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form that was sent; of two of one name the last. UsageError where it is too large."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_BYTES:
            raise UsageError(f"a form has at most {FORM_BYTES:,} bytes")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FORM_FIELDS))
    except ValueError as error:
        raise UsageError(f"the form cannot be read: {error}") from error


def by_htmx(request: Request) -> bool:
    """Whether a part of a page is wanted, not a page."""
    return request.headers.get("hx-request") == "true"


def said(
    web: Web, request: Request, text: str, *, kind: str = "good", status: int = 200, back: str | None = None
) -> Response:
    """What came of an action: as a line where the page wants a line, else as a page with the way back."""
    context = {"text": text, "kind": kind, "back": back or "/"}
    template = "fragments/said.html" if by_htmx(request) else "said.html"
    return HTMLResponse(web.render(template, context), status)

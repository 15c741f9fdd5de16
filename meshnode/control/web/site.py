"""What every page is made with: the node's operations, looks that several pages share, and the way to HTML."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute

from meshnode.control.web.arrivals import Arrivals
from meshnode.control.web.examination import Examination
from meshnode.control.web.invites import Invites
from meshnode.control.web.live import Hub, Wake
from meshnode.control.web.rendering import Renderer
from meshnode.control.web.throughput import Throughput
from meshnode.errors import UsageError
from meshnode.node.api import Operations
from meshnode.node.memberviews import MemberView
from meshnode.node.views import Status, TableView

FORM_BYTES: Final = 1024 * 1024  # of one form; against a mistaken page
FORM_FIELDS: Final = 1000
FORM_S: Final = 30.0  # seconds in which a form has to be here; one that never ends keeps a connection from others
FRESH_S: Final = 0.4  # seconds at least for which one look at the node serves every open page
SHARE: Final = 10  # times as long as it took: no look takes more than a tenth of the time

T = TypeVar("T")
Query = Mapping[str, str]
Context = Mapping[str, Any]


class Look(Generic[T]):
    """One reading that serves every open page for FRESH_S, and for longer where it takes long.

    Rows are counted by reading their table: however large that is, a look takes a small share of the node's time.
    """

    def __init__(self, read: Callable[[], Awaitable[T]], now_s: Callable[[], float]) -> None:
        self._read = read
        self._now_s = now_s
        self._looking = asyncio.Lock()
        self._kept: tuple[float, T] | None = None  # until when it is fresh

    async def now(self) -> T:
        """What there is, or what was read lately."""
        async with self._looking:
            began_s = self._now_s()
            if self._kept is None or began_s >= self._kept[0]:
                found = await self._read()
                took_s = self._now_s() - began_s
                self._kept = (began_s + max(FRESH_S, SHARE * took_s), found)
            return self._kept[1]

    def again(self) -> None:
        """Something of it was changed from here."""
        self._kept = None


class Looks:
    """Reads that many pages want at the same moment are made once."""

    def __init__(self, operations: Operations, now_s: Callable[[], float]) -> None:
        self._operations = operations
        self._now_s = now_s
        self._looking = asyncio.Lock()
        self._status = Look(operations.status, now_s)
        self._tables = Look(operations.tables, now_s)
        self._members = Look(operations.members, now_s)
        self._throughput = Throughput()
        self._arrivals = Arrivals()

    async def status(self) -> Status:
        """How the node is."""
        return await self._status.now()

    async def tables(self) -> list[TableView]:
        """The registered tables."""
        return await self._tables.now()

    def came(self, newest: int) -> int:
        """How many events came in lately, the newest being at this position of the log."""
        return self._arrivals.look(newest, self._now_s())

    def again(self) -> None:
        """Something was changed from here: read it anew."""
        self._status.again()
        self._tables.again()
        self._members.again()

    async def members(self) -> list[MemberView]:
        """Who is and was in."""
        return await self._members.now()

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
    invites: Invites = field(default_factory=Invites)


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
    under: str = ""  # the entry of the navigation that it belongs to, where it is none itself

    @property
    def url(self) -> str:
        """Where it is."""
        return self.path or f"/{self.name}"


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form that was sent; of two of one name the last. UsageError where it is too large, or slow."""
    body = bytearray()
    try:
        async with asyncio.timeout(FORM_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > FORM_BYTES:
                    raise UsageError(f"a form has at most {FORM_BYTES:,} bytes")
    except TimeoutError:
        raise UsageError(f"the form was not here within {FORM_S:.0f} seconds") from None
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
    """What came of an action: as a line where the page wants a line, else as a page with the way back.

    `kind` is good, bad, or info, which is for what somebody needs later: the line of a good one goes after a while.
    """
    context = {"text": text, "kind": kind, "back": back or "/"}
    template = "fragments/said.html" if by_htmx(request) else "said.html"
    return HTMLResponse(web.render(template, context), status)

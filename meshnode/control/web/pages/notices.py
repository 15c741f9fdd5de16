"""What came up here that somebody should know: how often, when last, an example, and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from meshnode.control.web import values
from meshnode.control.web.kinds import Kind, kind_of
from meshnode.control.web.live import Wake
from meshnode.control.web.paging import part_of
from meshnode.control.web.site import Context, Fragment, Page, Query, Web, form_of, said
from meshnode.control.web.texts import count, shown
from meshnode.errors import UsageError
from meshnode.node.views import NoticeView, Status

LINES: Final = 20  # notices on a page
CHOICES: Final = 12  # kinds to choose from, those with the most notices
PATH: Final = "/notices"


@dataclass(frozen=True, slots=True)
class NoticeLine:
    """One notice."""

    view: NoticeView
    kind: Kind
    name: str  # of the device that it is about, empty where it is about none
    member: str = ""  # the address of that device's page, where it is or was a member
    rows: str = ""  # the address of the table's page, where it takes part

    @property
    def what(self) -> str:
        """Which notice it is, for a button's name."""
        about = [shown(part, 32) for part in (self.name, self.view.table) if part]
        return ", ".join([self.kind.title, *about])


async def _lines(web: Web, query: Query) -> Context:
    everything, kind = query.get("show") == "all", query.get("kind") or None
    found = await web.operations.notices(everything=everything)
    status = await web.looks.status()
    tables = {each.table for each in await web.looks.tables() if not each.unusable}
    kinds = Counter(each.kind for each in found)
    chosen = [each for each in found if kind in (None, each.kind)]
    kept = {name: text for name, text in (("show", "all" if everything else ""), ("kind", kind or "")) if text}
    part = part_of(chosen, LINES, PATH, {**kept, "page": query.get("page", "1")})
    return {
        "lines": [line_of(each, status, tables) for each in part.items],
        "part": part,
        "everything": everything,
        "kind": kind,
        "total": len(chosen),
        "unseen": sum(not each.acknowledged for each in chosen),
        "until_ms": max((each.last_ms for each in chosen), default=0),
        "choices_of_kind": _choices(kinds, kind, everything=everything),
    }


def line_of(view: NoticeView, status: Status, tables: Container[str] = ()) -> NoticeLine:
    """One notice with its words, and the pages of what it is about."""
    known = {status.site: status.name} | {peer.site: peer.name for peer in status.peers}
    name = (known.get(view.site) or view.site[:8]) if view.site else ""
    member = values.address("/members", device=view.site) if view.site in known else ""
    rows = values.address("/tables/rows", table=view.table) if view.table in tables else ""
    return NoticeLine(view, kind_of(view.kind), name, member, rows)


def _choices(kinds: Counter[str], chosen: str | None, *, everything: bool) -> list[tuple[str, str, bool, int | None]]:
    def address(kind: str) -> str:
        query = {"show": "all" if everything else "", "kind": kind}
        return f"{PATH}?{urlencode({name: text for name, text in query.items() if text})}"

    common = [name for name, _ in kinds.most_common(CHOICES)]
    if chosen is not None and chosen not in common:
        common.append(chosen)
    every = ("Every kind", address(""), chosen is None, kinds.total())
    return [every, *((kind_of(name).title, address(name), name == chosen, kinds[name]) for name in common)]


def _routes(web: Web) -> Sequence[BaseRoute]:
    async def acknowledge(request: Request) -> Response:
        form = await form_of(request)
        number = form.get("id", "")
        if not (number.isascii() and number.isdigit() and len(number) < 19):
            raise UsageError("a notice is named by its number")
        await web.operations.acknowledge([int(number)])
        return _told(request, f"Notice {number} was seen: it comes up again when it arises again.")

    async def acknowledge_all(request: Request) -> Response:
        """Those that were shown or stood on further pages; not what arose since the page was drawn."""
        form = await form_of(request)
        until = form.get("until_ms", "")
        until_ms = int(until) if until.isascii() and until.isdigit() and len(until) < 19 else 0
        found = await web.operations.notices(kind=form.get("kind") or None)
        seen = [each.id for each in found if each.last_ms <= until_ms]
        done = (await web.operations.acknowledge(seen)).acknowledged if seen else 0
        newer = len(found) - len(seen)
        rest = f" {count(newer, 'notice')} arose meanwhile, and stay." if newer else ""
        return _told(request, f"{count(done, 'notice')} seen.{rest}")

    def _told(request: Request, text: str) -> Response:
        web.looks.again()
        web.hub.wake(Wake.NOTICES)
        return said(web, request, text, back=PATH)

    return [
        Route(f"{PATH}/acknowledge", acknowledge, methods=["POST"]),
        Route(f"{PATH}/acknowledge-all", acknowledge_all, methods=["POST"]),
    ]


PAGE: Final = Page(
    "notices",
    "Notices",
    "n",
    path=PATH,
    fragments=(Fragment("notices", frozenset({Wake.NOTICES, Wake.COARSE}), _lines),),
    routes=_routes,
    count=lambda status: len(status.notices),
)

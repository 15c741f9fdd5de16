"""The retained log as it grows, the newest first, and one event of it (SSP/1 §2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from meshnode.control.web.live import Wake
from meshnode.control.web.pages.row import download
from meshnode.control.web.people import People
from meshnode.control.web.site import Context, Fragment, Page, Query, Web
from meshnode.control.web.texts import shown
from meshnode.control.web.values import Shown, address, key_token, value_shown
from meshnode.errors import MeshError, NotFoundError, UsageError
from meshnode.model.event import parse_event_untrusted, split_event_untrusted
from meshnode.node.eventviews import VERDICTS, EventPage, EventQuery, EventView

EVENTS: Final = 100  # on one page, and never more nodes of it
INSIDE: Final = 24_000  # characters of the bytes and of each value of one event; a link has all of it
LOOKS: Final = 64  # reads of the log for an event that its id alone names
CHOICES: Final = 200  # tables and sites to choose from
_BEYOND: Final = 2**63 - 1  # above every position
_FILTERS: Final = ("table", "site", "verdict")


def _wanted(query: Query) -> EventQuery:
    table, site, verdict = (query.get(name) or None for name in _FILTERS)
    return EventQuery(table=table, site=site, verdict=verdict)


def _filtered(query: Query) -> dict[str, str]:
    return {name: query[name] for name in _FILTERS if query.get(name)}


def _position(query: Query, name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise UsageError(f"{name} takes a position of the log, not {shown(text, 40)!r}")
    return int(text)


async def _read(web: Web, query: Query) -> EventPage:
    """The page that the address names: the newest, those up to a position, or those just above one."""
    above, upto = _position(query, "above"), _position(query, "upto")
    if above is not None:
        found = await web.operations.events(_wanted(query), after=above, limit=EVENTS)
        older = found.events[0].position if found.events else above + 1
        return EventPage(events=found.events[::-1], position=older, more=above > 0)
    return await web.operations.events(_wanted(query), before=_BEYOND if upto is None else upto + 1, limit=EVENTS)


async def _events(web: Web, query: Query) -> Context:
    found = await _read(web, query)
    people, kept = People(await web.looks.status()), _filtered(query)
    live = _position(query, "above") is None and _position(query, "upto") is None
    newest = found.events[0].position if found.events else 0
    came = web.looks.came(newest) if live and not kept else 0
    return {
        "events": [_line(each, people) for each in found.events],
        "live": live,
        "came": max(came - EVENTS, 0),
        "filtered": bool(kept),
        "pause": address("/events", upto=str(newest), **kept) if live and newest else "",
        "resume": "/events" if not kept else address("/events", **kept),
        "older": address("/events", upto=str(found.position - 1), **kept) if found.more and found.position > 1 else "",
        "newer": "" if live or not newest else address("/events", above=str(newest), **kept),
        "looked": found.position if found.more and len(found.events) < EVENTS else 0,
    }


def _line(event: EventView, people: People) -> tuple[object, ...]:
    key = "" if event.key is None else ", ".join(value_shown(each, most=32).text for each in event.key.values())
    return event, people.of(event.site), key, address("/events/one", position=str(event.position))


async def _newer(web: Web, query: Query) -> Context:
    """Whether there is something that a page which stands still does not show."""
    top = _position(query, "upto")
    if top is None:
        return {"newer_than": 0}
    found = await web.operations.events(_wanted(query), before=_BEYOND, limit=1)
    return {"newer_than": max(found.events[0].position - top, 0) if found.events else 0}


async def _choices(web: Web, query: Query) -> Context:
    status = await web.looks.status()
    named = [each.table for each in await web.looks.tables()] + sorted(status.waiting)
    sites = [(each.site, shown(each.name or each.short, 40), each.short) for each in People(status).all[:CHOICES]]
    return {
        "choices": [(name, shown(name, 40)) for name in named[:CHOICES]],
        "sites": sites,
        "verdicts": VERDICTS,
        "chosen": {name: query.get(name, "") for name in _FILTERS},
    }


async def _one(web: Web, query: Query) -> Context:
    verify = bool(query.get("verify"))
    event = await event_at(web, query, verify=verify)
    data = bytes.fromhex(str(event.bytes))
    key = event.key or {}
    return {
        "title": f"Event {event.position:,}",
        "event": event,
        "verified": verify,
        "by": People(await web.looks.status()).of(event.site),
        "keys": [(shown(name, 40), value_shown(value, INSIDE)) for name, value in key.items()],
        "values": written(data),
        "data": value_shown(data, INSIDE),
        "check": address("/events/one", position=str(event.position), verify="1"),
        "download": address("/events/bytes", position=str(event.position)),
        "row": address("/tables/row", table=event.table, key=key_token(key)) if key else "",
    }


async def event_at(web: Web, query: Query, *, verify: bool = False) -> EventView:
    """The event of the position that the address names; NotFoundError."""
    position = _position(query, "position") or 0
    found = await web.operations.events(EventQuery(bytes=True, verify=verify), after=max(position - 1, 0), limit=1)
    if not found.events or found.events[0].position != position:
        raise NotFoundError(f"position {position:,} has no event: it was taken out, or never was")
    return found.events[0]


async def position_of(web: Web, id_: str, ms: int) -> int:
    """Where in the log the event of this id and clock is, looked for from the newest on; NotFoundError."""
    before = _BEYOND
    for _ in range(LOOKS):
        page = await web.operations.events(EventQuery(since_ms=ms, until_ms=ms), before=before, limit=EVENTS)
        found = next((each.position for each in page.events if each.id == id_), None)
        if found is not None:
            return found
        if not page.more:
            break
        before = page.position
    raise NotFoundError(f"event {shown(id_, 16)} is not in the log any more, or is far back in it")


def written(data: bytes) -> list[tuple[str, Shown]]:
    """What the event says of each column; nothing where it cannot be read, or deletes."""
    try:
        event = parse_event_untrusted(split_event_untrusted(data), data)
    except MeshError:
        return []
    columns = event.columns or {}
    room = INSIDE * 8 // max(len(columns), 8)
    return [(shown(name, 60), value_shown(value, room)) for name, value in columns.items()]


def _routes(web: Web) -> Sequence[BaseRoute]:
    async def exact(request: Request) -> Response:
        event = await event_at(web, dict(request.query_params))
        return download(bytes.fromhex(str(event.bytes)), f"event-{event.position}.cose")

    async def named(request: Request) -> Response:
        query = request.query_params
        position = await position_of(web, query.get("id", ""), _position({"ms": query.get("ms", "")}, "ms") or 0)
        return RedirectResponse(address("/events/one", position=str(position)), 303)

    return [Route("/events/bytes", exact), Route("/events/named", named)]


PAGE: Final = Page(
    "events",
    "Events",
    "e",
    fragments=(
        Fragment("newer", frozenset({Wake.CHANGES, Wake.TICK}), _newer),
        Fragment("events", frozenset({Wake.CHANGES, Wake.TICK}), _events),
    ),
    context=_choices,
    routes=_routes,
)
PARTS: Final = (Page("event", "Event", "", path="/events/one", context=_one, under="events"),)

"""One row: of each column its value, what kind of nothing it is otherwise, and which write that comes from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from meshnode.control.web.live import Wake
from meshnode.control.web.people import People, Person
from meshnode.control.web.site import Context, Fragment, Page, Query, Web
from meshnode.control.web.texts import shown
from meshnode.control.web.values import (
    CLEARED,
    EVICTED,
    UNMATERIALIZED,
    Shown,
    address,
    key_of,
    key_token,
    mark,
    value_shown,
)
from meshnode.errors import NotFoundError
from meshnode.node.views import CellView, ClockView, RowExplanation

PREVIEW: Final = 120  # characters of a value before it is opened
INSIDE: Final = 200_000  # characters of all opened values of a row together; each has an address with all of it
CONFLICTS: Final = 20  # of one row


@dataclass(frozen=True, slots=True)
class Write:
    """Who wrote something, and when."""

    by: Person
    ms: int
    logical: int
    event: str


@dataclass(frozen=True, slots=True)
class Cell:
    """One column."""

    name: str
    mark: str
    state: str
    value: Shown
    write: Write | None
    href: str  # of all of it, where it is long


async def _row(web: Web, query: Query) -> Context:
    table, key = query.get("table", ""), key_of(query.get("key", ""))
    found = await web.operations.explain(table, key)
    if found is None:
        raise NotFoundError(f"nothing was ever heard of such a row of table {shown(table)!r}")
    people = People(await web.looks.status())
    conflicts = [each for each in await web.operations.conflicts(table) if each.key == key]
    room = INSIDE // max(len(found.columns), 1)
    return {
        "found": found,
        "standing": _standing(found),
        "keys": [(shown(name, 40), value_shown(value, INSIDE // 16, PREVIEW)) for name, value in key.items()],
        "cells": [_cell(query, each, people, room) for each in found.columns],
        "existence": _write(found.existence, people),
        "tombstone": _write(found.tombstone, people),
        "conflicts": [
            (each, people.of(each.ours.site), value_shown(each.ours.value), people.of(each.theirs.site),
             value_shown(each.theirs.value))
            for each in conflicts[:CONFLICTS]
        ],
        "people": people,
    }  # fmt: skip


def _standing(found: RowExplanation) -> tuple[str, str]:
    if found.exists:
        return "good", "readers see it"
    if found.withheld:
        return "warn", "withheld"
    return "idle", "not in the table" if found.reason else "deleted"


def _cell(query: Query, cell: CellView, people: People, room: int) -> Cell:
    value = {"cleared": CLEARED, "unmaterialized": UNMATERIALIZED}.get(cell.state)
    if value is None:
        value = EVICTED if cell.value is msgspec.UNSET else value_shown(cell.value, room, PREVIEW)
    href = ""
    if value.large and not value.whole:
        href = address("/tables/value", table=query["table"], key=query["key"], column=cell.name)
    return Cell(shown(cell.name, 60), mark(cell.name), cell.state, value, _write(cell.clock, people), href)


def _write(clock: ClockView | None, people: People) -> Write | None:
    return None if clock is None else Write(people.of(clock.site), *clock.hlc, clock.event)


def value_of(web: Web) -> Callable[[Request], Awaitable[Response]]:
    """All of one value: text as text, bytes as a file. Neither is ever taken for a page (`nosniff`)."""

    async def answer(request: Request) -> Response:
        query = request.query_params
        found = await web.operations.explain(query.get("table", ""), key_of(query.get("key", "")))
        cells = {} if found is None else {each.name: each.value for each in found.columns}
        value: Any = cells.get(query.get("column", ""), msgspec.UNSET)
        if value is msgspec.UNSET:
            raise NotFoundError("there is no such value")
        if isinstance(value, bytes):
            return download(value, "value.bin")
        return Response(str(value).encode("utf-8", "backslashreplace"), media_type="text/plain; charset=utf-8")

    return answer


def download(data: bytes, name: str) -> Response:
    """Bytes as a file of their own."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(data, media_type="application/octet-stream", headers=headers)


async def _title(_web: Web, query: Query) -> Context:
    key = key_of(query.get("key", ""))
    named = ", ".join(shown(value.hex() if isinstance(value, bytes) else value, 40) for value in key.values())
    back = address("/tables/rows", table=query.get("table", ""))
    return {"title": named or "Row", "back": back, "table_name": shown(query.get("table", "")), "key": key_token(key)}


PAGE: Final = Page(
    "row",
    "Row",
    "",
    path="/tables/row",
    fragments=(Fragment("row", frozenset({Wake.CHANGES, Wake.CONFLICTS}), _row),),
    context=_title,
    under="tables",
)

"""The tables that take part, and the ways to change what they are to the mesh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from meshnode.control.web.live import Wake
from meshnode.control.web.pages import row, rows
from meshnode.control.web.site import Context, Fragment, Page, Query, Web, form_of, said
from meshnode.control.web.texts import asked, count, shown
from meshnode.control.web.values import address, mark
from meshnode.model.policy import TableClass

LINES: Final = 500  # tables on the page; `meshnode table list` has all
WHAT_CLASSES_ARE: Final = {
    "shared": "every member gets it",
    "raw": "it crosses the mesh only where raw ingress is replicated",
    "private": "it never leaves this device",
}


async def _tables(web: Web, _query: Query) -> Context:
    status, tables = await web.looks.status(), await web.looks.tables()
    return {
        "tables": [(each, address("/tables/rows", table=each.table), mark(each.table)) for each in tables[:LINES]],
        "tables_more": max(len(tables) - LINES, 0),
        "retired": status.retired,
        "waiting": sorted(status.waiting.items())[:LINES],
    }


def _routes(web: Web) -> Sequence[BaseRoute]:
    async def digest(request: Request) -> Response:
        table = (await form_of(request)).get("table", "")
        (found,) = await web.operations.digest(table)
        text = f"Digest of {shown(table)} over {count(found.rows, 'row')}: `{found.digest}`"
        return said(web, request, text, kind="info", back="/tables")

    async def request_sync(request: Request) -> Response:
        table = (await form_of(request)).get("table", "")
        receipt = await web.operations.request_sync(table=table)
        text = asked(shown(table), len(receipt.asked), sum(each.linked for each in receipt.asked))
        return said(web, request, text, back="/tables")

    async def classify(request: Request) -> Response:
        form = await form_of(request)
        table, kind = form.get("table", ""), form.get("class", "")
        await web.operations.classify(table, kind)
        web.looks.again()
        text = f"{shown(table)} is {shown(kind)} from now on: {WHAT_CLASSES_ARE.get(kind, '')}."
        return said(web, request, text, back=address("/tables/rows", table=table))

    return [
        Route("/tables/digest", digest, methods=["POST"]),
        Route("/tables/request-sync", request_sync, methods=["POST"]),
        Route("/tables/classify", classify, methods=["POST"]),
        Route("/tables/value", row.value_of(web)),
    ]


PAGE: Final = Page(
    "tables",
    "Tables",
    "t",
    fragments=(Fragment("tables", frozenset({Wake.CHANGES, Wake.TICK}), _tables),),
    routes=_routes,
)
PARTS: Final = (rows.page([(each.value, WHAT_CLASSES_ARE[each.value]) for each in TableClass]), row.PAGE)

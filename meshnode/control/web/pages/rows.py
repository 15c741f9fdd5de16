"""The rows of one table, fifty at a time in the order of their keys: a page of the middle of it stays where it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from meshnode.control.web.live import Wake
from meshnode.control.web.site import Context, Fragment, Page, Query, Web
from meshnode.control.web.texts import shown
from meshnode.control.web.values import Shown, address, cells_of, key_of, key_token, key_typed, mark
from meshnode.errors import NotFoundError
from meshnode.node.views import RowView, TableView

ROWS: Final = 50  # on one page
COLUMNS: Final = 10  # beside the key; the page of a row has all


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the page."""

    mark: str
    href: str  # empty where the key is too long for an address
    cells: list[Shown]


async def table_named(web: Web, query: Query) -> TableView:
    """The table that the address names; NotFoundError."""
    name = query.get("table", "")
    found = next((each for each in await web.looks.tables() if each.table == name), None)
    if found is None:
        raise NotFoundError(f"no table {shown(name)!r} takes part in the mesh: `meshnode table list` shows them")
    if found.unusable:
        raise NotFoundError(f"table {shown(name)!r} cannot be used as it stands: {found.unusable}")
    return found


async def _rows(web: Web, query: Query) -> Context:
    table = await table_named(web, query)
    found, back, on = await _page(web, table, query)
    shown_columns = table.columns[:COLUMNS]
    names = [column.name for column in (*table.key, *shown_columns)]
    return {
        "table": table,
        "columns": [shown(name, 40) for name in names],
        "columns_more": len(table.columns) - len(shown_columns),
        "keys": len(table.key),
        "lines": [_line(table.table, names, row) for row in found],
        "previous": address("/tables/rows", table=table.table, before=key_token(found[0].key)) if back else "",
        "next": address("/tables/rows", table=table.table, after=key_token(found[-1].key)) if on else "",
        "first": address("/tables/rows", table=table.table) if _inside(query) else "",
    }


async def _page(web: Web, table: TableView, query: Query) -> tuple[Sequence[RowView], bool, bool]:
    """The rows, and whether there are others before them and after."""
    read, name = web.operations.rows, table.table
    found: Sequence[RowView]
    if "k0" in query:
        key = key_typed(table, query)
        here = await web.operations.get(name, key)
        found = [*([here] if here is not None else []), *await read(name, limit=ROWS - 1, after=key)]
    elif "before" in query:
        found = await read(name, limit=ROWS, before=key_of(query["before"]))
    else:
        found = await read(name, limit=ROWS, after=key_of(query["after"]) if "after" in query else None)
    if not found:
        return found, False, False
    back = _inside(query) and bool(await read(name, limit=1, before=found[0].key))
    return found, back, bool(await read(name, limit=1, after=found[-1].key))


def _inside(query: Query) -> bool:
    return not query.keys().isdisjoint(("k0", "before", "after"))


def _line(table: str, names: Sequence[str], row: RowView) -> Line:
    token = key_token(row.key)
    return Line(mark(token), address("/tables/row", table=table, key=token), cells_of(names, row.flat(), row.cleared))


def page(classes: Sequence[tuple[str, str]]) -> Page:
    """The page, with what a table can be to the mesh."""

    async def fixed(web: Web, query: Query) -> Context:
        table = await table_named(web, query)
        typed = [(f"k{at}", shown(column.name, 40), query.get(f"k{at}", "")) for at, column in enumerate(table.key)]
        return {"title": shown(table.table), "typed": typed, "classes": classes,
                "retired": (await web.looks.status()).retired}  # fmt: skip

    async def about(web: Web, query: Query) -> Context:
        return {"table": await table_named(web, query)}

    return Page(
        "rows",
        "Rows",
        "",
        path="/tables/rows",
        fragments=(
            Fragment("about-table", frozenset({Wake.CHANGES, Wake.TICK}), about),
            Fragment("rows", frozenset({Wake.CHANGES}), _rows),
        ),
        context=fixed,
        under="tables",
    )

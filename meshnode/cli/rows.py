"""Show the rows of a table, in the order of their keys' bytes."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from meshnode.cli import connect
from meshnode.cli.columns import find_table
from meshnode.cli.output import JsonRows, print_table
from meshnode.errors import UsageError
from meshnode.node.api import ROWS_PER_PAGE, Operations
from meshnode.node.jsonvalues import to_json_builtins
from meshnode.node.views import RowView

if TYPE_CHECKING:
    from meshnode.node.reads import Reading


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("table", metavar="TABLE", help="the table: NAME, or SCHEMA.NAME")
    parser.add_argument("--limit", type=int, metavar="N", help="at most so many rows (default: all)")


def run(options: argparse.Namespace) -> int:
    """Show them."""
    if options.limit is not None and options.limit < 0:
        raise UsageError("--limit is not below 0")
    connect.run(_rows(options))
    return 0


async def _rows(options: argparse.Namespace) -> None:
    async with connect.reading(options) as operations:
        table = await find_table(operations, options.table)
        pages = _pages(operations, table.table, options.limit)
        if options.output in ("json", "jsonl"):
            printer = JsonRows(options.output)
            async for page in pages:
                printer.add(row.flat() for row in page)
            printer.close()
            return
        names = [column.name for column in (*table.key, *table.columns)]
        print_table([to_json_builtins(row.flat()) async for page in pages for row in page], names)


async def _pages(operations: Operations | Reading, table: str, limit: int | None) -> AsyncIterator[list[RowView]]:
    """Pages of rows until the limit or the end: what is printed as JSON is never all in memory."""
    left = limit
    after = None
    while left is None or left > 0:
        size = ROWS_PER_PAGE if left is None else min(left, ROWS_PER_PAGE)
        page = await operations.rows(table, limit=size, after=after)
        if not page:
            return
        yield page
        after = page[-1].key
        left = None if left is None else left - len(page)

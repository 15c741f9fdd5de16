"""Show one row; the exit code is 1 where there is no such row."""

from __future__ import annotations

import argparse

from meshnode.cli import connect
from meshnode.cli.columns import find_table, parse_fields, split_key
from meshnode.cli.output import print_one
from meshnode.errors import NotFoundError, UsageError
from meshnode.node.views import RowView


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("table", metavar="TABLE")
    parser.add_argument("fields", metavar="COLUMN=TEXT|COLUMN:=JSON", nargs="+", help="the key columns")


def run(options: argparse.Namespace) -> int:
    """Show it."""
    row = connect.run(_get(options))
    if row is None:
        raise NotFoundError(f"no row {' '.join(options.fields)} in table {options.table}")
    print_one(row.flat(), options.output)
    return 0


async def _get(options: argparse.Namespace) -> RowView | None:
    async with connect.reading(options) as operations:
        table = await find_table(operations, options.table)
        key, others = split_key(table, parse_fields(options.fields, table))
        if others:
            raise UsageError(f"a row is found by its key; {', '.join(others)} is not part of it")
        return await operations.get(table.table, key)

"""Delete one row, here and on every device that gets to know of it."""

from __future__ import annotations

import argparse

from meshnode.cli import connect
from meshnode.cli.columns import find_table, parse_fields, split_key
from meshnode.cli.output import print_one
from meshnode.errors import UsageError
from meshnode.node.views import Receipt


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("table", metavar="TABLE", help="the table: NAME, or SCHEMA.NAME")
    parser.add_argument(
        "fields", metavar="COLUMN=TEXT|COLUMN:=JSON", nargs="+", help="the columns of the key, all of them"
    )


def run(options: argparse.Namespace) -> int:
    """Delete it."""
    receipt = connect.run(_remove(options))
    if options.output in ("json", "jsonl"):
        print_one(receipt, options.output)
    return 0


async def _remove(options: argparse.Namespace) -> Receipt:
    async with connect.writing(options, "rm") as operations:
        table = await find_table(operations, options.table)
        key, others = split_key(table, parse_fields(options.fields, table))
        if others:
            raise UsageError(f"a row is deleted by its key; {', '.join(others)} is not part of it")
        return await operations.remove(table.table, key)

"""Write one row: the columns named get these values, the others stay as they are.

COLUMN=TEXT takes the text as the type of the column has it (hex in a BLOB), COLUMN:=JSON takes JSON: `done:=0`,
`title:=null`. The key is told like any column. When this returns the row is signed and on the disk.
"""

from __future__ import annotations

import argparse

from meshnode.cli import connect
from meshnode.cli.columns import find_table, parse_fields, split_key
from meshnode.cli.output import print_one
from meshnode.node.views import Receipt


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("table", metavar="TABLE", help="the table: NAME, or SCHEMA.NAME")
    parser.add_argument(
        "fields", metavar="COLUMN=TEXT|COLUMN:=JSON", nargs="+", help="the key and the columns; `:=null` clears one"
    )


def run(options: argparse.Namespace) -> int:
    """Write it; it is signed and on disk when this returns."""
    receipt = connect.run(_put(options))
    if options.output in ("json", "jsonl"):
        print_one(receipt, options.output)
    return 0


async def _put(options: argparse.Namespace) -> Receipt:
    async with connect.writing(options, "put") as operations:
        table = await find_table(operations, options.table)
        key, columns = split_key(table, parse_fields(options.fields, table))
        return await operations.put(table.table, key, columns)

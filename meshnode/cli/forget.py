"""Take one row away on this device and erase it from the database files; nothing of it that comes later is kept.

Other devices keep the row. With --undo, events of the row are taken again, and the other devices are asked for them.
What an application copied elsewhere, backups and the free space of the disk are not reached.
"""

from __future__ import annotations

import argparse

from meshnode.cli import connect
from meshnode.cli.columns import find_table, parse_fields, split_key
from meshnode.cli.output import print_one
from meshnode.errors import UsageError
from meshnode.node.views import ForgetReport


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("table", metavar="TABLE", help="the table: NAME, or SCHEMA.NAME")
    parser.add_argument(
        "fields", metavar="COLUMN=TEXT|COLUMN:=JSON", nargs="+", help="the columns of the key, all of them"
    )
    parser.add_argument("--undo", action="store_true", help="take events of the row again")


def run(options: argparse.Namespace) -> int:
    """Forget it."""
    print_one(connect.run(_forget(options)), options.output)
    return 0


async def _forget(options: argparse.Namespace) -> ForgetReport:
    async with connect.writing(options, "forget") as operations:
        table = await find_table(operations, options.table)
        key, others = split_key(table, parse_fields(options.fields, table))
        if others:
            raise UsageError(f"a row is forgotten by its key; {', '.join(others)} is not part of it")
        return await operations.forget(table.table, key, undo=options.undo)

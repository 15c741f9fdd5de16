"""Drop events that no row's present or future state can need, of one table or of all; no row changes anywhere.

It costs the history of rows, and what a device that is retired later had superseded cannot be restored from here.
"""

from __future__ import annotations

import argparse

from meshnode.cli import connect
from meshnode.cli.output import print_one
from meshnode.node.views import RetentionReport, parse_table


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("table", metavar="TABLE", nargs="?", help="the table (default: every one)")


def run(options: argparse.Namespace) -> int:
    """Compact."""
    if options.table is not None:
        parse_table(options.table)
    print_one(connect.run(_compact(options)), options.output)
    return 0


async def _compact(options: argparse.Namespace) -> RetentionReport:
    async with connect.writing(options, "compact") as operations:
        return await operations.compact(options.table)

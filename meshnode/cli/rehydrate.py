"""Drop the horizon that `evict` set, and ask the other devices for the table's history; it comes as they answer."""

from __future__ import annotations

import argparse

from meshnode.cli import connect
from meshnode.cli.output import print_one
from meshnode.node.views import HistoryRequest, parse_table


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("table", metavar="TABLE", help="the table: NAME, or SCHEMA.NAME")


def run(options: argparse.Namespace) -> int:
    """Ask."""
    parse_table(options.table)
    print_one(connect.run(_rehydrate(options)), options.output)
    return 0


async def _rehydrate(options: argparse.Namespace) -> HistoryRequest:
    async with connect.writing(options, "rehydrate") as operations:
        return await operations.rehydrate(options.table)

"""Ask the other members, or one, for what may be missing here, and start a cycle with them now.

The request is kept until each has answered, over restarts and with peers that are away: they answer when they link.
What they send is of each row what its state needs; `rehydrate` asks for a table's whole history.
"""

from __future__ import annotations

import argparse

from meshnode.cli import connect
from meshnode.cli.output import print_many, print_one
from meshnode.node.syncviews import SyncRequest
from meshnode.node.views import parse_table

_SHOWN = ("short", "name", "table", "linked", "id")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("peer", nargs="?", metavar="PEER", help="site id or name (default: every member)")
    parser.add_argument("--table", metavar="NAME", help="this table alone (default: every one)")


def run(options: argparse.Namespace) -> int:
    """Ask, and show what was asked of whom."""
    if options.table is not None:
        parse_table(options.table)
    receipt = connect.run(_ask(options))
    if options.output == "json":
        print_one(receipt, options.output)
    else:
        print_many(receipt.asked, options.output, _SHOWN)
    return 0


async def _ask(options: argparse.Namespace) -> SyncRequest:
    async with connect.writing(options, "request-sync") as operations:
        return await operations.request_sync(options.peer, table=options.table)

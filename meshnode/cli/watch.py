"""Show changes as they happen, a line of JSON each, until interrupted or the node ends.

`seq` numbers the changes of this node; `op` says what happened, `columns` has what changed. Whoever was away for longer
than this node remembers is told every row instead.
"""

from __future__ import annotations

import argparse

from meshnode.cli import connect
from meshnode.cli.columns import find_table
from meshnode.cli.output import json_line
from meshnode.errors import UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("table", metavar="TABLE", nargs="?", help="changes of this table alone (default: every one)")
    parser.add_argument(
        "--since", type=int, metavar="SEQ", help="first show the changes after this `seq`, without a gap"
    )


def run(options: argparse.Namespace) -> int:
    """Follow them."""
    if options.since is not None and options.since < 0:
        raise UsageError("--since is not below 0")
    connect.run(_watch(options))
    return 0


async def _watch(options: argparse.Namespace) -> None:
    async with connect.reading(options) as operations:
        table = None if options.table is None else (await find_table(operations, options.table)).table
        async for change in operations.changes(since=options.since, table=table):
            print(json_line(change), flush=True)

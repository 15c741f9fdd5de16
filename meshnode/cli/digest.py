"""Show the digest of tables: two nodes print the same where they hold the same rows."""

from __future__ import annotations

import argparse

from meshnode.cli import connect
from meshnode.cli.columns import find_table
from meshnode.cli.output import print_many
from meshnode.node.views import TableDigest


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("table", metavar="TABLE", nargs="?", help="this table alone (default: every one)")


def run(options: argparse.Namespace) -> int:
    """Print them."""
    print_many(connect.run(_digest(options)), options.output, ("table", "digest", "rows"))
    return 0


async def _digest(options: argparse.Namespace) -> list[TableDigest]:
    async with connect.reading(options) as operations:
        table = None if options.table is None else (await find_table(operations, options.table)).table
        return await operations.digest(table)

"""Show the causal frontier: of each site how many batches this node knows of. Evidence of order, and of nothing else.

It decides nothing: who is trusted is in the membership, and which value a cell has is in the events' clocks.
"""

from __future__ import annotations

import argparse
import sys

from meshnode.cli import connect
from meshnode.cli.output import print_many
from meshnode.node.syncviews import FrontierView

_SHOWN = ("site", "name", "counter", "local")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--peer", metavar="SITE|NAME", help="this peer's slot alone")


def run(options: argparse.Namespace) -> int:
    """Show it, by site."""
    print_many(connect.run(_frontier(options)), options.output, _SHOWN)
    if options.output not in ("json", "jsonl"):
        print("Ordering evidence: no measure of trust, nor of how far anybody is.", file=sys.stderr)
    return 0


async def _frontier(options: argparse.Namespace) -> list[FrontierView]:
    async with connect.reading(options) as operations:
        return await operations.frontier(options.peer)

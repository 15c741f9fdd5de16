"""Give an adopted database back: triggers and the node's tables go, the application's tables stay as they are.

The node keeps its log, and is a member as before: its tables move into a file of its own again. What others write into
those tables from now on is held, and applied if they are adopted once more. No node may run here meanwhile.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from meshnode.cli import connect
from meshnode.cli.output import print_one
from meshnode.node.adoptviews import ReleasedView


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("database", nargs="?", metavar="FILE", help="the database (default: the one that is adopted)")


def run(options: argparse.Namespace) -> int:
    """Release it, and say what takes part no longer."""
    print_one(connect.run(_release(options)), options.output)
    return 0


async def _release(options: argparse.Namespace) -> ReleasedView:
    from meshnode.node.adopting import release

    async with connect.resting(options, "release") as home:
        return await release(home, None if options.database is None else Path(options.database))

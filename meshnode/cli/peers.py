"""Show the other members of the mesh, linked or not.

`behind` counts the events here that a member has not acknowledged, `ahead` what it told of and is not here yet.
"""

from __future__ import annotations

import argparse

from meshnode.cli import connect
from meshnode.cli.output import print_many
from meshnode.node.views import PeerView

_SHOWN = ("short", "name", "role", "linked", "address", "behind", "ahead", "note")


def configure(parser: argparse.ArgumentParser) -> None:
    """No flags of its own."""


def run(options: argparse.Namespace) -> int:
    """Show them."""
    print_many(connect.run(_peers(options)), options.output, _SHOWN)
    return 0


async def _peers(options: argparse.Namespace) -> list[PeerView]:
    async with connect.reading(options) as operations:
        return await operations.peers()

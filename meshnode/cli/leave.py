"""Retire this very device: its rows stay on it and can be read, nothing can be written, and its key is of no more use.

A running node first lets the members that it is linked to have what was written here, then waits until they know.
"""

from __future__ import annotations

import argparse

from meshnode.cli import connect
from meshnode.cli.output import print_one, printable
from meshnode.cli.questions import LAST, add_yes, require_yes
from meshnode.node.memberviews import LeaveView, only_authority


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_yes(parser)


def run(options: argparse.Namespace) -> int:
    """Leave."""
    require_yes(options, connect.run(_question(options)))
    view = connect.run(_leave(options))
    if options.output in ("json", "jsonl"):
        print_one(view, options.output)
        return 0
    print(f"This device, {printable(view.name)!r} ({view.short}), has left the mesh; its rows can still be read.")
    if view.untold:
        print(f"Not told yet: {printable(', '.join(view.untold))}. Let `meshnode up` run until one of them is linked.")
    return 0


async def _question(options: argparse.Namespace) -> str:
    async with connect.reading(options) as operations:
        views = await operations.members()
    only = only_authority(views)
    last = f" {LAST}" if only is not None and only.own else ""
    return f"Leave the mesh for good, as this device? It can come back only as a new one.{last}"


async def _leave(options: argparse.Namespace) -> LeaveView:
    async with connect.writing(options, "leave") as operations:
        return await operations.leave()

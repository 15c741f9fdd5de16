"""Let a device in by its public key, or in again: one whose vouch counts no more, since who let it in was retired.

An invite is the usual way for a device to come in. SITE is a site id, long or short, a name, or 64 hex digits of a key.
"""

from __future__ import annotations

import argparse

from meshnode.cli import connect
from meshnode.cli.output import print_one, printable
from meshnode.cli.recovery import add_recovery, recovery_of
from meshnode.node.memberviews import RecordView


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "site", metavar="SITE", help="the device: its site id, its name, or 64 hex digits of its public key"
    )
    parser.add_argument("--name", default="", help="what other people see the device called (default: as before)")
    add_recovery(parser)


def run(options: argparse.Namespace) -> int:
    """Vouch for it."""
    view = connect.run(_vouch(options))
    if options.output in ("json", "jsonl"):
        print_one(view, options.output)
    else:
        print(f"{printable(view.by)} vouched for {printable(view.name)!r} ({view.short}): it is a member.")
    return 0


async def _vouch(options: argparse.Namespace) -> RecordView:
    async with connect.writing(options, "vouch") as operations:
        return await operations.vouch(options.site, name=options.name, **recovery_of(options))

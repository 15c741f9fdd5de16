"""Say what a member may do from now on: an `authority` lets others in and retires them, a `reader` writes nothing.

A device that signs this is a senior authority itself, or --recovery names the file of the recovery key, which stands
above all of them. SITE is a site id, long or short, or a name; `meshnode members` lists them.
"""

from __future__ import annotations

import argparse

from meshnode.cli import connect
from meshnode.cli.output import print_one, printable
from meshnode.cli.questions import LAST, add_yes, require_yes
from meshnode.cli.recovery import add_recovery, recovery_of
from meshnode.node.memberviews import RecordView, only_authority
from meshnode.node.naming import view_called


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("site", metavar="SITE", help="the device: its site id, long or short, or its name")
    parser.add_argument(
        "role",
        choices=("authority", "member", "reader"),
        metavar="authority|member|reader",
        help="what it may do from now on",
    )
    add_recovery(parser)
    add_yes(parser)


def run(options: argparse.Namespace) -> int:
    """Give it the role."""
    if options.role != "authority" and connect.run(_is_last(options)):
        require_yes(options, f"Make {printable(options.site)!r} {_ARTICLE[options.role]}? {LAST}")
    view = connect.run(_role(options))
    if options.output in ("json", "jsonl"):
        print_one(view, options.output)
    else:
        print(f"{printable(view.name)!r} ({view.short}) is {_ARTICLE[view.role]} from now on, by {printable(view.by)}.")
    return 0


_ARTICLE = {"authority": "an authority", "member": "a member", "reader": "a reader"}


async def _is_last(options: argparse.Namespace) -> bool:
    """Whether the mesh would be without an authority."""
    async with connect.reading(options) as operations:
        views = await operations.members()
    return view_called(options.site, views) == only_authority(views)


async def _role(options: argparse.Namespace) -> RecordView:
    async with connect.writing(options, "role") as operations:
        return await operations.set_role(options.site, options.role, **recovery_of(options))

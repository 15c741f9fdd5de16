"""Show what came up on this node that somebody should know, the latest first; or acknowledge it.

`meshnode notices acknowledge 3 5`, or `acknowledge --all`, hides them until they arise again; `notices --all` shows
those as well. `meshnode notices --follow` shows those there are, the latest last, and then each as it arises; with
`--output json` too that is a line each, since the list has no end.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from meshnode.cli import connect
from meshnode.cli.output import TableRows, json_line, print_many, print_one, print_table
from meshnode.errors import UsageError
from meshnode.model.wording import time_text
from meshnode.node.views import AcknowledgedView, NoticeView

_SHOWN = ("id", "kind", "when", "site", "table", "count", "acknowledged", "sample")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "action",
        metavar="acknowledge",
        nargs="?",
        choices=("acknowledge",),
        help="acknowledge notices, instead of showing them",
    )
    parser.add_argument(
        "ids", metavar="ID", nargs="*", type=int, help="the notices, by the ids that they are shown with"
    )
    parser.add_argument("--follow", action="store_true", help="go on with those that arise, until interrupted")
    parser.add_argument("--kind", metavar="KIND", help="notices of this kind alone")
    parser.add_argument("--all", action="store_true", help="acknowledged ones too; with acknowledge: all there are")


def run(options: argparse.Namespace) -> int:
    """Show, follow or acknowledge them."""
    if options.action:
        if bool(options.ids) is options.all or options.follow or options.kind:
            raise UsageError("acknowledge takes the ids of notices, or --all, and nothing else")
        print_one(connect.run(_acknowledge(options)), options.output)
    elif options.follow:
        connect.run(_follow(options))
    else:
        found = connect.run(_notices(options))
        if options.output in ("json", "jsonl"):
            print_many(found, options.output)
        else:
            print_table([_line(each) for each in found], _SHOWN)
    return 0


async def _notices(options: argparse.Namespace) -> list[NoticeView]:
    async with connect.reading(options) as operations:
        return await operations.notices(kind=options.kind, everything=options.all)


async def _follow(options: argparse.Namespace) -> None:
    async with connect.reading(options) as operations:
        rows = TableRows()
        async for notice in operations.follow_notices(kind=options.kind, everything=options.all):
            if options.output in ("json", "jsonl"):
                print(json_line(notice), flush=True)
            else:
                rows.add([_line(notice)])
                sys.stdout.flush()


async def _acknowledge(options: argparse.Namespace) -> AcknowledgedView:
    async with connect.writing(options, "notices") as operations:
        return await operations.acknowledge(None if options.all else options.ids)


def _line(notice: NoticeView) -> dict[str, Any]:
    return {
        "id": notice.id,
        "kind": notice.kind,
        "when": time_text(notice.last_ms),
        "site": notice.site[:8],
        "table": notice.table,
        "count": notice.count,
        "acknowledged": "yes" if notice.acknowledged else "",
        "sample": notice.sample,
    }

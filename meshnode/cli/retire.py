"""End a device for good: one that was lost, stolen or given away.

Its links close, what it wrote after the cutoff is dropped on every node and taken back where it was applied, what it
wrote before stays. It cannot come back with its key; it can as a new device, by an invite. Whoever holds it may date
what it writes before the cutoff: `--at` names a time from which it was in other hands. Whom it alone let in after that
would be out as well, with all that they wrote: `vouch` first for those that are to stay. --recovery names the file of
the recovery key, which stands above every device. SITE is a site id, long or short, or a name.
"""

from __future__ import annotations

import argparse

from meshnode.cli import connect
from meshnode.cli.evict import time_ms
from meshnode.cli.output import print_one, printable
from meshnode.cli.questions import LAST, add_yes, require_yes
from meshnode.cli.recovery import add_recovery, recovery_of
from meshnode.node.memberviews import MemberView, RecordView, only_authority
from meshnode.node.naming import view_called


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("site", metavar="SITE", help="the device: its site id, long or short, or its name")
    parser.add_argument(
        "--at",
        metavar="TIME",
        help="the cutoff: 2026-11-30, 2026-11-30T17:00 (UTC unless it names an offset), or milliseconds since 1970 "
        "(default: now)",
    )
    parser.add_argument(
        "--and-whom-it-let-in",
        action="store_true",
        help="end those too that it alone let in after that time, with what they wrote",
    )
    add_recovery(parser)
    add_yes(parser)


def run(options: argparse.Namespace) -> int:
    """Retire it."""
    at_ms = None if options.at is None else time_ms(options.at)
    member, last = connect.run(_member(options))
    own = " It is this very device: `meshnode leave` waits until the others have what it wrote." if member.own else ""
    require_yes(
        options,
        f"Retire {printable(member.name)!r} ({member.short}) from {options.at or 'now'} on? What it writes after that "
        f"is dropped everywhere, and this cannot be undone.{last}{own}",
    )
    view = connect.run(_retire(options, member, at_ms))
    if options.output in ("json", "jsonl"):
        print_one(view, options.output)
        return 0
    print(f"{printable(view.name)!r} ({view.short}) is retired, by {printable(view.by)}.")
    if view.lost:
        print(
            f"No members any more, since it alone had let them in: {printable(', '.join(view.lost))}. "
            "`meshnode vouch SITE` lets one in again."
        )
    return 0


async def _member(options: argparse.Namespace) -> tuple[MemberView, str]:
    async with connect.reading(options) as operations:
        views = await operations.members()
    member = view_called(options.site, views)
    return member, f" {LAST}" if only_authority(views) == member else ""


async def _retire(options: argparse.Namespace, member: MemberView, at_ms: int | None) -> RecordView:
    async with connect.writing(options, "retire") as operations:
        return await operations.retire(
            member.site, at_ms=at_ms, alone=not options.and_whom_it_let_in, **recovery_of(options)
        )

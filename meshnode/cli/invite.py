"""Let another device in: prints an invite, as text and as a QR code, that works once and for a short time."""

from __future__ import annotations

import argparse
import math
import sys

from meshnode.cli import connect
from meshnode.errors import UsageError
from meshnode.limits import INVITE_TTL_MS
from meshnode.node.views import InviteView

_MINUTES = INVITE_TTL_MS // 60_000
_LONGEST_MINUTES = 7 * 24 * 60


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "--minutes", type=float, default=float(_MINUTES), metavar="N", help=f"how long it lives (default: {_MINUTES})"
    )
    parser.add_argument("--no-qr", action="store_true", help="print the text alone")


def run(options: argparse.Namespace) -> int:
    """Open one and show it."""
    if not (math.isfinite(options.minutes) and 0 < options.minutes <= _LONGEST_MINUTES):
        raise UsageError(f"--minutes takes a number above 0 and at most {_LONGEST_MINUTES}")
    view = connect.run(_invite(options))
    if options.output in ("json", "jsonl"):
        from meshnode.cli.output import print_one

        print_one(view, options.output)
        return 0
    _print(view, options)
    return 0


async def _invite(options: argparse.Namespace) -> InviteView:
    async with connect.writing(options, "invite") as operations:
        return await operations.invite(max(1, int(options.minutes * 60_000)))


def _print(view: InviteView, options: argparse.Namespace) -> None:
    """The invite alone on standard output, for scripts; what a person wants beside it on standard error."""
    if not options.no_qr and sys.stdout.isatty():
        import segno

        # In capitals, which mean the same, the code takes a third less room.
        segno.make(view.invite.upper(), error="l").terminal(compact=True)
    print(view.invite)
    print(
        f"\nOn the other device, within {options.minutes:g} minutes: `meshnode join INVITE`, or `meshnode join -` and "
        "paste it there (that keeps it out of the list of processes).\n"
        "Who sees it can use it, once. `meshnode up` has to be running here.",
        file=sys.stderr,
    )

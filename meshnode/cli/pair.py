"""Become a member of a mesh by a device close by, without an invite: on that one, `meshnode nearby --open`.

Both devices show six digits; say yes on both only if they are the same ones. DEVICE is the other one's name, short id
or site id as `meshnode nearby` shows it, or its `host:port` as `meshnode nearby --open` does.
"""

from __future__ import annotations

import argparse
import sys

from meshnode.cli import connect
from meshnode.cli.join import add_joining_flags, check_timeout, print_joined
from meshnode.cli.nearby import spaced
from meshnode.cli.output import printable
from meshnode.cli.questions import ask_meanwhile
from meshnode.node.nearby import Comparison
from meshnode.node.pairing_views import JoinView


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("device", metavar="DEVICE", help="the device that was opened: its name, an id, or host:port")
    add_joining_flags(parser, "the other device", 30)


def run(options: argparse.Namespace) -> int:
    """Pair with it."""
    check_timeout(options)
    print_joined(connect.run(_pair(options)), options.output)
    return 0


async def _pair(options: argparse.Namespace) -> JoinView:
    from meshnode.node.nearby_join import pair_nearby

    print(f"Looking for {printable(options.device)!r} on this network …", file=sys.stderr, flush=True)
    home = connect.home_of(options)
    return await pair_nearby(home, options.device, ask=_ask, name=options.name, timeout_s=options.timeout)


async def _ask(comparison: Comparison) -> bool:
    name = printable(repr(comparison.name))
    return await ask_meanwhile(f"Does {name} show the same digits, {spaced(comparison.code)}?") or False

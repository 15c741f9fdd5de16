"""Wait until every member has everything, or the time is over.

Who is behind then is named. A node that is still starting is waited for.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys

from meshnode.cli import connect
from meshnode.cli.output import print_one, printable
from meshnode.errors import UsageError
from meshnode.node.views import WaitResult

BEHIND = 2  # exit code
_DEFAULT_TIMEOUT_S = 60.0  # seconds
_LOOK_S = 0.2  # between two looks for a node that starts


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    whom = parser.add_mutually_exclusive_group()
    whom.add_argument("--all", action="store_true", help="every member that is not retired (the default)")
    whom.add_argument("--live", action="store_true", help="only linked members, at least one")
    parser.add_argument(
        "--timeout", type=float, default=_DEFAULT_TIMEOUT_S, metavar="S", help="seconds to wait at most (default: 60)"
    )


def run(options: argparse.Namespace) -> int:
    """Wait, and name who is behind."""
    if not math.isfinite(options.timeout) or options.timeout < 0:
        raise UsageError("--timeout takes a number of seconds")
    result = connect.run(_wait(options))
    if options.output in ("json", "jsonl"):
        print_one(result, options.output)
    if result.complete:
        return 0
    print(f"meshnode: {_behind_text(result)}", file=sys.stderr)
    return BEHIND


async def _wait(options: argparse.Namespace) -> WaitResult:
    """The node's answer; where none runs, one that starts within the time is asked: `meshnode up &` takes a moment."""
    from meshnode.node.reads import Reading  # what is asked where no node runs

    clock = asyncio.get_running_loop().time
    end, said = clock() + options.timeout, False
    while True:
        async with connect.reading(options) as operations:
            result = await operations.wait(timeout_s=max(0.0, end - clock()), live_only=options.live)
            running = not isinstance(operations, Reading)
        if result.complete or running or clock() >= end:
            return result
        if not said:
            print("meshnode: no node runs here yet, waiting for one: `meshnode up` starts it", file=sys.stderr)
            said = True
        await asyncio.sleep(min(_LOOK_S, max(0.0, end - clock())))


def _behind_text(result: WaitResult) -> str:
    if not result.behind:
        return printable(result.reason or "not complete")
    return "; ".join(_member_text(member.name, member.short, member.linked, member.reason) for member in result.behind)


def _member_text(name: str, short: str, linked: bool, reason: str) -> str:
    state = "linked" if linked else "not linked"
    return f"{printable(name)!r} ({short}, {state}) is behind" + (f": {printable(reason)}" if reason else "")

"""Say which copy of a database this is, where two ran as one device or a database was copied or restored alone.

`resume`: this one is the device and goes on; what it lacks of its own events is asked of every peer. `renew INVITE`:
this one becomes another device of the same mesh, with a key of its own; its rows stay, and what it had not delivered
yet goes out. Until its owner chose, such a node offers nothing to others.
"""

from __future__ import annotations

import argparse

from meshnode.cli import connect
from meshnode.cli.join import check_timeout, invite_text, tell
from meshnode.cli.output import print_one, printable
from meshnode.node.views import IdentityView


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    actions = parser.add_subparsers(dest="action", metavar="resume|renew", required=True)
    resume = actions.add_parser("resume", description="This copy is the device: go on.")
    renew = actions.add_parser(
        "renew", description="Become another device of the mesh, by an invite; stop the node first."
    )
    renew.add_argument("invite", metavar="INVITE", nargs="+", help="the invite, or `-` to read it from standard input")
    renew.add_argument("--name", default="", help="what other people see this device called from now on")
    renew.add_argument("--timeout", type=float, default=60.0, metavar="S", help="seconds to look for the inviter")
    for each in (resume, renew):
        each.add_argument("--home", metavar="DIR", default=argparse.SUPPRESS)
        each.add_argument("--output", choices=("table", "json", "jsonl"), default=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Choose."""
    if options.action == "resume":
        identity = connect.run(_resume(options))
        says = f"This copy goes on as {printable(identity.name)!r} (site {identity.short})."
        if identity.asked:
            says += f" It asked {identity.asked} peers for its own events."
    else:
        check_timeout(options)
        identity = connect.run(_renew(options, invite_text(options)[0]))
        says = f"This copy is another device now: {printable(identity.name)!r}, site {identity.short}."
    if options.output in ("json", "jsonl"):
        print_one(identity, options.output)
    else:
        print(says)
    return 0


async def _resume(options: argparse.Namespace) -> IdentityView:
    async with connect.writing(options, "identity resume") as operations:
        return await operations.resume()


async def _renew(options: argparse.Namespace, invite: str) -> IdentityView:
    from meshnode.node.home import Home
    from meshnode.node.identity import renew
    from meshnode.node.lock import lock_alone

    home = Home.load(connect.home_path(options))
    with await lock_alone(home.lock_path, "identity renew"):
        return await renew(home, invite, name=options.name, timeout_s=options.timeout, tell=tell)

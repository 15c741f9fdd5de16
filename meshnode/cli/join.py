"""Become a member of a mesh by an invite, and make this device's home.

INVITE can be given as `-` to read it from standard input: what stands on a command line can be seen by other users of
this device while the command runs. An invite works once.
"""

from __future__ import annotations

import argparse
import math
import sys

from meshnode.cli import connect
from meshnode.cli.output import print_one, printable
from meshnode.cli.passphrase import add_protection_flags
from meshnode.cli.questions import ask
from meshnode.errors import UsageError
from meshnode.model.invite import Invite, parse_invite_untrusted
from meshnode.model.site import mesh_tag, short_text
from meshnode.node.pairing_views import JoinView

_INVITE_CHARACTERS = 64 * 1024  # what is read of standard input


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("invite", metavar="INVITE", nargs="+", help="the invite, or `-` to read it from standard input")
    parser.add_argument("--yes", action="store_true", help="take yes for the answer, and do not ask")
    add_joining_flags(parser, "the inviter", 60)


def run(options: argparse.Namespace) -> int:
    """Pair with the inviter."""
    check_timeout(options)
    text, from_stdin = invite_text(options)
    invite = parse_invite_untrusted(text)
    if not options.yes and not _confirmed(invite, from_stdin):
        raise UsageError("not joined: say yes, or give --yes")
    joined = connect.run(_join(options, text))
    print_joined(joined, options.output)
    return 0


def add_joining_flags(parser: argparse.ArgumentParser, whom: str, seconds: int) -> None:
    """The flags of every verb by which a device becomes a member: its name, how long it looks, and its keys."""
    parser.add_argument(
        "--name", default="", help="what other people see this device called (default: the host's name)"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=float(seconds),
        metavar="S",
        help=f"seconds to look for {whom} (default: {seconds})",
    )
    add_protection_flags(parser)


def print_joined(joined: JoinView, output: str) -> None:
    """What this device is now, and what comes next."""
    if output in ("json", "jsonl"):
        print_one(joined, output)
        return
    print(
        f"This device ({printable(joined.name)!r}, site {joined.short}) is now a member of mesh {joined.mesh_tag}, "
        f"let in by {printable(joined.inviter_name)!r} (site {joined.inviter[:8]})."
    )
    print("Next: `meshnode up` runs the node.")


def check_timeout(options: argparse.Namespace) -> None:
    """UsageError for what is no time to look for an inviter."""
    if not math.isfinite(options.timeout) or options.timeout <= 0:
        raise UsageError("--timeout takes a number of seconds above 0")


def invite_text(options: argparse.Namespace) -> tuple[str, bool]:
    """The invite as it was given, and whether standard input was read for it."""
    if options.invite != ["-"]:
        return "".join(options.invite), False
    if sys.stdin.isatty():
        return input("Paste the invite, then press Enter: "), False
    return sys.stdin.read(_INVITE_CHARACTERS), True


async def _join(options: argparse.Namespace, text: str) -> JoinView:
    from meshnode.node.joining import join

    home = connect.home_of(options)
    return await join(home, text, name=options.name, timeout_s=options.timeout, tell=tell)


def tell(text: str) -> None:
    """What goes on meanwhile, on standard error."""
    print(printable(text), file=sys.stderr, flush=True)


def _confirmed(invite: Invite, from_stdin: bool) -> bool:
    if from_stdin or not sys.stdin.isatty():
        return False
    question = f"Join mesh {mesh_tag(invite.mesh_id).hex()}, invited by site {short_text(invite.site)}?"
    return ask(question) or False

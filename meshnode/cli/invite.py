"""Let another device in: prints an invite, as text and as a QR code, that works once and for a short time.

`--wait` stays until somebody came with it and says who. `--confirm` stays too, and asks before whoever comes with it
becomes a member; where that was interrupted, `invite approve DEVICE` and `invite deny DEVICE` answer (`status` shows
who asks). To deny ends the invite.

`invite list` shows the open ones, and `invite withdraw ID` takes one back.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys

from meshnode.cli import connect
from meshnode.cli.output import json_line, print_many, print_one, print_table, printable
from meshnode.cli.questions import ask_meanwhile
from meshnode.errors import PairingError, UsageError
from meshnode.limits import INVITE_TTL_MS
from meshnode.model.wording import time_text
from meshnode.node.api import Operations
from meshnode.node.pairing_views import CandidateView, InvitedView, InviteView, OpenInviteView

_MINUTES = INVITE_TTL_MS // 60_000
_LONGEST_MINUTES = 7 * 24 * 60
_WAIT_S = 3600.0  # seconds of one question what became of the invite; then it is asked again

_ENDS = {
    "denied": "not let in; the invite is of no use any more",
    "withdrawn": "the invite was withdrawn, and nobody came in by it",
    "burnt": "wrong proofs used the invite up, and nobody came in by it: make a new one",
    "expired": "nobody came in by this invite before it expired: make a new one",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "action",
        nargs="?",
        choices=("approve", "deny", "list", "withdraw"),
        help="instead of inviting: answer for a device that asks to be let in, list open invites, or take one back",
    )
    parser.add_argument(
        "named",
        nargs="?",
        metavar="DEVICE|ID",
        help="that device, by its short id, site id or name; that invite, by the id that `invite list` shows",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=float(_MINUTES),
        metavar="N",
        help=f"minutes that the invite lives (default: {_MINUTES})",
    )
    parser.add_argument("--no-qr", action="store_true", help="print the text of the invite alone, without the QR code")
    parser.add_argument("--wait", action="store_true", help="stay until somebody joined by it")
    parser.add_argument("--confirm", action="store_true", help="stay, and ask before somebody becomes a member by it")


def run(options: argparse.Namespace) -> int:
    """Open one and show it, or answer."""
    if options.action is not None:
        return connect.run(_ACTIONS[options.action](options))
    if not (math.isfinite(options.minutes) and 0 < options.minutes <= _LONGEST_MINUTES):
        raise UsageError(f"--minutes takes a number above 0 and at most {_LONGEST_MINUTES}")
    return connect.run(_invite(options))


async def _answer(options: argparse.Namespace) -> int:
    if options.named is None:
        raise UsageError(f"invite {options.action}: which device? `meshnode status` shows who asks")
    approve = options.action == "approve"
    async with connect.writing(options, "invite") as operations:
        who = await operations.decide(options.named, approve=approve)
    if options.output in ("json", "jsonl"):
        print_one(who, options.output)
    else:
        print(f"{_named(who)} is a member now." if approve else f"{_named(who)}: {_ENDS['denied']}.")
    return 0


async def _list(options: argparse.Namespace) -> int:
    if options.named is not None:
        raise UsageError("invite list: it takes no more words")
    async with connect.looking(options) as operations:
        found = await operations.invites()
    if options.output in ("json", "jsonl"):
        print_many(found, options.output)
    elif not found:
        _say("No invite is open.")
    else:
        print_table([_row(each) for each in found])
    return 0


async def _withdraw(options: argparse.Namespace) -> int:
    if options.named is None:
        raise UsageError("invite withdraw: which invite? `meshnode invite list` shows those that are open")
    async with connect.writing(options, "invite") as operations:
        view = await operations.withdraw_invite(options.named)
    if options.output in ("json", "jsonl"):
        print_one(view, options.output)
    else:
        who = "" if view.who is None else f" {_named(view.who)}, who asked, is not let in."
        print(f"The invite {view.id} is withdrawn: nobody comes in by it.{who}")
    return 0


def _row(view: OpenInviteView) -> dict[str, str]:
    who = "" if view.who is None else f"{_named(view.who)} asks"
    return {
        "id": view.id,
        "expires": time_text(view.expires_ms),
        "asks first": "yes" if view.confirm else "no",
        "who": who,
    }


_ACTIONS = {"approve": _answer, "deny": _answer, "list": _list, "withdraw": _withdraw}


async def _invite(options: argparse.Namespace) -> int:
    async with connect.writing(options, "invite") as operations:
        view = await operations.invite(max(1, int(options.minutes * 60_000)), confirm=options.confirm)
        as_json = options.output in ("json", "jsonl")
        if as_json:
            print(json_line(view), flush=True)
        else:
            _print(view, options)
        if not (options.wait or options.confirm):
            return 0
        if not (await operations.status()).running:
            _say("No node runs here, so nobody can come yet: `meshnode up`, and `meshnode status` shows who came.")
            return 0
        return await _wait(operations, view, as_json=as_json)


async def _wait(operations: Operations, view: InviteView, *, as_json: bool) -> int:
    """Until somebody joined by it; asks about whoever comes where that is wanted."""
    seen = "open"
    while True:
        came = await operations.invited(view.id, seen=seen, timeout_s=_WAIT_S)
        if came.state == "asks" and came.who is not None and seen != "asks":
            came = await _decide(operations, view, came.who, as_json=as_json)
        seen = came.state
        if seen == "joined" and came.who is not None:
            if as_json:
                print(json_line(came.who))
            else:
                print(f"{_named(came.who)} joined.")
            return 0
        if seen in _ENDS:
            who = "" if came.who is None else f"{_named(came.who)}: "
            raise PairingError(f"{who}{_ENDS[seen]}")


async def _decide(operations: Operations, view: InviteView, who: CandidateView, *, as_json: bool) -> InvitedView:
    """Put the question, until it is answered here or elsewhere; with nobody to answer it here, others may."""
    question = f"{_named(who)} has the invite and wants to join. Let it in?"
    moved = asyncio.ensure_future(operations.invited(view.id, seen="asks", timeout_s=_WAIT_S))
    person = asyncio.ensure_future(_nobody() if as_json else ask_meanwhile(question))
    try:
        await asyncio.wait({person, moved}, return_when=asyncio.FIRST_COMPLETED)
        if person.done() and person.result() is None:
            _say(f"{question} Answer with `meshnode invite approve {who.short}`, or `deny`.")
        elif not moved.done():
            await operations.decide(who.site, approve=person.result() or False)
        return await moved
    finally:
        for each in (person, moved):
            each.cancel()
        await asyncio.gather(person, moved, return_exceptions=True)


async def _nobody() -> bool | None:
    return None


def _named(who: CandidateView) -> str:
    return f"{printable(repr(who.name))} (site {who.short})"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _print(view: InviteView, options: argparse.Namespace) -> None:
    """The invite alone on standard output, for scripts; what a person wants beside it on standard error."""
    if not options.no_qr and sys.stdout.isatty():
        import segno

        # In capitals, which mean the same, the code takes a third less room.
        segno.make(view.invite.upper(), error="l").terminal(compact=True)
    print(view.invite, flush=True)
    _say(
        f"\nOn the other device, within {options.minutes:g} minutes: `meshnode join INVITE`, or `meshnode join -` and "
        "paste it there (that keeps it out of the list of processes).\n"
        "Who sees it can use it, once. `meshnode up` has to be running here."
    )

"""Show the devices on this network that are open to pairing without an invite, or, with `--open`, be one.

`--open` needs a running node that may let others in. It stays in the foreground, and shows six digits when a device
comes with `meshnode pair`: say yes on both only if they are the same ones. One device gets in by one opening.
"""

from __future__ import annotations

import argparse
import asyncio
import math

from meshnode.cli import connect
from meshnode.cli.output import json_line, print_many, printable
from meshnode.cli.questions import ask_meanwhile
from meshnode.errors import PairingError, UsageError
from meshnode.limits import NEARBY_LONGEST_MS, NEARBY_TTL_MS
from meshnode.node.api import Operations
from meshnode.node.pairing_views import CandidateView, NearbyView

_MINUTES = NEARBY_TTL_MS // 60_000
_LONGEST_MINUTES = NEARBY_LONGEST_MS // 60_000
_WAIT_S = 3600.0  # seconds of one question how far it is; then it is asked again
_SHOWN = ("name", "short", "mesh_tag", "addresses")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--open", action="store_true", help="let one device pair with this one")
    parser.add_argument(
        "--minutes",
        type=float,
        default=float(_MINUTES),
        metavar="N",
        help=f"minutes to be open for (default: {_MINUTES})",
    )
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="seconds to look around (default: 3)")


def run(options: argparse.Namespace) -> int:
    """Look around, or be found."""
    if not (math.isfinite(options.minutes) and 0 < options.minutes <= _LONGEST_MINUTES):
        raise UsageError(f"--minutes takes a number above 0 and at most {_LONGEST_MINUTES}")
    if not (math.isfinite(options.seconds) and 0 < options.seconds <= 60):
        raise UsageError("--seconds takes a number above 0 and at most 60")
    return connect.run(_open(options) if options.open else _look(options))


def spaced(code: str) -> str:
    """Six digits as people read them to each other."""
    return f"{code[:3]} {code[3:]}"


async def _look(options: argparse.Namespace) -> int:
    from meshnode.node.nearby_join import nearby_devices

    devices, trouble = await nearby_devices(connect.home_of(options).config, options.seconds)
    if devices or options.output in ("json", "jsonl"):
        print_many(devices, options.output, _SHOWN)
    else:
        why = f" ({printable(trouble)})" if trouble else ""
        print(f"No device on this network is open to pairing{why}: `meshnode nearby --open` on one that is a member.")
    return 0


async def _open(options: argparse.Namespace) -> int:
    as_json = options.output in ("json", "jsonl")
    async with connect.writing(options, "nearby") as operations:
        opened = await operations.nearby_open(max(1, int(options.minutes * 60_000)))
        try:
            if as_json:
                print(json_line(opened), flush=True)
            else:
                await _tell(operations, opened, options.minutes)
            return await _follow(operations, as_json=as_json)
        finally:
            await operations.nearby_close()


async def _tell(operations: Operations, opened: NearbyView, minutes: float) -> None:
    status = await operations.status()
    print(f"{printable(repr(status.name))} (site {status.short}) is open to one nearby device for {minutes:g} minutes.")
    if opened.announced != "on":
        print(f"It may not be found by its name (discovery: {printable(opened.announced)}).")
    at = opened.addresses[0] if opened.addresses else ""
    print(f"On that device: `meshnode pair {status.short}`, or `meshnode pair {at}`", flush=True)


async def _follow(operations: Operations, *, as_json: bool) -> int:
    view = await operations.nearby(seen="open", timeout_s=_WAIT_S)
    while True:
        if view.state == "asks" and view.who is not None:
            await _compare(operations, view, view.who)
        elif view.state == "joined" and view.who is not None:
            print(json_line(view.who) if as_json else f"{_named(view.who)} joined.")
            return 0
        elif view.state == "closed":
            who = "" if view.who is None else f"{_named(view.who)}: "
            raise PairingError(f"{who}nobody was let in: {view.reason}; `meshnode nearby --open` opens it again")
        seen = view.state
        view = await operations.nearby(seen=seen, timeout_s=_WAIT_S)


async def _compare(operations: Operations, view: NearbyView, who: CandidateView) -> None:
    """Put the question, until somebody answers or the other side leaves."""
    question = f"{_named(who)} wants to join. Does it show the same digits, {spaced(view.code)}?"
    person = asyncio.ensure_future(ask_meanwhile(question))
    moved = asyncio.ensure_future(operations.nearby(seen="asks", timeout_s=_WAIT_S))
    try:
        await asyncio.wait({person, moved}, return_when=asyncio.FIRST_COMPLETED)
        if person.done() and not moved.done():
            await operations.nearby_answer(view.code, yes=person.result() or False)
    finally:
        for each in (person, moved):
            each.cancel()
        await asyncio.gather(person, moved, return_exceptions=True)


def _named(who: CandidateView) -> str:
    return f"{printable(repr(who.name))} (site {who.short})"

"""Show who is around this device, members and strangers apart, why each is dialed or is not, and on which interfaces.

A running node is asked, and asks the network again. Where none runs, this program looks around by itself: it announces
nothing and dials nobody. Without a home everybody is a stranger. Of an announcement that is not verified nothing is
proven.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from typing import Any

from meshnode.cli import connect
from meshnode.cli.output import json_line, print_one, print_table, printable
from meshnode.errors import UsageError
from meshnode.node.discoverviews import AnnouncementView, DiscoverView
from meshnode.node.jsonvalues import to_json_builtins

LONGEST_S = 60.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "--seconds", default="3", metavar="N", help=f"seconds to look around, 0 to {LONGEST_S:g} (default: 3)"
    )


def run(options: argparse.Namespace) -> int:
    """Look around, and show it."""
    found = connect.run(_discover(options, _seconds(options.seconds)))
    if options.output == "json":
        print_one(found, options.output)
    elif options.output == "jsonl":
        for line in _lines(found):
            print(json_line(line))
    else:
        _print(found)
    return 0


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= LONGEST_S:
        raise UsageError(f"--seconds takes a number from 0 to {LONGEST_S:g}, not {text[:40]!r}")
    return seconds


async def _discover(options: argparse.Namespace, seconds: float) -> DiscoverView:
    home = connect.home_of(options)
    if not home.founded:
        from meshnode.node.discovering import strangers_around

        return await strangers_around(home.config, seconds)
    async with connect.looking(options) as operations:
        return await operations.discover(seconds=seconds)


def _lines(found: DiscoverView) -> Iterator[dict[str, Any]]:
    """One object each: interfaces, members, addresses to dial, its own, strangers; last how discovery is."""
    kinds: tuple[tuple[str, Sequence[Any]], ...] = (
        ("interface", found.interfaces),
        ("member", found.members),
        ("peer", found.peers),
        ("own", found.own),
        ("stranger", found.strangers),
    )
    for kind, views in kinds:
        for view in views:
            yield {"kind": kind, **to_json_builtins(view)}
    lists = {"interfaces", "members", "peers", "own", "strangers"}
    rest = {name: value for name, value in to_json_builtins(found).items() if name not in lists}
    yield {"line": "summary", **rest}


def _print(found: DiscoverView) -> None:
    off = f" ({printable(found.deaf)})" if found.discovery == "off" and found.deaf else ""
    print(f"discovery: {printable(found.discovery)}{off}")
    if not found.running:
        print("No node runs here: nothing is announced, and nobody is dialed.")
    _section(
        "Interfaces",
        [
            {"interface": each.name, "used": each.used, "addresses": ", ".join(each.addresses), "why not": each.reason}
            for each in found.interfaces
        ],
    )
    for note in found.notes:
        print(f"Note: {printable(note)}.")
    _section(
        "Members",
        [
            {"site": each.short, "name": each.name, "seen at": _places(each.seen), "dialed": each.dial.why}
            for each in found.members
        ],
    )
    _section(
        "Addresses that the settings name",
        [{"address": each.address, "site": each.short, "dialed": each.dial.why} for each in found.peers],
    )
    _section("This device's own announcement", [_stranger(each) for each in found.own])
    _section("Strangers, who are never dialed", [_stranger(each) for each in found.strangers])
    if not (found.strangers or any(each.seen for each in found.members)):
        print(f"\n{_nobody(found)}")


def _nobody(found: DiscoverView) -> str:
    """Why there is nobody, as far as that can be told."""
    if found.deaf:
        return f"Nobody was listened for: {printable(found.deaf)}."
    if found.own:
        return "Nobody else is announced on this network."
    if found.running:
        return "Nobody is announced on this network."
    return (
        "Nobody is announced on this network, or a firewall swallows multicast (UDP port 5353): a node that runs can "
        "tell, since it hears itself."
    )


def _stranger(seen: AnnouncementView) -> dict[str, str]:
    return {
        "announced as": seen.instance,
        "site": seen.short,
        "mesh": seen.mesh_tag,
        "at": ", ".join(seen.addresses),
        "is": seen.standing,
        "why": seen.reason,
    }


def _places(seen: Sequence[AnnouncementView]) -> str:
    return ", ".join(dict.fromkeys(address for each in seen for address in each.addresses)) or "not seen"


def _section(title: str, rows: list[dict[str, Any]]) -> None:
    if rows:
        print(f"\n{title}:")
        print_table(rows)

"""Show who belongs to the mesh: every device that is or was a member, this one included.

Authorities, which let others in and retire them, come first by seniority: nothing that a junior signs touches a senior.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from meshnode.cli import connect
from meshnode.cli.output import print_many, print_table
from meshnode.node.memberviews import MemberView


def configure(parser: argparse.ArgumentParser) -> None:
    """No flags of its own."""


def run(options: argparse.Namespace) -> int:
    """Show them."""
    views = connect.run(_members(options))
    if options.output in ("json", "jsonl"):
        print_many(views, options.output)
    else:
        print_table([_row(view) for view in views])
    return 0


async def _members(options: argparse.Namespace) -> Sequence[MemberView]:
    async with connect.reading(options) as operations:
        return await operations.members()


def _row(view: MemberView) -> dict[str, Any]:
    role = view.role if view.seniority is None else f"{view.role} {view.seniority}"
    return {
        "site": view.short,
        "name": view.name,
        "role": f"retired by {view.retired_by}" if view.retired else role,
        "by": f"{view.by}, {_day(view.since_ms)}",
        "last seen": "this device" if view.own else _seen(view),
        "address": view.address or "",
        "version": view.software,
    }


def _seen(view: MemberView) -> str:
    if view.linked:
        return "linked"
    return "never" if view.last_seen_ms is None else _minute(view.last_seen_ms)


def _day(at_ms: int) -> str:
    return _minute(at_ms)[:10]


def _minute(at_ms: int) -> str:
    """In UTC; a clock that another device made up may be no date at all."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%MZ")
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"

"""Show how far the delivery to and from each peer is: cursors, frames in flight, lag, requests, and what stands still.

A stream whose stored state cannot be read stands still with its cursor unmoved, and is named here with the reason; once
the database is repaired it goes on by itself, at the latest within a cycle (30 s) or with `meshnode request-sync`.
"""

from __future__ import annotations

import argparse

from meshnode.cli import connect
from meshnode.cli.output import cell, print_many, print_table
from meshnode.model.wording import counted_text
from meshnode.node.syncviews import SyncStateView


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--peer", metavar="SITE|NAME", help="show this peer alone")


def run(options: argparse.Namespace) -> int:
    """Show it."""
    states = connect.run(_states(options))
    if options.output in ("json", "jsonl"):
        print_many(states, options.output)
        return 0
    print_table([_row(state) for state in states], _SHOWN)
    for state in states:
        for line in _details(state):
            print(f"{state.short} {line}")
    return 0


_SHOWN = ("peer", "name", "path", "linked", "cursor", "staged", "next inbound", "behind", "lag ms", "requests", "again")


async def _states(options: argparse.Namespace) -> list[SyncStateView]:
    async with connect.reading(options) as operations:
        return await operations.sync_state(options.peer)


def _row(state: SyncStateView) -> dict[str, object]:
    return {
        "peer": state.short,
        "name": state.name,
        "path": state.path,
        "linked": state.linked,
        "cursor": state.cursor,
        "staged": len(state.staged),
        "next inbound": state.next_inbound,
        "behind": state.lag_events + state.lag_records,
        "lag ms": state.lag_ms,
        "requests": f"{len(state.asked)} ours, {len(state.unanswered)} theirs",
        "again": state.reoffers,
    }


def _details(state: SyncStateView) -> list[str]:
    """What a line of a table has no room for."""
    frames = [
        f"frame {each.no}: {each.items} {each.kind}, {counted_text(each.bytes, 'byte')}, "
        f"sent again {counted_text(each.attempts, 'time')}"
        for each in state.staged
    ]
    asked = [f"asked it for {cell(each.what)}" for each in state.asked]
    again = [f"is offered {cell(each)} again" for each in state.backfills]
    stuck = [f"stands still: {cell(state.why)}"] if state.stuck else []
    error = [f"last error: {cell(state.last_error)}"] if state.last_error and not state.stuck else []
    return [*frames, *asked, *again, *stuck, *error]

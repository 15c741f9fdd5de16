"""Show the retained log, own and foreign, one line per event in the order of this node's log.

A verdict is `applied`, `held` (its table is not here) or `unresolved-key` (kept, but its key names no row of its table
any more). `removed` says how many positions before an event were taken out on purpose, and why: compacted, evicted,
forgotten, taken back. Times are those of the events' own clocks.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from meshnode.cli import connect
from meshnode.cli.evict import time_ms
from meshnode.cli.output import JsonRows, TableRows, printable
from meshnode.errors import UsageError
from meshnode.model.wording import counted_text, time_text
from meshnode.node.eventviews import EVENTS_PER_PAGE, VERDICTS, EventPage, EventQuery, EventView

if TYPE_CHECKING:
    from meshnode.control.client import ControlClient
    from meshnode.node.reads import Reading

_TIME = "2026-11-30, 2026-11-30T17:00 (UTC unless it names an offset), or milliseconds since 1970"
_SHOWN = (
    *("position", "id", "site", "time", "logical", "table", "key", "op", "columns", "size", "verdict", "removed"),
    "fault",
)
_SHORT_ID = 16  # hex digits of an event id in a table: as many as notices show


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--table", metavar="TABLE", help="events of this table alone")
    parser.add_argument("--site", metavar="SITE", help="events by one author: its site id, long or short, or its name")
    parser.add_argument("--since", metavar="TIME", help=f"from then on: {_TIME}")
    parser.add_argument("--until", metavar="TIME", help="events up to then, likewise")
    parser.add_argument("--verdict", choices=VERDICTS, help="events with this verdict alone")
    parser.add_argument("--limit", type=int, metavar="N", help="at most so many events (default: all)")
    parser.add_argument("--bytes", action="store_true", help="show the exact signed bytes too, in hex (in JSON alone)")
    parser.add_argument("--verify", action="store_true", help="check the signature, id and canonical form of each")


def run(options: argparse.Namespace) -> int:
    """Show them."""
    if options.limit is not None and options.limit < 0:
        raise UsageError("--limit is not below 0")
    if options.bytes and options.output not in ("json", "jsonl"):
        raise UsageError("--bytes takes --output json or jsonl: no table has room for them")
    query = EventQuery(
        table=options.table,
        site=options.site,
        since_ms=None if options.since is None else time_ms(options.since),
        until_ms=None if options.until is None else time_ms(options.until),
        verdict=options.verdict,
        bytes=options.bytes,
        verify=options.verify,
    )
    seen, faults = connect.run(_events(options, query))
    if options.verify:
        what = "nothing is wrong" if not faults else f"something is wrong with {faults:,} of them"
        print(f"{counted_text(seen, 'event')} checked: {what}", file=sys.stderr)
    return 1 if faults else 0


async def _events(options: argparse.Namespace, query: EventQuery) -> tuple[int, int]:
    seen = faults = 0
    table = options.output not in ("json", "jsonl")
    async with connect.reading(options) as operations:
        rows: JsonRows | TableRows = TableRows(_SHOWN) if table else JsonRows(options.output)
        async for page in _pages(operations, query, options.limit):
            shown: list[Any] = [_line(each) for each in page.events] if table else page.events
            rows.add(shown)
            for event in page.events:
                if event.fault:
                    faults += 1
                    print(printable(f"meshnode: event at position {event.position}: {event.fault}"), file=sys.stderr)
            seen += len(page.events)
        rows.close()
    return seen, faults


async def _pages(operations: ControlClient | Reading, query: EventQuery, limit: int | None) -> AsyncIterator[EventPage]:
    """Until the limit or the end; never more than a page is in memory."""
    after, left = 0, limit
    while left is None or left > 0:
        size = EVENTS_PER_PAGE if left is None else min(left, EVENTS_PER_PAGE)
        page = await operations.events(query, after=after, limit=size)
        yield page
        if not page.more:
            return
        after = page.position
        left = None if left is None else left - len(page.events)


def _line(event: EventView) -> dict[str, Any]:
    """What a table has room for."""
    return {
        "position": event.position,
        "id": event.id[:_SHORT_ID],
        "site": event.site[:8],
        "time": time_text(event.hlc[0]),
        "logical": event.hlc[1],
        "table": event.table,
        "key": event.key,
        "op": event.op,
        "columns": ",".join(event.columns),
        "size": event.size,
        "verdict": event.verdict,
        "removed": ", ".join(f"{count} {why}" for why, count in event.removed.items()),
        "fault": "yes" if event.fault else "",
    }

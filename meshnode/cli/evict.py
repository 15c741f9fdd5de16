"""Freeze a table below a time and take the older events out of its log; every row stays as it is.

Events that arrive later and are older than that count as applied and change nothing. Each row's winning events stay, so
that a device which joins later gets today's rows, unless --all takes them too: then the values are in the table alone,
and a row that its table's constraints take out of it for a while comes back without them. `rehydrate` undoes it.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from meshnode.cli import connect
from meshnode.cli.output import print_one
from meshnode.errors import UsageError
from meshnode.node.views import RetentionReport, parse_table


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("table", metavar="TABLE", help="the table: NAME, or SCHEMA.NAME")
    parser.add_argument(
        "--before",
        required=True,
        metavar="TIME",
        help="below this: 2026-11-30, 2026-11-30T17:00 (UTC unless it names an offset), or milliseconds since 1970",
    )
    parser.add_argument("--all", action="store_true", dest="everything", help="take out the rows' winning events too")


def run(options: argparse.Namespace) -> int:
    """Evict."""
    parse_table(options.table)
    before_ms = time_ms(options.before)
    print_one(connect.run(_evict(options, before_ms)), options.output)
    return 0


def time_ms(text: str) -> int:
    """A time as milliseconds since 1970; UsageError where it is none."""
    if text.isascii() and text.isdigit() and len(text) > 8:  # shorter ones are dates
        return _bounded(int(text), text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{text!r} is no time: write 2026-11-30, 2026-11-30T17:00+01:00, or milliseconds") from None
    return _bounded(int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000), text)


def _bounded(value: int, text: str) -> int:
    if not 0 <= value < 2**63:
        raise UsageError(f"{text!r} is no time that an event can have")
    return value


async def _evict(options: argparse.Namespace, before_ms: int) -> RetentionReport:
    async with connect.writing(options, "evict") as operations:
        return await operations.evict(options.table, before_ms=before_ms, everything=options.everything)

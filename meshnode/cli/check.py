"""Recompute rows, clocks and watermarks from the log, verify signatures, name what differs.

`--repair` writes what differs as the log says: rows, clocks, watermarks and counters. Events that the log has lost are
passed over from then on, and every member is asked for them; until they answered, what stands on them stays named.
"""

from __future__ import annotations

import argparse
import sys

from meshnode.cli import connect
from meshnode.cli.output import print_one, print_table, printable
from meshnode.model.wording import counted_text
from meshnode.node.jsonvalues import to_json_builtins
from meshnode.node.views import CheckReport


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--repair", action="store_true", help="write it as the log says, and ask for what is lost")


def run(options: argparse.Namespace) -> int:
    """Print what was found."""
    report = connect.run(_check(options))
    if options.output in ("json", "jsonl"):
        print_one(report, options.output)
    else:
        _print(report)
    return 1 if report.count else 0


def _print(report: CheckReport) -> None:
    for each in report.mendings:
        print(printable(f"mended: {' '.join(filter(None, (each.table, each.where)))}: {each.what}"), file=sys.stderr)
    if report.mended > len(report.mendings):
        print(f"and {report.mended - len(report.mendings)} more", file=sys.stderr)
    if report.differences:
        print_table([to_json_builtins(each) for each in report.differences], ("table", "where", "what"))
    if report.count > len(report.differences):
        print(f"and {report.count - len(report.differences)} more", file=sys.stderr)
    verdict = "clean" if not report.count else counted_text(report.count, "difference")
    if report.mended:
        verdict = f"{report.mended} mended, {verdict}"
    given = f"; taken as given of clocks, values and watermarks: {report.given:,}" if report.given else ""
    events, rows = counted_text(report.events, "event"), counted_text(report.rows, "row")
    print(printable(f"{verdict}: {events}, {rows} of {counted_text(report.tables, 'table')}{given}"))
    if report.mendable:
        print("`meshnode check --repair` mends what the log tells, and asks the members for the rest", file=sys.stderr)


async def _check(options: argparse.Namespace) -> CheckReport:
    if options.repair:
        async with connect.writing(options, "check --repair") as node:
            return await node.check(repair=True)
    async with connect.reading(options) as operations:
        return await operations.check()

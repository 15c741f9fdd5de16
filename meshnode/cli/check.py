"""Recompute rows, clocks and watermarks from the log, verify signatures, name what differs."""

from __future__ import annotations

import argparse
import sys

from meshnode.cli import connect
from meshnode.cli.output import print_one, print_table, printable
from meshnode.node.jsonvalues import to_json_builtins
from meshnode.node.views import CheckReport


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""


def run(options: argparse.Namespace) -> int:
    """Print what was found."""
    report = connect.run(_check(options))
    if options.output in ("json", "jsonl"):
        print_one(report, options.output)
    else:
        _print(report)
    return 1 if report.count else 0


def _print(report: CheckReport) -> None:
    if report.differences:
        print_table([to_json_builtins(each) for each in report.differences], ("table", "where", "what"))
    if report.count > len(report.differences):
        print(f"and {report.count - len(report.differences)} more", file=sys.stderr)
    verdict = "clean" if not report.count else f"{report.count} differences"
    given = f"; {report.given} clocks, values and watermarks taken as given" if report.given else ""
    print(printable(f"{verdict}: {report.events} events, {report.rows} rows of {report.tables} tables{given}"))


async def _check(options: argparse.Namespace) -> CheckReport:
    async with connect.reading(options) as operations:
        return await operations.check()

"""Compare events and rows with a linked member: what differs is a horizon, a schema, under way, or a fault.

Both read what they hold and exchange digests of ranges, so that a few kilobytes find one difference among a million
events. What is later than both clocks is left out. With --repair each sends the other the events that it should have
and has not, and the two are compared again.

With `--output jsonl` each row that differs is a line, and the last line has all the rest: its `line` is `summary`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from meshnode.cli import connect
from meshnode.cli.output import cell, print_summed, print_table, printable
from meshnode.model.wording import clock_text, counted_text
from meshnode.node.verifyviews import ComparedRowView, ComparedTableView, VerifyProgress, VerifyReport
from meshnode.node.views import parse_table

FAULT = 1  # exit code
_TABLES = ("table", "events", "rows", "differs")
_ROWS = ("kind", "table", "key", "what")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("peer", metavar="PEER", help="site id or name of a linked member")
    parser.add_argument("--table", metavar="NAME", help="this table alone (default: every one)")
    parser.add_argument("--repair", action="store_true", help="send each other what is missing, and compare again")


def run(options: argparse.Namespace) -> int:
    """Compare, and name what differs."""
    if options.table is not None:
        parse_table(options.table)
    report = connect.run(_verify(options))
    if options.output in ("json", "jsonl"):
        print_summed(report, "rows", options.output)
    else:
        _print(report)
    return FAULT if report.fault else 0


async def _verify(options: argparse.Namespace) -> VerifyReport:
    show = _Shown() if sys.stderr.isatty() and options.output not in ("json", "jsonl") else None
    async with connect.looking(options) as operations:
        try:
            return await operations.verify(
                options.peer, table=options.table, repair=options.repair, tell=show.tell if show is not None else None
            )
        finally:
            if show is not None:
                show.clear()


class _Shown:
    """One line on the terminal that says how far it is."""

    def tell(self, progress: VerifyProgress) -> None:
        """Write it anew."""
        read = f", {progress.items:,} events and rows" if progress.items else ""
        print(f"\r\x1b[K{printable(progress.state)}{read} …", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Nothing is left of it."""
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _print(report: VerifyReport) -> None:
    print_table([_table_row(each) for each in report.tables], _TABLES)
    if report.rows:
        print_table([_row(each) for each in report.rows], _ROWS)
    for each in report.rows:
        for line in _events(each):
            print(line)
    for line in _more(report):
        print(line, file=sys.stderr)
    print(printable(f"{report.name} ({report.short}): {_verdict(report)}"))


def _table_row(table: ComparedTableView) -> dict[str, object]:
    differs = "" if table.equal else "yes" if table.compared else "not compared"
    note = f"{table.kind}: {table.note}" if table.kind else ""
    later = [(table.above_here, "here"), (table.above_there, "there")]
    coming = [f"{counted_text(number, 'event')} more {where}, still on the way" for number, where in later if number]
    return {
        "table": table.table,
        "events": _both(table.events_here, table.events_there),
        "rows": _both(table.rows_here, table.rows_there),
        "differs": "; ".join(filter(None, [differs, *coming, note])),
    }


def _both(here: int, there: int) -> str:
    return f"{here:,}" if here == there else f"{here:,} here, {there:,} there"


def _row(row: ComparedRowView) -> dict[str, object]:
    return {"kind": row.kind, "table": row.table, "key": row.key, "what": row.what}


def _events(row: ComparedRowView) -> Iterator[str]:
    for event in row.events:
        does = "deletes" if event.columns is None else f"writes {', '.join(map(cell, event.columns)) or 'no column'}"
        at = clock_text(event.hlc)
        yield printable(f"  only {event.where}: event {event.id} of {event.short} at {at} {does}")
    if row.events_more:
        yield f"  and {counted_text(row.events_more, 'event')} more of this row"


def _more(report: VerifyReport) -> Iterator[str]:
    if report.rows_more:
        yield f"and {counted_text(report.rows_more, 'row')} more"
    if report.unnamed:
        yield (
            f"at least {counted_text(report.unnamed, 'further difference')} beyond what one comparison looks into: "
            "where much is still under way, `meshnode wait` first; otherwise repair, or compare table by table"
        )
    if any(each.kind == "fault" and not each.events and not each.events_more for each in report.rows):
        yield (
            "rows with a fault and the same events are not what those say on one side: `meshnode check --repair`, run "
            "on both, mends them"
        )
    if report.tables_more:
        yield f"{counted_text(report.tables_more, 'table')} did not fit into one comparison: name one with --table"


def _verdict(report: VerifyReport) -> str:
    repaired = [
        f"{counted_text(report.sent_again, 'event')} sent again" if report.sent_again else "",
        f"{counted_text(report.asked_again, 'event')} asked for again" if report.asked_again else "",
    ]
    found = ", ".join(f"{number} {kind}" for kind, number in report.counts.items())
    word = _equal(report.tables) if report.equal else found or "differs"
    if not any(each.compared for each in report.tables):
        word = "no table was compared"
    return "; ".join(
        filter(None, [word, *repaired, f"{counted_text(report.exchanges, 'exchange')} in {report.seconds:.1f} s"])
    )


def _equal(tables: Sequence[ComparedTableView]) -> str:
    """`equal` alone only where nothing was left out of what was compared."""
    coming = sum(each.above_here + each.above_there for each in tables)
    apart = [f"{each.kind} of {each.table}" for each in tables if each.kind]
    left_out = [f"{counted_text(coming, 'event')} still on the way" if coming else "", ", ".join(apart)]
    besides = "; ".join(filter(None, left_out))
    return f"what was compared is equal, which leaves out: {besides}" if besides else "equal"

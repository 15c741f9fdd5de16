"""Show concurrent writes of one cell by this device and another, of which neither had seen the other, and decide them.

The later clock decided at once which of the two shows; what the other one wrote is kept here, on both devices. Where no
acknowledgement tells whether the other device had seen ours, the conflict is only `possible`. A delete against a write
is about the row, and has no column.

`conflicts resolve ID --prefer SITE` writes that side's value again where it does not show, which decides it at the
other author too. Where it shows already nothing is written, and there it stays open until somebody decides it or writes
the cell. `conflicts acknowledge ID` leaves it as it is. An ID may be cut to its first eight digits; `when` is the later
of the two writes, by its clock.
"""

from __future__ import annotations

import argparse

from meshnode.cli import connect
from meshnode.cli.globals import add_globals
from meshnode.cli.output import cell, print_many, print_one, print_table
from meshnode.errors import UsageError
from meshnode.model.wording import time_text
from meshnode.node.api import CONFLICTS_PER_PAGE
from meshnode.node.conflict_views import ConflictReceipt, ConflictView, SideView

_SHORT = 8  # digits of an id, or of a site, in a table
_VALUE_CHARACTERS = 40
_NOTHING_WRITTEN = (
    "That value showed already, so nothing was written: at the other author the conflict stays open until it is "
    "decided there too, or the cell is written again."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--table", metavar="NAME", help="conflicts of this table alone")
    parser.add_argument("--all", action="store_true", help="conflicts that are over or acknowledged too")
    parser.add_argument(
        "--limit",
        type=int,
        default=100,
        metavar="N",
        help=f"show the latest N (default: 100, at most {CONFLICTS_PER_PAGE})",
    )
    actions = parser.add_subparsers(dest="action", metavar="resolve|acknowledge")
    resolving = actions.add_parser(
        "resolve", description="Let the value of one of the two sites show: it is written again where it does not."
    )
    resolving.add_argument("id", metavar="ID", help="the conflict, by its id or the first eight digits of it")
    resolving.add_argument(
        "--prefer",
        required=True,
        metavar="SITE|NAME",
        help="the one whose value is to show: a site id, long or short, or a name",
    )
    leaving = actions.add_parser(
        "acknowledge", description="Leave a conflict as it is; the same pair never comes up again."
    )
    leaving.add_argument("id", metavar="ID", help="the conflict, by its id or the first eight digits of it")
    for each in (resolving, leaving):
        add_globals(each)


def run(options: argparse.Namespace) -> int:
    """List, or decide one."""
    if options.action is not None:
        receipt = connect.run(_decide(options))
        print_one(receipt, options.output)
        if options.action == "resolve" and receipt.event is None and options.output not in ("json", "jsonl"):
            print(_NOTHING_WRITTEN)
        return 0
    if not 0 <= options.limit <= CONFLICTS_PER_PAGE:
        raise UsageError(f"--limit takes a number from 0 to {CONFLICTS_PER_PAGE}")
    found = connect.run(_list(options))
    if options.output in ("json", "jsonl"):
        print_many(found, options.output)
    else:
        print_table([_row(each) for each in found], _SHOWN)
    return 0


_SHOWN = ("id", "when", "table", "key", "column", "ours", "theirs", "by", "shown", "certainty", "status")


async def _list(options: argparse.Namespace) -> list[ConflictView]:
    async with connect.reading(options) as operations:
        return await operations.conflicts(options.table, everything=options.all, limit=options.limit)


async def _decide(options: argparse.Namespace) -> ConflictReceipt:
    async with connect.writing(options, f"conflicts {options.action}") as operations:
        if options.action == "resolve":
            return await operations.resolve_conflict(options.id, prefer=options.prefer)
        return await operations.acknowledge_conflict(options.id)


def _row(conflict: ConflictView) -> dict[str, object]:
    return {
        "id": conflict.id[:_SHORT],
        "when": time_text(max(conflict.ours.hlc, conflict.theirs.hlc)[0]),
        "table": conflict.table,
        "key": _cut(conflict.key),
        "column": "(the row)" if conflict.column is None else conflict.column,
        "ours": _said(conflict, conflict.ours),
        "theirs": _said(conflict, conflict.theirs),
        "by": conflict.theirs.name or conflict.theirs.site[:_SHORT],
        "shown": conflict.shown,
        "certainty": conflict.certainty,
        "status": conflict.status,
    }


def _said(conflict: ConflictView, side: SideView) -> str:
    if not side.kept:
        return "(not kept)"
    if side.left_out:
        return "(large)"
    return "(deleted)" if conflict.column is None and side.value is None else _cut(side.value)


def _cut(value: object) -> str:
    text = cell(value)
    return text if len(text) <= _VALUE_CHARACTERS else f"{text[: _VALUE_CHARACTERS - 1]}…"

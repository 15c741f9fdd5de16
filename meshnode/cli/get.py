"""Show one row, or why it is as it is."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from meshnode.cli import connect
from meshnode.cli.columns import find_table, parse_fields, split_key
from meshnode.cli.output import cell, print_one, print_table
from meshnode.errors import NotFoundError, UsageError
from meshnode.node.jsonvalues import to_json_builtins
from meshnode.node.views import CellView, RowExplanation, RowView

_SHORT = 8  # digits of a site id in a table (profile §3)
_SHOWN = ("column", "state", "value", "site", "hlc")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("table", metavar="TABLE", help="the table: NAME, or SCHEMA.NAME")
    parser.add_argument(
        "fields", metavar="COLUMN=TEXT|COLUMN:=JSON", nargs="+", help="the columns of the key, all of them"
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="show of every column whether it was written, cleared or never written, and by whom; of deleted and "
        "withheld rows too",
    )


def run(options: argparse.Namespace) -> int:
    """Show it."""
    found = connect.run(_get(options))
    if found is None:
        raise NotFoundError(f"no row {' '.join(options.fields)} in table {options.table}")
    if isinstance(found, RowView):
        print_one(found.flat(), options.output)
    elif options.output in ("json", "jsonl"):
        print_one(found, options.output)
    else:
        _print(found)
    return 0


async def _get(options: argparse.Namespace) -> RowView | RowExplanation | None:
    async with connect.reading(options) as operations:
        table = await find_table(operations, options.table)
        key, others = split_key(table, parse_fields(options.fields, table))
        if others:
            raise UsageError(f"a row is found by its key; {', '.join(others)} is not part of it")
        if options.explain:
            return await operations.explain(table.table, key)
        return await operations.get(table.table, key)


def _print(found: RowExplanation) -> None:
    head: dict[str, Any] = {"key": found.key, "exists": found.exists, "withheld": found.withheld}
    if found.reason:
        head["reason"] = found.reason
    for name, clock in (("existence", found.existence), ("tombstone", found.tombstone)):
        if clock is not None:
            head[name] = f"{clock.site[:_SHORT]} {cell(list(clock.hlc))}"
    if found.horizon is not None:
        head["horizon"] = found.horizon
    print_one(head, None)
    print()
    print_table([_line(each) for each in found.columns], _SHOWN)


def _line(column: CellView) -> dict[str, Any]:
    """One column as it is printed; what it has not is left out."""
    line: dict[str, Any] = {"column": column.name, "state": column.state}
    if column.value is not msgspec.UNSET:
        line["value"] = to_json_builtins(column.value)
    if column.clock is not None:
        line |= {"site": column.clock.site[:_SHORT], "hlc": list(column.clock.hlc)}
    return line

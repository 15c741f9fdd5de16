"""Add a table to the mesh, creating it where it does not exist yet, say what it is to others, or list those there are.

Classes: `shared` tables cross to every member that wants them; `raw` ones only while `replicate_raw_ingress` is on at
both ends, and no further back than `replay_budget_days`; `private` ones never leave this node, and nothing comes in.
"""

from __future__ import annotations

import argparse

from meshnode.cli import connect
from meshnode.cli.globals import add_globals
from meshnode.cli.output import print_many, print_one
from meshnode.errors import UsageError
from meshnode.node.views import PolicyView, TableView, parse_class, parse_table


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    actions = parser.add_subparsers(dest="action", metavar="add|list|class", required=True)
    add = actions.add_parser("add", description="Add a table; without --key, one that the database has already.")
    add.add_argument("table", metavar="NAME", help="the table: NAME, or SCHEMA.NAME")
    add.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="COLUMN:TYPE",
        help="a column of the key, with its SQLite type (repeatable)",
    )
    add.add_argument(
        "--column",
        action="append",
        default=[],
        metavar="COLUMN:TYPE",
        help="another column, with its type (repeatable)",
    )
    add.add_argument(
        "--own-numbers",
        action="store_true",
        help="the application itself chooses the values of an INTEGER key, not SQLite",
    )
    add.add_argument(
        "--class",
        dest="table_class",
        metavar="CLASS",
        help="what it is to the mesh: shared (the default), raw or private",
    )
    classing = actions.add_parser("class", description="Say what a table is to the mesh; in force at once.")
    classing.add_argument("table", metavar="NAME", help="the table: NAME, or SCHEMA.NAME")
    classing.add_argument("table_class", metavar="CLASS", help="shared, raw or private")
    listing = actions.add_parser("list", description="List the tables that take part in the mesh.")
    for each in (add, classing, listing):
        add_globals(each)


def run(options: argparse.Namespace) -> int:
    """Add, classify or list."""
    if options.action == "list":
        print_many([_shown(table) for table in connect.run(_list(options))], options.output, _SHOWN)
        return 0
    parse_table(options.table)
    if options.table_class is not None:
        parse_class(options.table_class)
    if options.action == "class":
        print_one(connect.run(_classify(options)), options.output)
        return 0
    print_one(_shown(connect.run(_add(options))), options.output)
    return 0


_SHOWN = ("table", "class", "key", "columns", "rows", "withheld", "unusable")


async def _list(options: argparse.Namespace) -> list[TableView]:
    async with connect.reading(options) as operations:
        return await operations.tables()


async def _classify(options: argparse.Namespace) -> PolicyView:
    async with connect.writing(options, "table class") as operations:
        return await operations.classify(options.table, options.table_class)


async def _add(options: argparse.Namespace) -> TableView:
    key, columns = _typed(options.key), _typed(options.column)
    if columns and not key:
        raise UsageError(
            "which columns are the key? Give --key COLUMN:TYPE (without --column: the table exists already)"
        )
    for name in key.keys() & columns.keys():
        raise UsageError(f"the column {name!r} is given as --key and as --column")
    async with connect.writing(options, "table add") as operations:
        return await operations.add_table(
            options.table, key, columns, own_numbers=options.own_numbers, table_class=options.table_class
        )


def _typed(texts: list[str]) -> dict[str, str]:
    """`name:TYPE`, repeatable, to a map; a type may be left out as in SQLite."""
    typed: dict[str, str] = {}
    for text in texts:
        name, _, declared = text.partition(":")
        if not name:
            raise UsageError(f"{text!r} names no column: write COLUMN:TYPE, like title:TEXT")
        if name in typed:
            raise UsageError(f"the column {name!r} is given twice")
        typed[name] = declared.strip()
    return typed


def _shown(table: TableView) -> dict[str, object]:
    """A table as it is printed: columns as `name TYPE`."""
    return {
        "table": table.table,
        "class": table.table_class,
        "key": {column.name: column.type for column in table.key},
        "columns": {column.name: column.type for column in table.columns},
        "rows": f"{table.rows}+" if table.rows_more else table.rows,
        "withheld": table.withheld,
        **({"unusable": table.unusable} if table.unusable else {}),
    }

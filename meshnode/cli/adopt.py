"""Make the tables of an existing SQLite database sync: from then on whatever any program writes into them by SQL.

The node's own tables move into that database, beside the application's, and triggers note which rows are written; the
running node signs and sends them. All ordinary tables are adopted, or those that are named, and each row that is there
is signed once, as this device's. Where a table cannot sync, nothing is adopted, and all that is wrong is told with the
SQL that mends it. No node may run here meanwhile; the application may. The database is in WAL mode from then on.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from meshnode.cli import connect
from meshnode.cli.output import print_one, printable
from meshnode.cli.progress import progress
from meshnode.errors import RegistrationError
from meshnode.node.adoptviews import AdoptedView
from meshnode.node.views import parse_class, parse_table


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("database", metavar="FILE", help="the application's SQLite database")
    parser.add_argument(
        "--table", action="append", default=[], metavar="NAME", help="a table (repeatable; default: all)"
    )
    parser.add_argument("--own-numbers", action="store_true", help="the application chooses INTEGER keys itself")
    parser.add_argument("--class", dest="table_class", metavar="CLASS", help="shared (the default), raw or private")


def run(options: argparse.Namespace) -> int:
    """Adopt, or say what has to be mended before."""
    for table in options.table:
        parse_table(table)
    if options.table_class is not None:
        parse_class(options.table_class)
    view = connect.run(_adopt(options))
    print_one(view, options.output)
    if view.readable_by_others:
        print(
            f"meshnode: other users of this device can read {printable(view.database)}, and with it the mesh's log: "
            "chmod 600 it unless they may",
            file=sys.stderr,
        )
    return 0


async def _adopt(options: argparse.Namespace) -> AdoptedView:
    from meshnode.node.adopting import UnfitError, adopt

    async with connect.resting(options, "adopt") as home:
        try:
            with progress(os.path.basename(options.database), "rows") as advance:
                return await adopt(
                    home,
                    Path(options.database),
                    options.table,
                    own_numbers=options.own_numbers,
                    table_class=options.table_class,
                    tell=lambda signed, rows: advance(signed, rows, signed),
                )
        except UnfitError as error:
            for problem in error.problems:
                print(f"- {printable(problem)}", file=sys.stderr)
            raise RegistrationError(
                f"nothing was adopted: {len(error.problems)} to mend first, each told above with the SQL that does it"
            ) from error

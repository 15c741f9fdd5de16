"""Rows that were withheld for the sake of others are tried again, few at once (profile §5).

Where many rows of one job undo all of it by a trigger's RAISE(ROLLBACK), the rest of their table is left out of it.
Each transaction here is undone as often at most, and settles every row or at least those that undid it: the work is
bounded by the number of rows. A process that ends in the middle tries all withheld rows again at its next start.
"""

from __future__ import annotations

from typing import Final

from meshnode.engine.context import Context
from meshnode.engine.materialize import Materializer
from meshnode.store import rows
from meshnode.store.database import Tx
from meshnode.store.materialize import UNTRIED

ROWS_A_STEP: Final = 16  # tried in one transaction, so little is done again


def step(context: Context, tx: Tx) -> bool:
    """Try the next rows; whether there may be more."""
    for entry in context.tables.registered(tx):
        destination = context.destination(tx, entry)
        if destination is None:
            continue  # all its withheld rows are tried once it can be used
        keys = rows.withheld_because(tx, destination.no, UNTRIED, ROWS_A_STEP)
        if keys:
            materializer = Materializer(context, tx)
            materializer.retry(entry, destination, keys)
            materializer.write(context.env.wall_ms())
            return True
    context.untried = False
    return False

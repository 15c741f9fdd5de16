"""What later becomes known of conflicts that were only possible: an ack tells that there is one, or that there is none.

And what ends them without a later event: their events were taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from meshnode.engine.concurrency import Concurrency
from meshnode.engine.context import Context
from meshnode.errors import CorruptStateError
from meshnode.model.conflict import Relation, Status
from meshnode.model.hlc import hlc_of_rank
from meshnode.model.taken import Taken
from meshnode.store import conflicts
from meshnode.store.conflicts import Conflict
from meshnode.store.database import Tx
from meshnode.store.delivery import Stream

SEQUENTIAL: Final = "the other device had seen ours when it wrote"
TAKEN_BACK: Final = "one of the two events was taken back"


def settle_possible(context: Context, tx: Tx, stream: Stream, told: Sequence[Taken]) -> None:
    """Acks of this peer told of our events at these positions."""
    first, last = min(each.first for each in told), max(each.last for each in told)
    try:
        _settle(context, tx, conflicts.possible(tx, stream.no, first, last))
    except CorruptStateError as error:  # what cannot be read of the ledger stops no stream
        context.surface(tx, "unreadable-state", stream.peer, str(error))


def _settle(context: Context, tx: Tx, found: Sequence[Conflict]) -> None:
    evidence = Concurrency(context, tx)
    for each in found:
        entry = context.tables.numbered(tx, each.table_no)
        relation = evidence.later(entry, each.ours.rank, each.position, each.theirs.rank)
        if relation is Relation.SEQUENTIAL:
            conflicts.end(tx, each, Status.WITHDRAWN, SEQUENTIAL)
        elif relation is Relation.CONCURRENT:
            conflicts.be_certain(tx, each.id)


def withdraw_taken_back(context: Context, tx: Tx, sites: Sequence[bytes]) -> None:
    """Events of these sites are not acceptable any more: a conflict with one of them is none."""
    for each in conflicts.of_sites(tx, sites):
        judge = context.membership.judge
        if any(judge(side.site, hlc_of_rank(side.rank)) is not None for side in (each.ours, each.theirs)):
            conflicts.end(tx, each, Status.WITHDRAWN, TAKEN_BACK)

"""`check --repair`: what a hand or a damaged disk changed is computed again from the log, or asked of other members.

The events of the log are what is trusted (profile §5). Rows that are not what they say are written anew, clocks and
SQL; a clock that names an event which the log has lost stays, with its value, until that event came again. Positions of
lost events are passed over from then on, since their owner said so (profile §8), and every peer is asked for all that
it holds; what claimed more than can be shown claims nothing meanwhile (SSP/1 §14.2). One bounded step a transaction.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from meshnode.engine.asking import ask_history
from meshnode.engine.context import Context
from meshnode.engine.findings import Mendable
from meshnode.engine.rebuild import Rebuild, abandon, part
from meshnode.engine.restate import Restater
from meshnode.errors import BusyError, CorruptStateError
from meshnode.merge.rows import RowState
from meshnode.model.hlc import ZERO, Rank, hlc_of_rank
from meshnode.store import held, history, log, logcounts, meta, removed, rows, watermarks
from meshnode.store.database import Tx
from meshnode.store.names import TableEntry

MENDED: Final = "mended"  # a notice
_WORK: Final = "mend"


class Mending:
    """Call `step` until it returns False, each time on the writer thread."""

    def __init__(self, context: Context, found: Mendable) -> None:
        self._context = context
        self._found = found
        self._log_done = False
        by_table: defaultdict[int, set[bytes]] = defaultdict(set)
        for table_no, key_bytes in found.rows:
            by_table[table_no].add(key_bytes)
        self._left = sorted(by_table.items())

    def step(self) -> bool:
        """One transaction; whether there is more to do. BusyError while rows follow the schema or the membership."""
        if self._context.is_rewriting:
            raise BusyError("rows still follow a changed schema or membership: check again when that is done")
        if not self._log_done:
            self._context.transact(self._mend_log)
            self._log_done = True
        elif self._left and not self._context.transact(self._mend_some):
            del self._left[0]
        return bool(self._left)

    # --- the log and what is counted of it

    def _mend_log(self, tx: Tx) -> None:
        context, found = self._context, self._found
        for position in found.mislabelled:
            _label(context, tx, position)
        if found.damaged or found.gaps:
            abandon(context, tx)
            log.remove(tx, found.damaged)
            removed.record(tx, found.damaged, removed.LOST)
            for first, last in found.gaps:
                removed.record_lost(tx, first, last)
        for group in found.watermarks:
            watermarks.forget_group(tx, *group)
        if found.damaged or found.gaps or found.watermarks:
            for peer_no in history.peers_that_sent(tx):
                ask_history(context, tx, peer_no)
        if found.counted or found.mislabelled:
            logcounts.count_again(tx)
        if found.metered or found.damaged or found.mislabelled:
            held.meter_again(tx)
        context.next_position = max(context.next_position, found.last + 1)
        meta.write(tx, meta.NEXT_POSITION, context.next_position)
        meta.write_clock(tx, context.clock)
        if found:
            context.surface(tx, MENDED, None, f"`check --repair` was asked for, and mended {found.text()}")

    # --- rows

    def _mend_some(self, tx: Tx) -> bool:
        """One step of one table; whether there is more of it."""
        context, (table_no, keys) = self._context, self._left[0]
        entry = context.tables.numbered(tx, table_no)
        destination = context.destination(tx, entry)
        if destination is None:
            return False  # it is said why
        work = context.work.get(_WORK)
        if not (isinstance(work, _RowMend) and work.fits(entry, destination)):
            readable = [key for key in sorted(keys) if _is_readable(tx, entry, table_no, key)]
            work = context.work[_WORK] = _RowMend(context, tx, entry, destination, keys=readable)
        more = work.step(tx)
        if not more:
            del context.work[_WORK]
        return more


class _RowMend(Rebuild):
    """Rows whose clocks or values are not those of their events, written anew."""

    def _restater(self, tx: Tx) -> Restater:
        return Restater(self._context, tx, self._entry, self._destination, anew=True)

    def _given(self, tx: Tx, state: RowState) -> RowState:
        """Besides what lies below the horizon, what stands on an event that is not in the log."""
        context, horizon = self._context, self._entry.horizon

        def stays(rank: Rank) -> bool:
            site, hlc = rank[16:32], hlc_of_rank(rank)
            number = context.sites.find(tx, site)
            if number is None or hlc > context.clock or context.membership.judge(site, hlc) is not None:
                return False  # no event that was ever applied here
            return hlc < horizon or not log.holds(tx, number, hlc, rank[32:])

        return part(state, stays)


def _label(context: Context, tx: Tx, position: int) -> None:
    """The columns of a row of the log are those of its event."""
    data = log.read_at(tx, position)
    if data is None:
        return
    event = log.parse(data)
    table_no = context.tables.number(tx, context.tables.entry(tx, event.schema, event.table))
    log.label(tx, position, context.sites.number(tx, event.site), table_no, event)


def _is_readable(tx: Tx, entry: TableEntry, table_no: int, key_bytes: bytes) -> bool:
    """Whether a row can be computed again; clocks that cannot be read are dropped where the log tells all of them."""
    try:
        rows.load(tx, table_no, [key_bytes])
    except CorruptStateError:
        if entry.horizon != ZERO or removed.any_of(tx, [removed.EVICTED]):
            return False
        rows.remove(tx, table_no, [key_bytes])
    return True

"""Taking back: events that the membership accepts no longer leave the log, and their rows are rebuilt (profile §9).

That it is due is committed with the records that decided it; from then on no such event comes in. What is short is done
in the same transaction. The rest has small transactions of its own: first every such event leaves the log, then the
rows whose clocks name one are rebuilt, each at once; a notice stands meanwhile, and the end is surfaced once per site.
A process that ends in the middle goes on at its next start with what is still there.

A row's clocks name the events that it stands on, so no row is missed: not one below a horizon either, which may stand
on an event whose bytes are not in the log any more. What a row keeps from below the horizon stays as given unless it is
the signer's own; a row that the horizon cut is surfaced as partial.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from meshnode.engine.context import Context
from meshnode.engine.rebuild import Rebuild, abandon
from meshnode.engine.settling import withdraw_taken_back
from meshnode.limits import BATCH_EVENTS
from meshnode.merge.rows import RowState
from meshnode.model.hlc import Rank, hlc_of_rank
from meshnode.model.wording import counted_text
from meshnode.store import held, history, log, notices, removed, repeats, shapes, takebacks, watermarks
from meshnode.store.database import Tx
from meshnode.store.names import TableEntry

STEPS_AT_ONCE: Final = 12  # steps made in the transaction that decides; the rest has transactions of its own
EVENTS_A_STEP: Final = BATCH_EVENTS  # events that one step takes out of the log
TAKING_BACK: Final = "taking-back"  # a notice that stands while it lasts
_WORK: Final = "take back"


def begin(context: Context, tx: Tx, sites: Sequence[bytes]) -> None:
    """Some of what these sites wrote is no longer acceptable: take it back, in this transaction if that is short."""
    abandon(context, tx)
    takebacks.start(tx, sites)
    context.taking_back = True
    for _ in range(STEPS_AT_ONCE):
        if not step(context, tx):
            return
    for site in sites:
        if not notices.stands(tx, TAKING_BACK, site):
            sample = "events that are no longer acceptable are being taken back: until then rows may still show them"
            context.surface(tx, TAKING_BACK, site, sample)


def step(context: Context, tx: Tx) -> bool:
    """One bounded step of what is due; whether there may be more."""
    if not context.taking_back:
        return False
    work = context.work.get(_WORK)
    if not isinstance(work, _TakeBack):
        work = context.work[_WORK] = _TakeBack(context)
    if work.step(tx):
        return True
    del context.work[_WORK]
    context.taking_back = False
    return False


class _TakeBack:
    """What is left to do, found anew after a restart and after a transaction that failed."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._sites: frozenset[bytes] = frozenset()
        self._left: list[TableEntry] | None = None  # tables whose rows are to be looked at; None: the log comes first
        self._rebuild: Rebuild | None = None

    def step(self, tx: Tx) -> bool:
        """One bounded step; whether there is more."""
        if self._left is None:
            if self._remove_some(tx):
                return True
            self._sites = frozenset(takebacks.pending(tx))
            self._left = [entry for entry in self._context.tables.registered(tx) if entry.no is not None]
        if self._left:
            if not self._rebuild_some(tx, self._left[0]):
                self._rebuild = None
                del self._left[0]
            return True
        self._finish(tx)
        return False

    # --- the log

    def _remove_some(self, tx: Tx) -> bool:
        """Take the next events out; whether there were any."""
        for site in takebacks.pending(tx):
            number = self._context.sites.find(tx, site)
            if number is None:
                continue  # nothing is stored about it
            member = self._context.membership.by_site.get(site)
            for outside in history.complement(member.spans() if member else []):
                found = history.events_within(tx, number, outside, EVENTS_A_STEP)
                if found:
                    _remove(tx, number, found)
                    takebacks.count(tx, site, len(found))
                    return True
        return False

    # --- the rows

    def _rebuild_some(self, tx: Tx, entry: TableEntry) -> bool:
        """One step of one table; whether there is more of it."""
        destination = self._context.destination(tx, entry)
        if destination is None:  # a table that cannot be used now is rebuilt as a whole once it can be
            assert entry.no is not None
            shapes.recompute_later(tx, entry.no, self._context.next_position)
            return False
        if self._rebuild is None or not self._rebuild.fits(entry, destination):

            def choice(_key_bytes: bytes, state: RowState) -> bool:
                return any(rank[16:32] in self._sites and self._went(tx, entry, rank) for rank in _ranks(state))

            self._rebuild = Rebuild(self._context, tx, entry, destination, choice)
        return self._rebuild.step(tx)

    def _went(self, tx: Tx, entry: TableEntry, rank: Rank) -> bool:
        """Whether an event is gone: its standing may have come back after it was taken out (profile §9)."""
        site, hlc = rank[16:32], hlc_of_rank(rank)
        if self._context.membership.judge(site, hlc) is not None:
            return True
        if hlc < entry.horizon:
            return False  # stays as given
        number = self._context.sites.find(tx, site)
        return number is None or not log.holds(tx, number, hlc, rank[32:])

    # --- the end

    def _finish(self, tx: Tx) -> None:
        """Let the groups of the sites go on, and surface each site once, with its count."""
        for site, taken in takebacks.pending(tx).items():
            number = self._context.sites.find(tx, site)
            if number is not None:
                self._release(tx, site, number)
                repeats.note(tx, number, self._context.clock)  # they may come again, and were seen
            if taken:
                sample = f"taken back, since no longer acceptable: {counted_text(taken, 'event')}"
                self._context.surface(tx, "taken-back", site, sample)
            notices.end(tx, TAKING_BACK, site)
        withdraw_taken_back(self._context, tx, list(takebacks.pending(tx)))
        takebacks.finish(tx)

    def _release(self, tx: Tx, site: bytes, site_no: int) -> None:
        """An interval of rejected events ends where they would not be accepted any more (profile §6)."""
        judge = self._context.membership.judge
        groups = watermarks.of_site(tx, site_no)
        for group in groups:
            group.forgive(lambda hlc: judge(site, hlc) is not None)
        watermarks.save(tx, [each for each in groups if each.changed])
        watermarks.advance_site(tx, site_no)


def _remove(tx: Tx, site_no: int, found: Sequence[history.Found]) -> None:
    held_sizes: defaultdict[int, list[int]] = defaultdict(list)
    for _, table_no, state, size in found:
        if state == log.HELD:
            held_sizes[table_no].append(size)
    for table_no, sizes in held_sizes.items():
        held.remove_held(tx, site_no, table_no, len(sizes), sum(sizes))
    positions = [each[0] for each in found]
    log.remove(tx, positions)
    removed.record(tx, positions, removed.TAKEN_BACK)


def _ranks(state: RowState) -> Iterable[Rank]:
    return {rank for rank in (state.tombstone, state.upsert, *state.columns.values()) if rank is not None}

"""The one order of checks, from `retired-signer` on; the first that applies decides (profile §6, SSP/1 §12).

What was decided before, over bytes alone, is in `engine.verify`. Judging writes nothing but numbers for names.
"""

from __future__ import annotations

from typing import Final

from meshnode.engine.batch import Signer, Target
from meshnode.engine.context import Context
from meshnode.engine.progress import Progress
from meshnode.limits import HELD_BYTES_PER_SITE
from meshnode.model import verdict as reasons
from meshnode.model.event import Event
from meshnode.model.hlc import beyond_skew
from meshnode.model.policy import NEVER
from meshnode.model.scope import Scope
from meshnode.model.verdict import Judgement, Verdict
from meshnode.store import held, log, repeats, watermarks
from meshnode.store.database import Tx
from meshnode.store.names import TableEntry

APPLIED: Final = Judgement(Verdict.APPLIED)
DUPLICATE: Final = Judgement(Verdict.DUPLICATE)
BELOW_HORIZON: Final = Judgement(Verdict.BELOW_HORIZON)
HELD: Final = Judgement(Verdict.HELD)
REJECTED_SKEW: Final = Judgement(Verdict.REJECTED, reasons.SKEW)
REJECTED_QUOTA: Final = Judgement(Verdict.REJECTED, reasons.QUOTA)
SCOPE: Final = Judgement(Verdict.DROPPED, reasons.SCOPE)
RESERVED_NAME: Final = Judgement(Verdict.DROPPED, reasons.RESERVED_NAME)
EMPTY_KEY: Final = Judgement(Verdict.DROPPED, reasons.EMPTY_KEY)
FORGOTTEN: Final = Judgement(Verdict.DROPPED, reasons.FORGOTTEN)
UNRESOLVED_KEY: Final = Judgement(Verdict.DROPPED, reasons.UNRESOLVED_KEY)


class Judge:
    """Judges the events of one batch, in order, inside its transaction."""

    def __init__(
        self, context: Context, tx: Tx, scope: Scope, author: bytes | None, progress: Progress, *, local: bool
    ) -> None:
        self._context = context
        self._progress = progress
        self._tx = tx
        self._scope = scope
        self._author = author
        self._local = local  # written here: the policy decides what crosses, not what is written
        self._membership = context.membership
        self._signers: dict[bytes, Signer] = {}
        self._targets: dict[tuple[str, str], Target] = {}
        self.now_ms = context.env.wall_ms()

    def signer(self, site: bytes) -> Signer:
        """The signer of an event, whose signature was verified."""
        signer = self._signers.get(site)
        if signer is None:
            number = self._context.sites.number(self._tx, site)
            signer = self._signers[site] = Signer(
                site,
                number,
                own=site == self._context.site,
                streams=site == self._author,
                retired=self._membership.retired(site) is not None,
                newest=self._context.newest(self._tx, number),
                unkept=watermarks.load(self._tx, number, watermarks.UNKEPT),
            )
        return signer

    def target(self, event: Event) -> Target:
        """The table that an event names."""
        name = (event.schema, event.table)
        target = self._targets.get(name)
        if target is None:
            entry = self._context.tables.entry(self._tx, *name)
            destination = self._context.destination(self._tx, entry)
            target = self._targets[name] = Target(entry, self._oldest_ms(entry), destination)
        return target

    def _oldest_ms(self, entry: TableEntry) -> int:
        if not self._scope.contains(entry.schema, entry.name):
            return NEVER
        return 0 if self._local else self._context.policy.oldest_ms(entry.table_class, self.now_ms)

    def judge(self, event: Event, signer: Signer, target: Target) -> Judgement:
        """The verdict on one verified event."""
        reason = self._membership.judge(event.site, event.hlc)
        if reason is not None:
            return Judgement(Verdict.DROPPED, reason)
        if not signer.own and beyond_skew(event.hlc.physical, self.now_ms):
            return REJECTED_SKEW
        if event.hlc.physical < target.oldest_ms:
            return SCOPE
        entry = target.entry
        if entry.reserved:
            return RESERVED_NAME
        key = event.key
        if not key:
            return EMPTY_KEY
        if entry.forgotten and entry.no is not None and held.is_forgotten(self._tx, entry.no, event.key_bytes):
            return FORGOTTEN
        if self.is_known(event, signer):
            return DUPLICATE
        if event.hlc < entry.horizon:
            return BELOW_HORIZON
        if target.destination is None:
            return HELD if self._may_hold(event, signer, target) else REJECTED_QUOTA
        return APPLIED if target.destination.resolves(key) else UNRESOLVED_KEY

    def reuses_clock(self, event: Event, signer: Signer) -> bool:
        """Whether another event has this one's clock; the event itself is not retained yet (profile §4)."""
        if signer.newest is None or event.hlc > signer.newest:
            return False
        return event.hlc in signer.pending or log.has_clock(self._tx, signer.no, event.hlc)

    def retain(self, event: Event, signer: Signer) -> None:
        """Note an event that this batch appends to the log."""
        hlc = event.hlc
        signer.pending[hlc] = (*signer.pending.get(hlc, ()), event.event_id)
        if signer.newest is None or hlc > signer.newest:
            signer.newest = hlc

    def finish(self) -> None:
        """Let later batches know the highest clocks."""
        for signer in self._signers.values():
            if signer.newest is not None and signer.pending:
                self._context.saw(signer.no, signer.newest)

    def note_own_returned(self) -> None:
        """What this node had seen when it wrote what a peer now brings is not known here any more."""
        own = self._signers.get(self._context.site)
        if own is not None and own.pending:
            repeats.note(self._tx, own.no, max(own.pending))

    def is_known(self, event: Event, signer: Signer) -> bool:
        """Idempotency by event id: equal clocks are looked up and the bytes compared (SSP/1 §12, step 4)."""
        if signer.newest is None or event.hlc > signer.newest:
            return False
        if event.event_id in signer.pending.get(event.hlc, ()):
            return True
        return any(data == event.data for _, data in log.find(self._tx, signer.no, event.hlc, event.event_id))

    def _may_hold(self, event: Event, signer: Signer, target: Target) -> bool:
        if signer.held_bytes < 0:
            signer.held_bytes = held.held_bytes(self._tx, signer.no)
        fits = signer.held_bytes + len(event.data) <= HELD_BYTES_PER_SITE
        return fits and self._progress.may_open(signer, target)

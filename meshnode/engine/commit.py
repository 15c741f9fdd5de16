"""The door's second step: a batch of verified events becomes log rows, table rows, notices, changes (profile §6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from meshnode.engine.batch import Signer, Target
from meshnode.engine.contest import Contest
from meshnode.engine.context import Context
from meshnode.engine.judge import Judge
from meshnode.engine.materialize import Materializer
from meshnode.engine.progress import Progress
from meshnode.engine.verify import Checked, Refused, verify_untrusted
from meshnode.engine.whole import Whole
from meshnode.errors import ClockExhaustedError
from meshnode.model.event import Event
from meshnode.model.hlc import Hlc, beyond_skew, observe
from meshnode.model.scope import Scope
from meshnode.model.verdict import ADVANCING_DROPS, FORGOTTEN, UNRESOLVED_KEY, Judgement, Verdict, key_differs
from meshnode.model.wording import clock_text, key_text
from meshnode.store import held, log
from meshnode.store.database import Tx


def commit_events(
    context: Context,
    tx: Tx,
    checked: Sequence[Checked],
    *,
    author_stream: bool,
    scope: Scope,
    peer: bytes | None = None,
    whole: Whole | None = None,
) -> list[Judgement]:
    """Judge and apply `checked` in order, inside the caller's transaction; one judgement each.

    `peer` is who delivered them, None for this node itself: unauthenticated bytes are put down to it, and where
    `author_stream` says that this is its own stream, the watermarks of those of its own groups that the stream shows
    whole may advance. Call it within `Context.transact`.
    """
    return Batch(context, tx, author_stream=author_stream, scope=scope, peer=peer, whole=whole).run(checked)


class Batch:
    """One call of `commit_events`; afterwards it also knows which rows are withheld."""

    def __init__(
        self,
        context: Context,
        tx: Tx,
        *,
        author_stream: bool,
        scope: Scope,
        peer: bytes | None,
        whole: Whole | None = None,
        seen: bool = False,
    ) -> None:
        author = (context.site if peer is None else peer) if author_stream else None
        self._context = context
        self._tx = tx
        self._peer = peer
        self._progress = Progress(context, tx, whole or Whole())
        self._judge = Judge(context, tx, scope, author, self._progress, local=peer is None)
        self._seen = seen
        self.rows = Materializer(context, tx, seen=seen, contest=Contest(context, tx, local=peer is None))
        self._log: list[log.LogRow] = []
        self._held: Counter[tuple[int, int]] = Counter()
        self._held_bytes: Counter[tuple[int, int]] = Counter()
        self._receipts: list[bytes] = []
        self._clock = context.clock

    def run(self, checked: Sequence[Checked]) -> list[Judgement]:
        """Judge all, then write all; what is unsigned of their rows comes first (engine/capture.py)."""
        if self._context.adopted and not self._seen:
            self._context.settle(self._tx, self._keys(checked))
        judgements = [self._one(each) for each in self._again(checked)]
        self._write()
        self._context.judging.update(judgements)
        return judgements

    def _keys(self, checked: Sequence[Checked]) -> dict[int, list[bytes]]:
        keys: dict[int, list[bytes]] = {}
        for each in checked:
            if not isinstance(each, Refused) and each.event.key:
                entry = self._context.tables.entry(self._tx, each.event.schema, each.event.table)
                if entry.no in self._context.adopted:
                    keys.setdefault(entry.no, []).append(each.event.key_bytes)
        return keys

    def _again(self, checked: Sequence[Checked]) -> Sequence[Checked]:
        """What was verified under another generation of the keyring is verified again."""
        generation = self._context.generation
        if all(each.generation == generation for each in checked):
            return checked
        data = [each.data if isinstance(each, Refused) else each.event.data for each in checked]
        return verify_untrusted(
            data, mesh_id=self._context.mesh_id, keyring=self._context.membership, generation=generation
        )

    def _one(self, checked: Checked) -> Judgement:
        if isinstance(checked, Refused):
            # Unauthenticated bytes name nobody: a forgery must cost the forger (SSP/1 §4).
            self._surface(checked.reason, self._peer, "", checked.detail)
            return Judgement(Verdict.DROPPED, checked.reason)
        event = checked.event
        signer, target = self._judge.signer(event.site), self._judge.target(event)
        judgement = self._judge.judge(event, signer, target)
        verdict = judgement.verdict
        if verdict is Verdict.APPLIED:
            self._retain(event, signer, target, log.APPLIED)
            assert target.destination is not None
            self.rows.add(target.entry, target.destination, event)
        elif verdict is Verdict.HELD:
            self._hold(event, signer, target)
        elif verdict is Verdict.BELOW_HORIZON:
            self._observe(event.hlc, signer)
        elif verdict is not Verdict.DUPLICATE:
            self._refuse(event, judgement)
        if verdict is Verdict.REJECTED:
            if not self._judge.is_known(event, signer):  # a repeat that this clock, set back, takes for a future one
                self._progress.reject(signer, target, event.hlc)
        elif verdict is not Verdict.DROPPED or judgement.reason in ADVANCING_DROPS:
            self._progress.settle(signer, target, event.hlc, advances=verdict is not Verdict.DUPLICATE)
        return judgement

    def _retain(self, event: Event, signer: Signer, target: Target, state: int) -> None:
        """Append to the log; the first event of a clock or a retired signer is nothing special, the next one is."""
        if self._judge.reuses_clock(event, signer):
            self._surface("hlc-reuse", event.site, target.entry.text, _describe(event))
        if signer.retired:
            self._surface("late-below-cutoff", event.site, target.entry.text, _describe(event))
        if signer.own and beyond_skew(event.hlc.physical, self._judge.now_ms):
            text = f"this device's clock is behind its own event at {clock_text(event.hlc)}"
            self._surface("clock-behind", event.site, "", text)
        self._judge.retain(event, signer)
        table_no = self._context.tables.number(self._tx, target.entry)
        self._log.append(log.row(self._context.take_position(), signer.no, table_no, state, event))
        self._observe(event.hlc, signer)

    def _hold(self, event: Event, signer: Signer, target: Target) -> None:
        self._retain(event, signer, target, log.HELD)
        self._progress.open(signer, target)
        signer.held_bytes += len(event.data)
        group = (signer.no, self._context.tables.number(self._tx, target.entry))
        self._held[group] += 1
        self._held_bytes[group] += len(event.data)

    def _observe(self, remote: Hlc, signer: Signer) -> None:
        """Merge the event's clock (SSP/1 §12, step 5); one that ticked this very clock is in it already.

        At the end of its range the clock stays there, and authoring refuses (profile §4).
        """
        if signer.own and remote <= self._clock:
            return
        try:
            self._clock = observe(self._clock, remote, self._judge.now_ms)
        except ClockExhaustedError:
            self._clock = max(self._clock, remote)

    def _refuse(self, event: Event, judgement: Judgement) -> None:
        """Surface what is not kept; of a forgotten row's event the id is kept."""
        assert judgement.reason is not None
        if judgement.reason == FORGOTTEN:
            self._receipts.append(event.event_id)
            return
        table = event.table if event.schema == "main" else f"{event.schema}.{event.table}"
        told = _describe(event)
        if judgement.reason == UNRESOLVED_KEY:
            told += f": {key_differs(table)}"
        self._surface(judgement.reason, event.site, table, told)

    def _surface(self, kind: str, site: bytes | None, table: str, sample: str) -> None:
        self._context.surface(self._tx, kind, site, sample, table=table)

    def _write(self) -> None:
        self._context.clock = self._clock
        if self._log:
            log.append(self._tx, self._log)
        if self._held:
            held.add_held(self._tx, {group: (n, self._held_bytes[group]) for group, n in self._held.items()})
        if self._receipts:
            held.keep_receipts(self._tx, self._receipts)
        if self._peer is not None:
            self._judge.note_own_returned()
        self.rows.write(self._judge.now_ms)
        self._progress.write()
        self._judge.finish()


def _describe(event: Event) -> str:
    """One line that lets a person find the event; names and keys are a peer's words, so they are cut."""
    key = key_text(event.key)
    what = "delete" if event.columns is None else "upsert"
    return f"{what} of {event.table} {key} at {clock_text(event.hlc)}, event {event.event_id.hex()[:16]}"

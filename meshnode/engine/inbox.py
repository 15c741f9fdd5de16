"""The receiving job of a session: one transaction that commits frames and the acks that answer them (profile §8).

Verdicts, log, rows, records, notices, high-water mark, stored acks, frontier and HLC are on disk together or not at all
(NEOTH commit contract); an ack leaves only after this returns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from meshnode.engine.claims import own_ahead_untrusted, own_newest, take_claims_untrusted
from meshnode.engine.commit import commit_events
from meshnode.engine.context import Context
from meshnode.engine.membership import add_records
from meshnode.engine.outbox import stream_of
from meshnode.engine.verify import Checked, verify_untrusted
from meshnode.engine.wanted import wanted
from meshnode.engine.whole import read_whole
from meshnode.model.delivery import Adopt, Committed, Received, StoredAck
from meshnode.model.frames import Ack, Answered, Batch, Live, Offer, Records, WatermarkEntry, encode_frame
from meshnode.model.hlc import ZERO
from meshnode.model.scope import Scope
from meshnode.model.verdict import Judgement, Verdict
from meshnode.store import frontier, inbound
from meshnode.store.database import Tx
from meshnode.store.delivery import Stream


@dataclass(slots=True)
class _Outcome:
    """What an ack says of one frame."""

    frame: Received
    rejected: tuple[int, ...] = ()
    held: int = 0
    dropped: int = 0
    wanted: tuple[int, ...] | None = None


@dataclass(slots=True)
class _Work:
    """One transaction of receiving."""

    context: Context
    tx: Tx
    stream: Stream
    scope: Scope
    checked: Mapping[int, Sequence[Checked]]
    outcomes: list[_Outcome] = field(default_factory=list)
    added: bool = False
    membership_changed: bool = False
    answered: list[bytes] = field(default_factory=list)


def receive(
    context: Context,
    peer: bytes,
    path: str,
    *,
    adopt: Adopt | None,
    epoch: bytes,
    frames: Sequence[Received],
    scope: Scope,
    checked: Mapping[int, Sequence[Checked]] | None = None,
    claims: Sequence[WatermarkEntry] = (),
) -> Committed | None:
    """Commit frames in order, then take the watermarks that the peer told after them.

    None, with nothing written, where the stored stream stands elsewhere. Frames that are committed already are answered
    with their stored acks. `checked` is what `verify_untrusted` found, where it ran before; what it was verified under
    is checked again by the door's second step.
    """

    def work(tx: Tx) -> Committed | None:
        return _receive(context, tx, peer, path, adopt, epoch, frames, scope, checked or {}, claims)

    return context.transact(work)


def _receive(
    context: Context,
    tx: Tx,
    peer: bytes,
    path: str,
    adopt: Adopt | None,
    epoch: bytes,
    frames: Sequence[Received],
    scope: Scope,
    checked: Mapping[int, Sequence[Checked]],
    claims: Sequence[WatermarkEntry],
) -> Committed | None:
    stream = stream_of(context, tx, peer, path)
    held = inbound.read_inbound(tx, stream)
    if adopt is None and (held is None or held.epoch != epoch):
        return None
    if adopt is not None and (held is None or held.epoch != adopt.epoch):
        if held is not None and adopt.link < held.link:
            return None
        inbound.adopt(tx, stream, adopt)
        next_no, stored = adopt.next, {}
    else:
        assert held is not None
        next_no, stored = held.next, {ack.no: ack for ack in held.acks}
    parted = _part(frames, next_no, stored)
    if parted is None:
        return None
    repeats, fresh = parted
    work = _Work(context, tx, stream, scope, checked)
    for kind, run in groupby(fresh, key=lambda frame: type(frame.content)):
        if kind in (Batch, Live):
            _commit_batches(work, list(run), author_stream=kind is Batch)
        else:
            for frame in run:
                _commit_other(work, frame)
    claimed = bool(claims) and take_claims_untrusted(context, tx, stream, claims, scope)
    return Committed(
        epoch,
        next_no + len(fresh),
        (*repeats, *_store_acks(work, epoch)),
        added=work.added or claimed,
        offered=any(outcome.wanted is not None for outcome in work.outcomes),
        claimed=claimed,
        membership_changed=work.membership_changed,
        answered=tuple(work.answered),
        own_ahead=own_ahead_untrusted(context, tx, claims),
        own_newest=own_newest(context, tx) if work.answered else ZERO,
    )


def _part(
    frames: Sequence[Received], next_no: int, stored: dict[int, StoredAck]
) -> tuple[list[StoredAck], list[Received]] | None:
    """The stored acks of repeats, and the frames that continue the stream; None where these do not."""
    repeats: list[StoredAck] = []
    fresh: list[Received] = []
    for frame in frames:
        ack = stored.get(frame.no)
        if frame.no == next_no + len(fresh):
            fresh.append(frame)
        elif frame.no < next_no and not fresh and ack is not None and ack.digest == frame.digest:
            repeats.append(ack)
        else:
            return None
    return repeats, fresh


def _commit_batches(work: _Work, frames: Sequence[Received], *, author_stream: bool) -> None:
    """Consecutive batches go through the door as one, so that a row written by many of them is stored once.

    Live events came out of order: like a relay's they claim nothing of what is before them (profile §6).
    """
    context, batches = work.context, [frame.content for frame in frames if isinstance(frame.content, Batch | Live)]
    checked: list[Checked] = []
    for frame, batch in zip(frames, batches, strict=True):
        known = work.checked.get(frame.no)
        if known is None:
            known = verify_untrusted(
                batch.events, mesh_id=context.mesh_id, keyring=context.membership, generation=context.generation
            )
        checked.extend(known)
    first = context.next_position
    judged = commit_events(
        context,
        work.tx,
        checked,
        author_stream=author_stream,
        scope=work.scope,
        peer=work.stream.peer,
        whole=read_whole(work.tx, work.stream),
    )
    if context.next_position > first:
        context.known(work.stream.key).holds.add(first, context.next_position - 1)
    judgements = iter(judged)
    clock: dict[bytes, int] = {}
    for frame, batch in zip(frames, batches, strict=True):
        work.outcomes.append(_tally(work, frame, judgements, len(batch.events)))
        for site, counter in batch.clock.items():
            clock[site] = max(clock.get(site, 0), counter)
    frontier.merge(work.tx, context.site, clock)


def _tally(work: _Work, frame: Received, judgements: Iterator[Judgement], count: int) -> _Outcome:
    rejected: list[int] = []
    held = dropped = 0
    for index in range(count):
        verdict = next(judgements).verdict
        if verdict is Verdict.REJECTED:
            rejected.append(index)
        elif verdict is Verdict.HELD:
            held += 1
        elif verdict is Verdict.DROPPED:
            dropped += 1
        if verdict is Verdict.APPLIED or verdict is Verdict.HELD:
            work.added = True
    return _Outcome(frame, tuple(rejected), held, dropped)


def _commit_other(work: _Work, frame: Received) -> None:
    if isinstance(frame.content, Records):
        outcome = add_records(work.context, work.tx, frame.content.records, peer=work.stream.peer)
        work.added = work.added or bool(outcome.added)
        work.membership_changed = work.membership_changed or outcome.changed
        work.outcomes.append(_Outcome(frame, tuple(outcome.rejected), 0, outcome.dropped))
    elif isinstance(frame.content, Answered):
        if inbound.remove_request(work.tx, work.stream, frame.content.id):
            work.answered.append(frame.content.id)
        work.outcomes.append(_Outcome(frame))
    elif isinstance(frame.content, Offer):
        indexes = wanted(work.context, work.tx, work.stream, frame.content)
        work.outcomes.append(_Outcome(frame, wanted=indexes))


def _store_acks(work: _Work, epoch: bytes) -> list[StoredAck]:
    """The acks carry the clock as this transaction leaves it."""
    acks = [
        StoredAck(
            outcome.frame.no,
            outcome.frame.digest,
            encode_frame(
                Ack(
                    epoch=epoch,
                    no=outcome.frame.no,
                    digest=outcome.frame.digest,
                    hlc=work.context.clock,
                    rejected=outcome.rejected,
                    held=outcome.held,
                    dropped=outcome.dropped,
                    wanted=outcome.wanted,
                )
            ),
        )
        for outcome in work.outcomes
    ]
    if acks:
        inbound.record(work.tx, work.stream, acks)
    return acks

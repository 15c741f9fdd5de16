"""The store jobs of a session and the inputs that answer them, run in place: the reference for a driver's jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from meshnode.engine import inbox, outbox
from meshnode.engine.context import Context
from meshnode.engine.offer import Filter
from meshnode.engine.verify import Checked
from meshnode.errors import CorruptStateError
from meshnode.model.delivery import PATH, Committed
from meshnode.sync.effects import Advance, Answer, Commit, Effect, NewEpoch, Resend
from meshnode.sync.session import Session

Job: TypeAlias = Advance | Resend | NewEpoch | Answer | Commit

Reply: TypeAlias = Callable[[Session, int], list[Effect]]
"""Gives the session the outcome of its job."""


@dataclass(frozen=True, slots=True)
class Lane:
    """What the jobs of one link share."""

    context: Context
    peer: bytes
    offered: Filter = field(default_factory=Filter)  # what the peer may get: known once its hello was read


def run_job(
    lane: Lane, job: Job, checked: Mapping[int, Sequence[Checked]] | None = None
) -> tuple[Reply, Committed | None]:
    """Run one job; all of it is on disk when this returns. Raises what ends the link.

    `checked`: what `verify_untrusted` found of a `Commit` before it was queued.
    """
    if isinstance(job, Commit):
        committed = inbox.receive(
            lane.context,
            lane.peer,
            PATH,
            adopt=job.adopt,
            epoch=job.epoch,
            frames=job.frames,
            scope=lane.context.policy.scope,
            checked=checked,
            claims=job.claims,
        )
        return (lambda session, now_ms: session.committed(committed, now_ms)), committed
    try:
        return _send_job(lane, job), None
    except CorruptStateError as error:
        reason = str(error)
        return (lambda session, now_ms: session.stream_failed(reason, now_ms)), None


def _send_job(lane: Lane, job: Advance | Resend | NewEpoch | Answer) -> Reply:
    context, peer, offered = lane.context, lane.peer, lane.offered
    match job:
        case Advance():
            advanced = outbox.advance(
                context,
                peer,
                PATH,
                epoch=job.epoch,
                settled=job.settled,
                known_no=job.known_no,
                room=job.room,
                retry=job.retry,
                watermarks=job.watermarks,
                offered=offered,
                batch=job.batch,
                live_after=job.live_after,
                live_room=job.live_room,
                linked=job.linked,
                offer_to=job.offer_to,
            )
            return lambda session, now_ms: session.advanced(advanced, now_ms)
        case Resend():
            frames = outbox.resend(context, peer, PATH, epoch=job.epoch, from_no=job.from_no, offered=offered)
            return lambda session, now_ms: session.resent(frames, now_ms)
        case NewEpoch():
            stream = outbox.open_epoch(context, peer, PATH, expected=job.expected, at=job.at)
            return lambda session, now_ms: session.epoch_opened(stream, now_ms)
        case Answer():
            stored = outbox.queue_answer(context, peer, PATH, job.request, offers=offered.offers)
            return lambda session, now_ms: session.answer_stored(stored, now_ms)

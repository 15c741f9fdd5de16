"""Both streams between this node and one peer, as a person wants to see them (NEOTH operations).

Reads only, over any snapshot. What cannot be read is named and hides nothing else: the next step of the stream is tried
without making it, so a log row that will stop it is found here whether or not the node runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from meshnode.engine.offer import Filter, TableFilter
from meshnode.errors import CorruptStateError
from meshnode.limits import BATCH_EVENTS
from meshnode.model.delivery import InboundStream
from meshnode.model.frames import Request
from meshnode.store import backfills, delivery, inbound, meta, offers, reoffers
from meshnode.store.backfills import Wanted
from meshnode.store.backlog import events_open, oldest_after, own_number, records_after
from meshnode.store.database import Tx
from meshnode.store.delivery import Outbound, StagedRow, Stream

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StagedFrame:
    """One frame in flight."""

    no: int
    kind: int  # store.delivery: EVENTS and so on
    items: int
    bytes: int
    attempts: int


@dataclass(slots=True)
class SyncState:
    """What is on disk, and what of it cannot be read."""

    outbound: Outbound | None = None
    staged: Sequence[StagedFrame] = ()
    inbound: InboundStream | None = None
    events_behind: int = 0
    unconfirmed: int = 0  # events of others that wait to be offered to it
    records_behind: int = 0
    oldest_ms: int | None = None  # HLC of the first event that the peer should get and has not acknowledged
    reoffers: int = 0
    rejected: int = 0  # of them, those that wait for the next cycle
    backfills: Sequence[Wanted] = ()
    asked: Sequence[Request] = ()  # of ours, not answered
    unanswered: Sequence[bytes] = ()  # ids of the peer's
    faults: list[str] = field(default_factory=list)


def sync_state(
    tx: Tx, peer: bytes, path: str, offered: Filter, now_ms: int, linked: Collection[bytes] = ()
) -> SyncState:
    """Everything that can be read of the two streams.

    `offered` is what the peer asked for, as far as it is known, and `linked` to whom it said that it is linked.
    """
    row = tx.execute("SELECT no FROM meshnode_sites WHERE site = ?", (peer,)).fetchone()
    stream = Stream(peer, row[0] if row else -1, path)
    state = SyncState()
    staged = _sending(tx, stream, state)
    state.inbound = _try(state, lambda: inbound.read_checked(tx, stream))
    state.asked = _try(state, lambda: _asked(tx, stream)) or ()
    state.backfills = [each.wanted for each in _try(state, lambda: backfills.pending(tx, stream)) or ()]
    state.unanswered = reoffers.answers(tx, stream)
    state.reoffers, state.rejected = reoffers.count(tx, stream)
    allowed = TableFilter.read(tx, offered, now_ms)
    if state.outbound is not None or not state.faults:
        at = state.outbound or Outbound(b"")
        counts = events_open(tx, stream, at, offered.scope.contains, now_ms, linked)
        state.events_behind, state.unconfirmed = counts
        state.records_behind = records_after(tx, at.record_cursor)
        state.oldest_ms = oldest_after(tx, stream, at, allowed)
        _try(state, lambda: _next(tx, stream, at, staged, allowed))
    return state


def oldest_unacknowledged_ms(tx: Tx, peer: bytes, path: str, offered: Filter, now_ms: int) -> int | None:
    """The HLC in milliseconds of the first event that the peer should get and has not acknowledged.

    None where there is none, or where what is stored of its stream cannot be read.
    """
    row = tx.execute("SELECT no FROM meshnode_sites WHERE site = ?", (peer,)).fetchone()
    stream = Stream(peer, row[0] if row else -1, path)
    try:
        at = delivery.read_outbound(tx, stream) or Outbound(b"")
    except CorruptStateError:
        return None
    return oldest_after(tx, stream, at, TableFilter.read(tx, offered, now_ms))


def _sending(tx: Tx, stream: Stream, state: SyncState) -> list[StagedRow]:
    state.outbound = _try(state, lambda: delivery.read_outbound(tx, stream))
    outbound = state.outbound
    if outbound is None:
        return []
    _try(state, lambda: delivery.past_epochs(tx, stream))
    _try(state, lambda: delivery.has_older_frames(tx, stream))
    staged = _try(state, lambda: delivery.read_staged(tx, stream, outbound)) or []
    _try(state, lambda: delivery.read_frames(tx, stream, staged))
    sizes = delivery.frame_sizes(tx, stream)
    state.staged = [
        StagedFrame(each.no, each.items.kind, len(each.items.positions), sizes.get(each.no, 0), each.attempts)
        for each in staged
    ]
    return staged


def _next(tx: Tx, stream: Stream, outbound: Outbound, staged: Sequence[StagedRow], allowed: TableFilter) -> None:
    """What would be staged next, without staging it; CorruptStateError says what stops it."""
    cursor = staged[-1].cursor_after if staged else outbound.cursor
    offered = staged[-1].offer_cursor_after if staged else outbound.offer_cursor
    last = meta.read_counter(tx, meta.NEXT_POSITION) - 1
    offers.records_after(tx, staged[-1].record_cursor_after if staged else outbound.record_cursor)
    offers.records_at(tx, reoffers.due(tx, stream, reoffers.RECORD, BATCH_EVENTS))
    offers.events_at(tx, reoffers.due(tx, stream, reoffers.EVENT, BATCH_EVENTS), allowed)
    own_no = None if offered is None else own_number(tx)
    offers.events_after(tx, cursor, stream.no, allowed, last, author_no=own_no)
    if offered is not None and own_no is not None:
        others = offers.foreign_after(tx, offered, last, (own_no, stream.no), allowed)
        next((event for _, event in others if event is not None), None)


def _asked(tx: Tx, stream: Stream) -> list[Request]:
    found = [inbound.read_request(body) for body in inbound.requests(tx, stream)]
    return [each for each in found if each is not None]


def _try(state: SyncState, read: Callable[[], T]) -> T | None:
    try:
        return read()
    except CorruptStateError as error:
        state.faults.append(str(error))
        return None

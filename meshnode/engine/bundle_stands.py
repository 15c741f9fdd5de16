"""Where a peer stands for the next bundle: by what it said of bundles, or by its acks on links (`model.bundle`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from meshnode.engine.asking import ask_site
from meshnode.engine.context import Context
from meshnode.engine.outbox import stream_of
from meshnode.errors import CorruptStateError
from meshnode.limits import BUNDLE_STANDS, REQUESTS_PER_PEER
from meshnode.model.bundle import BUNDLE_PATH
from meshnode.model.delivery import PATH
from meshnode.model.frames import Inbound, Request
from meshnode.store import backfills, bundles, delivery, inbound, reoffers
from meshnode.store.database import Tx
from meshnode.store.delivery import EVENTS_AGAIN, RECORDS_AGAIN, Stream

Stand = tuple[bytes, int]
"""An epoch, and the frame of it up to which, or beyond, a peer has to be."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a bundle begins; a peer at any of `stands` holds everything before."""

    cursor: int = 0
    record_cursor: int = 0
    stands: tuple[Stand, ...] = ()


GENESIS: Final = Start()


def start_for(context: Context, tx: Tx, peer: bytes) -> Start:
    """Where the next bundle for this peer begins."""
    stream = stream_of(context, tx, peer, BUNDLE_PATH)
    if reoffers.answers(tx, stream, 1):
        return GENESIS  # what it asked for may be anything, and a bundle is written for it anyway
    at = delivery.read_outbound(tx, stream)
    told = Start(at.cursor, at.record_cursor, ((at.epoch, at.settled_no),)) if at and at.cursor else GENESIS
    linked = _by_links(tx, replace(stream, path=PATH))
    start = max(told, linked, key=lambda each: each.cursor)
    if not start.cursor:
        return GENESIS
    # A bundle that began no earlier: whoever took any of it held what was before. One that reaches as far: whoever took
    # all of it holds that, and may have it by now, where bundles of both sides cross.
    written = bundles.for_peer(tx, stream.no)
    begun = [(each.epoch, 0) for each in written if each.start >= start.cursor]
    ended = [(each.epoch, each.last_no) for each in reversed(written) if _reaches(each, start)]
    return replace(start, stands=tuple(dict.fromkeys((*start.stands, *begun, *ended)))[:BUNDLE_STANDS])


def _reaches(written: bundles.Written, start: Start) -> bool:
    return written.cursor >= start.cursor > written.start and written.record_cursor >= start.record_cursor


def start_for_all(context: Context, tx: Tx, peers: Iterable[bytes]) -> Start:
    """Where a bundle for any of these begins."""
    starts = [start_for(context, tx, peer) for peer in peers]
    first = min(starts, key=lambda each: each.cursor, default=GENESIS)
    if not first.cursor:
        return GENESIS
    stands = dict.fromkeys(stand for each in starts for stand in each.stands)
    records = min(each.record_cursor for each in starts)
    return Start(first.cursor, records, tuple(stands)[:BUNDLE_STANDS])


def _by_links(tx: Tx, stream: Stream) -> Start:
    """Up to where the peer acknowledged everything on links; genesis where that is not known."""
    try:
        at = delivery.read_outbound(tx, stream)
        staged = delivery.read_staged(tx, stream, at) if at else []
        if at is None or backfills.pending(tx, stream, 1):
            return GENESIS
    except CorruptStateError:
        return GENESIS  # that stream stands still and said so
    again = [each.items for each in staged if each.items.kind in (EVENTS_AGAIN, RECORDS_AGAIN)]
    records_open = reoffers.lowest(tx, stream, reoffers.RECORD) is not None or any(
        items.kind == RECORDS_AGAIN for items in again
    )
    cursors = [at.cursor] if at.offer_cursor is None else [at.cursor, at.offer_cursor]
    lowest = reoffers.lowest(tx, stream, reoffers.EVENT)
    cursors += [] if lowest is None else [lowest - 1]
    cursors += [min(items.positions) - 1 for items in again if items.kind == EVENTS_AGAIN and items.positions]
    stands = [(at.epoch, at.settled_no), *((each.epoch, each.no) for each in at.replaces)]
    return Start(min(cursors), 0 if records_open else at.record_cursor, tuple(stands))


def take_report(context: Context, tx: Tx, stream: Stream, holds: Inbound | None) -> None:
    """What the peer says that it holds of our bundles: an ack of the one that it holds to its end.

    Where it holds nothing, it lost what it had: the next one begins at the start. So it does where it holds one that
    this copy never wrote; then it is this one that was restored, and its own later events are asked for.
    """
    known = {each.epoch: each for each in bundles.for_peer(tx, stream.no)}
    written = None if holds is None else known.get(holds.epoch)
    if holds is None or written is None:
        bundles.begin_anew(tx, stream, context.env.wall_ms())
        if holds is not None:
            ask_site(context, tx, stream.no, context.site)
            bundles.may_be_out(tx, context.next_position - 1)
            text = "it holds a bundle that this copy of the device did not write: asked for the device's own events"
            context.surface(tx, "rolled-back", stream.peer, text)
    elif (holds.next - 1, holds.digest) == (written.last_no, written.digest):
        bundles.stand(tx, stream, written)


def take_asked(tx: Tx, stream: Stream, asked: Iterable[Request]) -> bool:
    """Note all that the peer asks for: the next bundle for it answers. False past the bound."""
    wanted = list(dict.fromkeys(request.id for request in asked))
    for request_id in reoffers.answers(tx, stream):
        if request_id not in wanted:  # it was answered on another path
            reoffers.remove_answer(tx, stream, request_id)
    for request_id in wanted[:REQUESTS_PER_PEER]:
        reoffers.add_answer(tx, stream, request_id)
    return len(wanted) <= REQUESTS_PER_PEER


def held_of(context: Context, tx: Tx, peer: bytes) -> Inbound | None:
    """What this node says that it holds of a peer's bundles."""
    held = inbound.read_inbound(tx, stream_of(context, tx, peer, BUNDLE_PATH))
    return None if held is None or held.digest is None else Inbound(held.epoch, held.next, held.digest)


def holds_any(context: Context, tx: Tx, peer: bytes, stands: Iterable[Stand]) -> bool:
    """Whether this node holds everything before a bundle that goes on from any of these, by either path."""
    held: dict[bytes, int] = {}
    for path in (BUNDLE_PATH, PATH):
        stream = stream_of(context, tx, peer, path)
        state = inbound.read_inbound(tx, stream)
        if state is not None and inbound.is_whole(tx, stream):
            held[state.epoch] = state.next - 1
    return any(held.get(epoch, -1) >= no for epoch, no in stands)

"""The sending jobs of a session, one transaction each: settle and stage, resend, new epoch, answer (profile §8).

The stored stream decides: a job for another epoch than the stored one changes nothing and returns None. Only `advance`
moves a cursor, and only past frames that a matching ack settled or, with nothing in flight, past what is filtered out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from meshnode.engine.context import Context
from meshnode.engine.live import Ahead
from meshnode.engine.offer import Filter, TableFilter
from meshnode.engine.staging import Staging
from meshnode.limits import BATCH_EVENTS, REQUESTS_PER_PEER
from meshnode.model.delivery import Advanced, OutboundStream, Settlement, StagedFrame
from meshnode.model.frames import EPOCH_BYTES, WHAT_SITE, Request, WatermarkEntry
from meshnode.model.scope import WILDCARD
from meshnode.store import delivery, reoffers
from meshnode.store.database import Tx
from meshnode.store.delivery import Outbound, StagedRow, Stream
from meshnode.store.watermarks import all_watermarks

GENESIS: Final = "genesis"
SETTLED: Final = "settled"


def stream_of(context: Context, tx: Tx, peer: bytes, path: str) -> Stream:
    """The stream to or from a peer; the peer has a number from here on."""
    return Stream(peer, context.sites.number(tx, peer), path)


def advance(
    context: Context,
    peer: bytes,
    path: str,
    *,
    epoch: bytes,
    settled: Sequence[Settlement],
    known_no: int,
    room: int,
    retry: bool,
    watermarks: bool,
    offered: Filter,
    batch: int = BATCH_EVENTS,
    live_after: int = 0,
    live_room: int = 0,
) -> Advanced | None:
    """Settle acks in order, then stage at most `room` frames; returns every frame above `known_no`.

    A frame gets at most `batch` events. At most `live_room` further frames go ahead of a backlog, with own events
    beyond `live_after` (`engine.live`).
    """
    with context.transaction() as tx:
        stream = stream_of(context, tx, peer, path)
        before = delivery.read_outbound(tx, stream)
        if before is None or before.epoch != epoch:
            return None
        staged = delivery.read_staged(tx, stream, before)
        outbound = _settle(tx, stream, before, staged, settled)
        if outbound is None:
            return None
        if retry:
            reoffers.start_cycle(tx, stream)
        known = [each for each in staged if each.no > outbound.settled_no]
        frames = delivery.read_frames(tx, stream, [each for each in known if each.no > known_no])
        staging = Staging(context, tx, stream, outbound, offered, batch=batch)
        staging.follow(known)
        live = sum(each.staged.live for each in frames)
        ahead = Ahead(live_after, max(live_room - live, 0))
        more = staging.fill(max(room - len(frames) + live, 0), ahead)
        if not known and not staging.frames:
            outbound = replace(outbound, cursor=staging.cursor, record_cursor=staging.record_cursor)
        if outbound != before:
            delivery.write_outbound(tx, stream, outbound)
        told = _watermarks(tx, offered, peer) if watermarks and staging.caught_up else None
        return Advanced(outbound.settled_no, (*frames, *staging.frames), more, told, ahead.after)


def resend(
    context: Context, peer: bytes, path: str, *, epoch: bytes, from_no: int, offered: Filter
) -> tuple[StagedFrame, ...] | None:
    """The staged frames from `from_no` on, byte for byte; None where any was staged under another filter."""
    with context.transaction() as tx:
        stream = stream_of(context, tx, peer, path)
        outbound = delivery.read_outbound(tx, stream)
        if outbound is None or outbound.epoch != epoch:
            return None
        staged = delivery.read_staged(tx, stream, outbound)
        if any(each.filter != offered.text for each in staged):
            return None
        delivery.count_attempt(tx, stream, from_no)
        return tuple(delivery.read_frames(tx, stream, [each for each in staged if each.no >= from_no]))


def open_epoch(context: Context, peer: bytes, path: str, *, expected: bytes | None, at: str) -> OutboundStream | None:
    """Discard what is staged and begin another epoch, at genesis or at the last settled cursor."""
    with context.transaction() as tx:
        stream = stream_of(context, tx, peer, path)
        before = delivery.read_outbound(tx, stream)
        if (before.epoch if before else None) != expected:
            return None
        outbound = _another_epoch(context, tx, stream, before, at)
        delivery.write_outbound(tx, stream, outbound)
        return delivery.stream_view(outbound, [])


def reopen(context: Context, tx: Tx, stream: Stream) -> None:
    """Discard what is staged for a peer and begin another epoch at the settled cursor; a live link then ends itself."""
    before = delivery.read_outbound(tx, stream)
    delivery.write_outbound(tx, stream, _another_epoch(context, tx, stream, before, SETTLED))


def queue_answer(context: Context, peer: bytes, path: str, request: Request) -> bool:
    """Put what the peer asked for into its re-offer set; `answered` follows. False past the bound on requests."""
    with context.transaction() as tx:
        stream = stream_of(context, tx, peer, path)
        outbound = delivery.read_outbound(tx, stream)
        staged = delivery.read_staged(tx, stream, outbound) if outbound else []
        waiting = reoffers.answers(tx, stream)
        if request.id in waiting or any(each.items.request_id == request.id for each in staged):
            return True
        if len(waiting) >= REQUESTS_PER_PEER:
            return False
        passed = staged[-1].cursor_after if staged else outbound.cursor if outbound else 0
        where, values = _matching(context, tx, request)
        reoffers.add_matching(tx, stream, where, values, passed)
        reoffers.add_answer(tx, stream, request.id)
        return True


def _another_epoch(context: Context, tx: Tx, stream: Stream, before: Outbound | None, at: str) -> Outbound:
    outbound = Outbound(context.env.random_bytes(EPOCH_BYTES))
    if before is None:
        return outbound
    staged = delivery.read_staged(tx, stream, before)
    delivery.read_frames(tx, stream, staged)  # what cannot be read is never replaced, not even by a rewind
    for each in staged:
        reoffers.restore(tx, stream, each.items)
    delivery.remove_staged(tx, stream)
    delivery.remember_epoch(tx, stream, before.epoch)
    return _start(outbound, before, at, context.env.wall_ms())


def _settle(
    tx: Tx, stream: Stream, outbound: Outbound, staged: Sequence[StagedRow], settled: Sequence[Settlement]
) -> Outbound | None:
    """Move the cursor past these frames, oldest first; None, with nothing written, where one does not match."""
    by_no = {each.no: each for each in staged}
    matched: list[tuple[StagedRow, Settlement]] = []
    for ack in settled:
        if ack.no <= outbound.settled_no:
            continue  # another session of this peer settled it before
        row = by_no.get(ack.no)
        if row is None or row.digest != ack.digest or ack.no != outbound.settled_no + len(matched) + 1:
            return None
        matched.append((row, ack))
    for row, ack in matched:
        if row.items.kind == delivery.LIVE:
            continue  # the cursor comes by these positions and offers them again
        positions = [row.items.positions[index] for index in ack.rejected if index < len(row.items.positions)]
        reoffers.add(tx, stream, reoffers.kind_of(row.items), positions, waiting=True)
    if not matched:
        return outbound
    last = matched[-1][0]
    delivery.remove_staged(tx, stream, last.no)
    return replace(
        outbound,
        cursor=last.cursor_after,
        record_cursor=last.record_cursor_after,
        settled_no=last.no,
        settled_digest=last.digest,
    )


def _start(outbound: Outbound, before: Outbound, at: str, now_ms: int) -> Outbound:
    """Where a new epoch starts; going back behind what was settled is what `rewound_ms` limits."""
    if at == SETTLED:
        return replace(outbound, cursor=before.cursor, record_cursor=before.record_cursor, rewound_ms=before.rewound_ms)
    passed = before.cursor or before.record_cursor or before.settled_no
    return replace(outbound, rewound_ms=now_ms if passed else before.rewound_ms)


def _matching(context: Context, tx: Tx, request: Request) -> tuple[str, list[object]]:
    """The log rows that a request names, as SQL."""
    if request.what == WHAT_SITE:
        assert request.site is not None
        number = context.sites.find(tx, request.site)
        return "site_no = ?", [-1 if number is None else number]
    every_schema, every_table = request.schema == WILDCARD, request.table == WILDCARD
    return (
        "table_no IN (SELECT no FROM meshnode_tables WHERE (? OR schema = ?) AND (? OR name = ?))",
        [every_schema, request.schema, every_table, request.table],
    )


def _watermarks(tx: Tx, offered: Filter, peer: bytes) -> tuple[WatermarkEntry, ...]:
    """What this node has applied of the groups that the peer is offered, its own included."""
    allowed = TableFilter(tx, offered)
    return tuple(
        WatermarkEntry(each.site, each.schema, each.table, each.hlc.physical, each.hlc.logical)
        for each in all_watermarks(tx)
        if allowed.allows(each.schema, each.table)
    )

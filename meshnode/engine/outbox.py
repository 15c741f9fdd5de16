"""The sending jobs of a session, one transaction each: settle and stage, resend, new epoch, answer (profile §8).

The stored stream decides: a job for another epoch than the stored one changes nothing and returns None. Only `advance`
moves a cursor, and only past frames that a matching ack settled or, with nothing in flight, past what is filtered out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Final

from meshnode.engine.context import Context
from meshnode.engine.live import Ahead
from meshnode.engine.offer import Filter, TableFilter
from meshnode.engine.staging import Staging
from meshnode.errors import CorruptStateError
from meshnode.limits import BATCH_EVENTS, REQUESTS_PER_PEER
from meshnode.model.delivery import Advanced, OutboundStream, Replaced, Settlement, StagedFrame
from meshnode.model.frames import EPOCH_BYTES, Request, WatermarkEntry
from meshnode.model.scope import WILDCARD
from meshnode.store import backfills, delivery, history, inbound, reoffers
from meshnode.store.backfills import Wanted
from meshnode.store.database import Tx
from meshnode.store.delivery import Outbound, StagedRow, Stream
from meshnode.store.watermarks import Watermark, all_watermarks

REPLACED_KEPT: Final = 64  # frames of earlier epochs that a peer may stand at
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

    CorruptStateError where something that is to be staged cannot be read: what was acknowledged is settled all the
    same, and the cursor stays before it.
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
            reoffers.start_cycle(tx, stream, outbound.cursor)
        known = [each for each in staged if each.no > outbound.settled_no]
        frames = delivery.read_frames(tx, stream, [each for each in known if each.no > known_no])
        staging = Staging(context, tx, stream, outbound, offered, batch=batch)
        staging.follow(known)
        live = sum(each.staged.live for each in frames)
        ahead = Ahead(live_after, max(live_room - live, 0))
        more, fault = _fill(context, tx, staging, max(room - len(frames) + live, 0), ahead)
        if not known and not staging.frames and fault is None:
            outbound = replace(outbound, cursor=staging.cursor, record_cursor=staging.record_cursor)
        if outbound != before:
            delivery.write_outbound(tx, stream, outbound)
        told = _watermarks(context, tx, offered) if watermarks and staging.caught_up and fault is None else None
    if fault is not None:
        raise fault
    return Advanced(outbound.settled_no, (*frames, *staging.frames), more, told, ahead.after)


def _fill(context: Context, tx: Tx, staging: Staging, room: int, ahead: Ahead) -> tuple[bool, CorruptStateError | None]:
    """Stage; where something cannot be read, nothing of this staging is kept."""
    try:
        with tx.savepoint("meshnode_staging"):
            return staging.fill(room, ahead), None
    except CorruptStateError as error:
        context.drop_coverages(tx)
        return False, error


def resend(
    context: Context, peer: bytes, path: str, *, epoch: bytes, from_no: int, offered: Filter
) -> tuple[StagedFrame, ...] | None:
    """The staged frames from `from_no` on, byte for byte; None where any holds what may not go out any more."""
    with context.transaction() as tx:
        stream = stream_of(context, tx, peer, path)
        outbound = delivery.read_outbound(tx, stream)
        if outbound is None or outbound.epoch != epoch:
            return None
        staged = delivery.read_staged(tx, stream, outbound)
        text, now_ms = TableFilter.now(context, tx, offered).text, context.env.wall_ms()
        if any(each.filter != text or 0 < each.expires_ms < now_ms for each in staged):
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
    """Begin to put what the peer asked for into its re-offer set; `answered` follows. False past the bound."""
    with context.transaction() as tx:
        stream = stream_of(context, tx, peer, path)
        passed, staged = _passed(tx, stream)
        # `answered` that is staged counts: where its frame is discarded it waits once more.
        unanswered = {*reoffers.answers(tx, stream), *(each.items.request_id for each in staged)} - {b""}
        if request.id in unanswered:
            return True
        if len(unanswered) >= REQUESTS_PER_PEER:
            return False
        names = request.schema or WILDCARD, request.table or WILDCARD
        wanted = Wanted(*names, request.site or b"", covering=bool(request.covering), own=True)
        backfills.add(tx, stream, wanted, passed=passed, last=context.next_position - 1)
        reoffers.add_answer(tx, stream, request.id)
        return True


def offer_again(context: Context, tx: Tx, schema: str, table: str) -> bool:
    """Offer every peer what its stream passed over of a table that goes out from now on; whether there was any peer."""
    last, begun = context.next_position - 1, False
    for stream in delivery.streams(tx):
        try:
            passed, _ = _passed(tx, stream)
        except CorruptStateError:
            passed = last  # it stands still for now; what it will carry as well then goes out twice
        if passed:
            backfills.add(tx, stream, Wanted(schema, table, covering=True), passed=passed, last=last)
            begun = True
    return begun


def _passed(tx: Tx, stream: Stream) -> tuple[int, list[StagedRow]]:
    """The log position that a stream has passed, settled or not, and what is staged."""
    outbound = delivery.read_outbound(tx, stream)
    if outbound is None:
        return 0, []
    staged = delivery.read_staged(tx, stream, outbound)
    return (staged[-1].cursor_after if staged else outbound.cursor), staged


def _another_epoch(context: Context, tx: Tx, stream: Stream, before: Outbound | None, at: str) -> Outbound:
    outbound = Outbound(context.env.random_bytes(EPOCH_BYTES))
    if before is None:
        return outbound
    staged = delivery.read_staged(tx, stream, before)
    delivery.read_frames(tx, stream, staged)  # what cannot be read is never replaced, not even by a rewind
    for each in staged:
        reoffers.restore(tx, stream, each.items)
    if at == GENESIS:
        reoffers.rewind(tx, stream)
        backfills.rewind(tx, stream)
    delivery.remove_staged(tx, stream)
    delivery.remember_epoch(tx, stream, before.epoch)
    return _start(outbound, before, at, context.env.wall_ms(), staged)


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
        replaces=(),
    )


def _start(outbound: Outbound, before: Outbound, at: str, now_ms: int, staged: Sequence[StagedRow]) -> Outbound:
    """Where a new epoch starts; going back behind what was settled is what `rewound_ms` limits.

    One that starts at the settled cursor serves every peer that holds what is settled, whichever epoch it knows.
    """
    if at == SETTLED:
        stands = [Replaced(before.epoch, before.settled_no, before.settled_digest)]
        stands += [Replaced(before.epoch, each.no, each.digest) for each in staged]
        return replace(
            outbound,
            cursor=before.cursor,
            record_cursor=before.record_cursor,
            rewound_ms=before.rewound_ms,
            replaces=(*before.replaces, *stands)[-REPLACED_KEPT:],
        )
    passed = before.cursor or before.record_cursor or before.settled_no
    return replace(outbound, rewound_ms=now_ms if passed else before.rewound_ms)


def _watermarks(context: Context, tx: Tx, offered: Filter) -> tuple[WatermarkEntry, ...]:
    """What this node has applied of the groups that the peer is offered, its own included.

    Not of groups that it does not take whole, nor of its own while it asks for them: what was passed over, or lost with
    a disk, is not here, and others would believe that it is (SSP/1 §14.2, fail closed). What was asked for otherwise
    holds a group back where it is claimed (`engine.whole`), so a peer that never answers silences nobody. A retired one
    never does.
    """
    asked = [
        inbound.read_request(body)
        for _, peer_no, body in history.requests(tx)
        if context.membership.retired(context.sites.site_of(tx, peer_no)) is None
    ]
    lost = any(request is None or request.site == context.site for request in asked)

    def told(each: Watermark) -> bool:
        entry = context.tables.entry(tx, each.schema, each.table)
        whole = context.policy.days(entry.table_class) == inf
        taken = not lost if each.site == context.site else context.policy.scope.contains(each.schema, each.table)
        return whole and taken

    return tuple(
        WatermarkEntry(each.site, each.schema, each.table, each.hlc.physical, each.hlc.logical)
        for each in all_watermarks(tx)
        if offered.scope.contains(each.schema, each.table) and told(each)
    )

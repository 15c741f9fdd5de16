"""The sending jobs of a session, one transaction each: settle and stage, resend, new epoch, answer (profile §8).

The stored stream decides: a job for another epoch than the stored one changes nothing and returns None. Only `advance`
moves a cursor, and only past frames that a matching ack settled or, with nothing in flight, past what is filtered out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import inf
from typing import Final, NamedTuple

from meshnode.engine.acked import note_acks
from meshnode.engine.context import Context
from meshnode.engine.known import Known
from meshnode.engine.live import Ahead
from meshnode.engine.offer import Filter, TableFilter
from meshnode.engine.settling import settle_possible
from meshnode.engine.staging import Staging
from meshnode.errors import CorruptStateError
from meshnode.limits import BATCH_EVENTS, REQUESTS_PER_PEER
from meshnode.model.bundle import BUNDLE_PATH
from meshnode.model.delivery import Advanced, OutboundStream, Replaced, Settlement, StagedFrame
from meshnode.model.frames import EPOCH_BYTES, Request, WatermarkEntry
from meshnode.model.scope import WILDCARD
from meshnode.store import backfills, bundles, delivery, history, inbound, reoffers, taken
from meshnode.store.backfills import Wanted
from meshnode.store.database import Tx
from meshnode.store.delivery import Outbound, StagedRow, Stream
from meshnode.store.watermarks import Watermark, all_watermarks

REPLACED_KEPT: Final = 64  # frames of earlier epochs that a peer may stand at
GENESIS: Final = "genesis"
SETTLED: Final = "settled"
PASSED_ROWS: Final = 512  # log rows that a cursor passes before that alone is written


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
    linked: frozenset[bytes] | None = None,
    offer_to: int = 0,
) -> Advanced | None:
    """Settle acks in order, then stage at most `room` frames of `batch` events; returns every frame above `known_no`.

    At most `live_room` more go ahead of a backlog, own events beyond `live_after` (`engine.live`). `linked` is whom the
    peer is linked to, None before it said so; `offer_to` the position up to which all is to be offered (profile §14).
    CorruptStateError where what is to be staged cannot be read: acks settle all the same, the cursor stays before it.
    """
    with context.transaction() as tx:
        stream = stream_of(context, tx, peer, path)
        found = _settled(context, tx, stream, epoch, settled)
        if found is None:
            return None
        before, outbound, known = found
        if retry:
            reoffers.start_cycle(tx, stream, outbound.cursor)
        frames = delivery.read_frames(tx, stream, [each for each in known if each.no > known_no])
        if known and offered.offers is (outbound.offer_cursor is None):
            room = live_room = 0  # first settles what was staged the other way
        outbound = outbound if known else _in_mode(outbound, offers=offered.offers)
        staging = Staging(context, tx, stream, outbound, offered, batch=batch, linked=linked, offer_to=offer_to)
        staging.follow(known)
        ahead = Ahead(live_after, live_room)
        more, fault = _fill(context, tx, stream, staging, frames, room, ahead)
        if not known and not staging.frames and fault is None:
            outbound = staging.passed(outbound)
        if _is_worth_writing(before, outbound, at_once=more or staging.passed_held):
            delivery.write_outbound(tx, stream, outbound)
        waits = staging.waiting
        told = claimable(context, tx, offered, waits) if watermarks and staging.tells and fault is None else None
    if fault is not None:
        raise fault
    all_frames = (*frames, *staging.frames)
    return Advanced(outbound.settled_no, all_frames, more, told, ahead.after, staging.seen_to, bool(waits))


def _settled(
    context: Context, tx: Tx, stream: Stream, epoch: bytes, settled: Sequence[Settlement]
) -> tuple[Outbound, Outbound, list[StagedRow]] | None:
    """The cursor before and after these acks, and what is in flight still; None where another link has the stream."""
    before = delivery.read_outbound(tx, stream)
    if before is None or before.epoch != epoch:
        return None
    staged = delivery.read_staged(tx, stream, before)
    outbound = _settle(context, tx, stream, before, staged, settled)
    return None if outbound is None else (before, outbound, [each for each in staged if each.no > outbound.settled_no])


def _fill(
    context: Context,
    tx: Tx,
    stream: Stream,
    staging: Staging,
    frames: Sequence[StagedFrame],
    room: int,
    ahead: Ahead,
) -> tuple[bool, CorruptStateError | None]:
    """Stage, within the room that `frames` leave; where something cannot be read, nothing of this staging is kept."""
    live = sum(each.staged.live for each in frames)
    ahead.room = max(ahead.room - live, 0)
    try:
        with tx.savepoint("meshnode_staging"):
            return staging.fill(max(room - len(frames) + live, 0), ahead), None
    except CorruptStateError as error:
        context.drop_coverages(tx)
        context.forget_known(stream.key)
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


def queue_answer(context: Context, peer: bytes, path: str, request: Request, *, offers: bool = False) -> bool:
    """Begin to put what the peer asked for into its re-offer set; `answered` follows. False past the bound.

    Where the stream `offers`, an answer still has whole events: all that others wrote is put there.
    """
    with context.transaction() as tx:
        stream = stream_of(context, tx, peer, path)
        passed, staged = _passed(tx, stream)
        # `answered` that is staged counts: where its frame is discarded it waits once more.
        unanswered = {*reoffers.answers(tx, stream), *(each.items.request_id for each in staged)} - {b""}
        if request.id in unanswered:
            return True
        if len(unanswered) >= REQUESTS_PER_PEER:
            return False
        last = context.next_position - 1
        names = request.schema or WILDCARD, request.table or WILDCARD
        wanted = Wanted(*names, request.site or b"", covering=bool(request.covering), own=True)
        others = last if offers else passed.others
        backfills.add(tx, stream, wanted, passed=passed.own, passed_others=others, last=last)
        if request.site is None:
            taken.begin_again(tx, stream, last, forget=True)  # what it asks for it may lack, though a frame passed it
        reoffers.add_answer(tx, stream, request.id)
        return True


def offer_again(context: Context, tx: Tx, schema: str, table: str) -> bool:
    """Offer every peer what its stream passed over of a table that goes out from now on; whether there was any peer."""
    last, begun = context.next_position - 1, bundles.begin_all_anew(tx, context.env.wall_ms())
    for stream in delivery.streams(tx):
        if stream.path == BUNDLE_PATH:
            continue
        try:
            passed, _ = _passed(tx, stream)
        except CorruptStateError:
            passed = _Passed(last, last)  # it stands still for now; what it will carry as well then goes out twice
        if any(passed):
            wanted = Wanted(schema, table, covering=True)
            backfills.add(tx, stream, wanted, passed=passed.own, passed_others=passed.others, last=last)
            taken.begin_again(tx, stream, last, forget=True)  # frames passed these events over
            begun = True
    return begun


class _Passed(NamedTuple):
    """The log positions that a stream has passed, settled or not: of what this node wrote, and of what others did."""

    own: int
    others: int


def _passed(tx: Tx, stream: Stream) -> tuple[_Passed, list[StagedRow]]:
    """How far a stream has come, and what is staged."""
    outbound = delivery.read_outbound(tx, stream)
    if outbound is None:
        return _Passed(0, 0), []
    staged = delivery.read_staged(tx, stream, outbound)
    cursor = staged[-1].cursor_after if staged else outbound.cursor
    offered = staged[-1].offer_cursor_after if staged else outbound.offer_cursor
    return _Passed(cursor, cursor if offered is None else offered), staged


def _another_epoch(context: Context, tx: Tx, stream: Stream, before: Outbound | None, at: str) -> Outbound:
    context.forget_known(stream.key)
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
    sent_to = max(before.cursor, *(each.cursor_after for each in staged), *_live_positions(staged), 0)
    if staged or at == GENESIS:
        taken.begin_again(tx, stream, sent_to, forget=at == GENESIS)
    delivery.remove_staged(tx, stream)
    delivery.remember_epoch(tx, stream, before.epoch, staged[-1].no if staged else before.settled_no)
    return _start(outbound, before, at, context.env.wall_ms(), staged)


def _live_positions(staged: Sequence[StagedRow]) -> list[int]:
    """Where what went ahead of the cursor ends."""
    return [each.items.positions[-1] for each in staged if each.items.kind == delivery.LIVE and each.items.positions]


def _settle(
    context: Context,
    tx: Tx,
    stream: Stream,
    outbound: Outbound,
    staged: Sequence[StagedRow],
    settled: Sequence[Settlement],
) -> Outbound | None:
    """Move the cursors past these frames, oldest first; None, with nothing written, where one does not match."""
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
        reoffers.add(tx, stream, reoffers.kind_of(row.items), _chosen(row, ack.rejected), waiting=True)
        reoffers.add(tx, stream, reoffers.EVENT, _chosen(row, ack.wanted), waiting=False)
        if row.items.kind == delivery.EVENTS_AGAIN:
            _note_taken(context.known(stream.key), row, ack)
    if not matched:
        return outbound
    told = note_acks(context, tx, stream, outbound, matched, idle=matched[-1][0] is staged[-1])
    if told:
        settle_possible(context, tx, stream, told)
    last = matched[-1][0]
    delivery.remove_staged(tx, stream, last.no)
    return replace(
        outbound,
        cursor=last.cursor_after,
        record_cursor=last.record_cursor_after,
        settled_no=last.no,
        settled_digest=last.digest,
        offer_cursor=last.offer_cursor_after,
        replaces=(),
    )


def _chosen(row: StagedRow, indexes: Sequence[int]) -> list[int]:
    """The positions that an ack names by their indexes."""
    return [row.items.positions[index] for index in indexes if index < len(row.items.positions)]


def _note_taken(known: Known, row: StagedRow, ack: Settlement) -> None:
    """What was sent whole before its turn needs no offer when that comes."""
    if row.offer_cursor_after is None:
        return
    rejected = set(ack.rejected)
    for index, position in enumerate(row.items.positions):
        if index not in rejected and position > row.offer_cursor_after:
            known.holds_at(position)


def _in_mode(outbound: Outbound, *, offers: bool) -> Outbound:
    """Begin to offer events of others, or stop it; nothing is in flight. What was only passed by one cursor waits."""
    if offers is (outbound.offer_cursor is not None):
        return outbound
    if outbound.offer_cursor is None:
        return replace(outbound, offer_cursor=outbound.cursor)
    return replace(outbound, cursor=min(outbound.cursor, outbound.offer_cursor), offer_cursor=None)


def _is_worth_writing(before: Outbound, after: Outbound, *, at_once: bool) -> bool:
    """Where the stream offers, the cursors pass what it never carries all the time: that alone is stored rarely.

    `at_once` where the next job has to go on from there, or `wait` is to see that the peer has something.
    """
    if before == after or at_once or before.offer_cursor is None or after.offer_cursor is None:
        return before != after
    passed = max(after.cursor - before.cursor, after.offer_cursor - before.offer_cursor)
    return passed >= PASSED_ROWS or replace(before, cursor=after.cursor, offer_cursor=after.offer_cursor) != after


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
            offer_cursor=before.offer_cursor,
        )
    passed = before.cursor or before.record_cursor or before.settled_no
    return replace(outbound, rewound_ms=now_ms if passed else before.rewound_ms)


def claimable(context: Context, tx: Tx, offered: Filter, waiting: Collection[bytes]) -> tuple[WatermarkEntry, ...]:
    """What this node has applied of the groups that the peer is offered, its own included.

    Not of groups that it does not take whole, nor of its own while it asks for them: what was passed over, or lost with
    a disk, is not here, and others would believe that it is (SSP/1 §14.2, fail closed). What was asked for otherwise
    holds a group back where it is claimed (`engine.whole`), so a peer that never answers silences nobody. A retired one
    never does. Nor of authors of whose events some wait to be offered (profile §14).
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
        if each.site not in waiting and offered.scope.contains(each.schema, each.table) and told(each)
    )

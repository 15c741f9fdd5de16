"""The sending jobs of a session, one transaction each: settle and stage, resend, new epoch, answer (profile §8).

The stored stream decides: a job for another epoch than the stored one changes nothing and returns None. Only `advance`
moves a cursor, and only past frames that a matching ack settled or, with nothing in flight, past what is filtered out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from meshnode.engine.context import Context
from meshnode.engine.known import Known
from meshnode.engine.offer import Filter, TableFilter
from meshnode.engine.staging import Staging
from meshnode.limits import REQUESTS_PER_PEER
from meshnode.model.delivery import Advanced, OutboundStream, Settlement, StagedFrame
from meshnode.model.frames import EPOCH_BYTES, WHAT_SITE, Request, WatermarkEntry
from meshnode.model.scope import WILDCARD
from meshnode.store import delivery, reoffers
from meshnode.store.database import Tx
from meshnode.store.delivery import Outbound, StagedRow, Stream
from meshnode.store.watermarks import all_watermarks

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
    linked: frozenset[bytes] | None = None,
    offer_to: int = 0,
) -> Advanced | None:
    """Settle acks in order, then stage at most `room` frames; returns every frame above `known_no`.

    Where the stream offers: `linked` is whom the peer is linked to, None before it said so, and `offer_to` the position
    up to which everything is due.
    """
    with context.transaction() as tx:
        stream = stream_of(context, tx, peer, path)
        before = delivery.read_outbound(tx, stream)
        if before is None or before.epoch != epoch:
            return None
        staged = delivery.read_staged(tx, stream, before)
        outbound = _settle(context, tx, stream, before, staged, settled)
        if outbound is None:
            return None
        if retry:
            reoffers.start_cycle(tx, stream)
        known = [each for each in staged if each.no > outbound.settled_no]
        frames = delivery.read_frames(tx, stream, [each for each in known if each.no > known_no])
        if not known:
            outbound = _in_mode(outbound, offers=offered.offers)
        elif offered.offers is (outbound.offer_cursor is None):
            room = 0  # first settles what was staged the other way
        staging = Staging(context, tx, stream, outbound, offered, linked, offer_to)
        staging.follow(known)
        more = staging.fill(max(room - len(frames), 0))
        if not known and not staging.frames:
            outbound = staging.passed(outbound)
        if _is_worth_writing(before, outbound, at_once=more or staging.passed_held):
            delivery.write_outbound(tx, stream, outbound)
        told = _watermarks(tx, offered, peer, staging.waiting) if watermarks and staging.tells else None
        return Advanced(
            outbound.settled_no, (*frames, *staging.frames), more, told, staging.seen_to, bool(staging.waiting)
        )


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


def queue_answer(context: Context, peer: bytes, path: str, request: Request, *, offers: bool = False) -> bool:
    """Put what the peer asked for into its re-offer set; `answered` follows. False past the bound on requests.

    Where the stream `offers`, an answer still has whole events: all that others wrote is put there.
    """
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
        own_no = context.sites.number(tx, context.site) if offers else None
        reoffers.add_matching(tx, stream, where, values, passed, carries=own_no)
        reoffers.add_answer(tx, stream, request.id)
        return True


def _another_epoch(context: Context, tx: Tx, stream: Stream, before: Outbound | None, at: str) -> Outbound:
    context.forget_known(stream.key)
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
        reoffers.add(tx, stream, reoffers.kind_of(row.items), _chosen(row, ack.rejected), waiting=True)
        reoffers.add(tx, stream, reoffers.EVENT, _chosen(row, ack.wanted), waiting=False)
        if row.items.kind == delivery.EVENTS_AGAIN:
            _note_taken(context.known(stream.key), row, ack)
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
        offer_cursor=last.offer_cursor_after,
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


def _start(outbound: Outbound, before: Outbound, at: str, now_ms: int) -> Outbound:
    """Where a new epoch starts; going back behind what was settled is what `rewound_ms` limits."""
    if at == SETTLED:
        return replace(
            outbound,
            cursor=before.cursor,
            record_cursor=before.record_cursor,
            rewound_ms=before.rewound_ms,
            offer_cursor=before.offer_cursor,
        )
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


def _watermarks(tx: Tx, offered: Filter, peer: bytes, waiting: Collection[bytes]) -> tuple[WatermarkEntry, ...]:
    """What this node has applied of the groups that the peer is offered, its own included.

    Not told: of authors of whose events the peer was not even offered all (profile §14).
    """
    allowed = TableFilter(tx, offered)
    return tuple(
        WatermarkEntry(each.site, each.schema, each.table, each.hlc.physical, each.hlc.logical)
        for each in all_watermarks(tx)
        if each.site not in waiting and allowed.allows(each.schema, each.table)
    )

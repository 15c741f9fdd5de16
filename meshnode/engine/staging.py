"""One staging: the next frames of one stream, stored with the positions that follow them (profile §8, "Sender").

The order within one call: records, records to be offered again, live events, events to be sent again or first, events
of the log, offers, `answered`. An event can so never overtake the record that makes it acceptable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from meshnode.engine import backfill
from meshnode.engine.context import Context
from meshnode.engine.live import Ahead, waiting
from meshnode.engine.offer import Filter, TableFilter
from meshnode.engine.offering import Offering
from meshnode.engine.shared import Content, plain
from meshnode.limits import BATCH_EVENTS, LIVE_BACKLOG, LIVE_EVENTS
from meshnode.model.delivery import StagedFrame
from meshnode.model.frames import (
    FEATURE_DEFLATE,
    Answered,
    Batch,
    DeflatedBatch,
    Live,
    Offer,
    Records,
    digest,
    encode_frame,
)
from meshnode.model.offered import pack
from meshnode.store import delivery, frontier, offers, reoffers
from meshnode.store.database import Tx
from meshnode.store.delivery import Items, Outbound, StagedRow, Stream


class Staging:
    """Lives within one transaction. `last` is the frame that the next one follows."""

    def __init__(
        self,
        context: Context,
        tx: Tx,
        stream: Stream,
        outbound: Outbound,
        offered: Filter,
        *,
        batch: int = BATCH_EVENTS,
        linked: frozenset[bytes] | None = None,
        offer_to: int = 0,
    ) -> None:
        self.frames: list[StagedFrame] = []
        self.caught_up = False
        self.cursor = outbound.cursor
        self.record_cursor = outbound.record_cursor
        self.offer_cursor = outbound.offer_cursor
        self._context = context
        self._tx = tx
        self._stream = stream
        self._epoch = outbound.epoch
        self._no = outbound.settled_no
        self._batch = batch
        self._in_order = 0  # frames among `frames` that are not live
        self._waits = False  # rows that are filtered out were passed without end: go on in the next transaction
        self._looks = False  # the log is looked through for events to offer: go on in the next transaction
        self._offer_carried = outbound.offer_cursor  # what the last frame in flight or made here carries
        self._in_flight = False
        self._backfill_looked = False
        self._backfill_left = False  # a step of a backfill was made and there is more
        self._offer_in_flight = False
        self._features = offered.features
        self._allowed = TableFilter.now(context, tx, offered)
        self._linked = linked
        self._offer_to = offer_to
        self._offering: Offering | None = None
        self._slots: dict[bytes, int] | None = None

    def follow(self, staged: Sequence[StagedRow]) -> None:
        """Go on after what is in flight."""
        if staged:
            last = staged[-1]
            self._no, self.cursor, self.record_cursor = last.no, last.cursor_after, last.record_cursor_after
            self.offer_cursor = self._offer_carried = last.offer_cursor_after
            self._in_flight = True
            self._offer_in_flight = any(each.items.kind == delivery.OFFERED for each in staged)

    def fill(self, room: int, ahead: Ahead) -> bool:
        """Stage up to `room` frames, and besides what goes ahead; whether there is more of the former.

        Without frames it moves `cursor` past what is filtered.
        """
        if room > 0 and self.offer_cursor is not None:
            self._look(self._begin_offering(self.offer_cursor))  # first: the frames carry what it passes
        records = self._take(room, self._new_records, self._records_again)
        if ahead.room and (records or self._records_are_out()):
            self._go_ahead(ahead)
        events = (self._events_again, self._new_events, self._offers, self._answers)
        self.caught_up = records and self._take(room, *events) and not (self._looks or self._backfill_left)
        if self._slots is not None:
            frontier.write_local(self._tx, self._slots, self._context.site)
        # With frames in flight the cursor cannot pass what is filtered out: the next ack goes on with it.
        passed = self._waits or (self._looks and self.offer_cursor != self._offer_carried)
        waits = passed and (self._in_flight or self.frames)
        return self._backfill_left or not (self.caught_up or waits)

    def _take(self, room: int, *steps: Callable[[], bool]) -> bool:
        """Run these steps while there is room; whether they have no more."""
        for step in steps:
            while self._in_order < room and step():
                pass
            if self._in_order >= room or self._waits:
                return False
        return True

    # --- What goes ahead of a backlog (feature `live`).

    def _records_are_out(self) -> bool:
        """Whether no record waits: no event may overtake one."""
        after = offers.records_after(self._tx, self.record_cursor)
        return not after.positions and not reoffers.due(self._tx, self._stream, reoffers.RECORD, 1)

    def _go_ahead(self, ahead: Ahead) -> None:
        """Stage own new events, unless the cursor will come by them soon enough."""
        end = self._context.next_position - 1
        positions = waiting(self._context, self._tx, max(ahead.after, self.cursor)) if ahead.after < end else []
        if positions and not self._is_behind(end):
            return
        for _ in range(ahead.room):
            offer, done = offers.events_at(self._tx, positions, self._allowed, LIVE_EVENTS)
            if offer.positions:
                self._stage_events(delivery.LIVE, plain(offer))
            ahead.after, positions = (done or [ahead.after])[-1], positions[len(done) :]
        if not positions:
            ahead.after = end

    def _is_behind(self, end: int) -> bool:
        """Whether more is to be sent first than a few frames hold.

        What is filtered out is passed over: a live frame that settles takes the cursor along, as any other does.
        """
        only = self._carries_only
        upcoming = offers.events_after(self._tx, self.cursor, self._stream.no, self._allowed, end, 1, author_no=only)
        self.cursor = upcoming.positions[0] - 1 if upcoming.positions else upcoming.scanned_to
        first = end - self.cursor
        if only is not None and first > LIVE_BACKLOG:  # what others wrote is offered, after it
            first = len(offers.newest_of(self._tx, only, self.cursor, LIVE_BACKLOG + 1))
        if first > LIVE_BACKLOG:
            return True
        return len(reoffers.due(self._tx, self._stream, reoffers.EVENT, LIVE_BACKLOG + 1)) > LIVE_BACKLOG

    @property
    def _carries_only(self) -> int | None:
        """Whose events the stream carries whole in the order of the log, by number; None for everybody's."""
        return None if self.offer_cursor is None else self._context.sites.number(self._tx, self._context.site)

    def passed(self, outbound: Outbound) -> Outbound:
        """The cursors past what was found and not staged, where nothing is in flight."""
        return replace(outbound, cursor=self.cursor, record_cursor=self.record_cursor, offer_cursor=self.offer_cursor)

    # --- What was found of events of others, where the stream offers them.

    @property
    def waiting(self) -> frozenset[bytes]:
        """The authors of events that wait to be offered."""
        return frozenset() if self._offering is None else self._offering.waiting

    @property
    def passed_held(self) -> bool:
        """Whether anything was passed because the peer has it."""
        return self._offering is not None and self._offering.passed_held

    @property
    def seen_to(self) -> int:
        """The end of the log, where all of it was looked through for events to offer; else 0."""
        return self._context.next_position - 1 if self._offering is not None and self._offering.looked else 0

    @property
    def tells(self) -> bool:
        """Whether watermarks may be told: what the peer still wants of an offer comes before them (profile §14)."""
        return self.caught_up and not self._offer_in_flight

    # --- Steps: stage at most one frame, and tell whether the step may have more.

    def _new_records(self) -> bool:
        offer = offers.records_after(self._tx, self.record_cursor)
        self.record_cursor = offer.scanned_to
        if offer.positions:
            self._stage_records(delivery.RECORDS, offer)
        return not offer.exhausted

    def _records_again(self) -> bool:
        due = reoffers.due(self._tx, self._stream, reoffers.RECORD, BATCH_EVENTS)
        if not due:
            return False
        offer, done = offers.records_at(self._tx, due)
        reoffers.remove(self._tx, self._stream, reoffers.RECORD, done)
        if offer.positions:
            self._stage_records(delivery.RECORDS_AGAIN, offer)
        return True

    def _events_again(self) -> bool:
        due = reoffers.due(self._tx, self._stream, reoffers.EVENT, self._batch)
        if not due:
            return self._backfill()
        offer, done = offers.events_at(self._tx, due, self._allowed, self._batch)
        reoffers.remove(self._tx, self._stream, reoffers.EVENT, done)
        if offer.positions:
            self._stage_events(delivery.EVENTS_AGAIN, plain(offer))
        return True

    def _backfill(self) -> bool:
        """Nothing is due: one bounded step of what is still to become so. The next one has a transaction of its own."""
        if self._backfill_looked:
            return False
        self._backfill_looked = True
        self._backfill_left = backfill.step(self._context, self._tx, self._stream)
        return True

    def _new_events(self) -> bool:
        last = self._context.next_position - 1
        content = self._context.shared.events_after(
            self._tx, self.cursor, self._stream.no, self._allowed, last, self._batch, self._carries_only
        )
        offer = content.offer
        self.cursor = offer.scanned_to
        if offer.positions:
            self._stage_events(delivery.EVENTS, content)
        self._waits = not offer.positions and not offer.exhausted
        return not (offer.exhausted or self._waits)

    def _offers(self) -> bool:
        offering = self._offering
        if offering is None:
            return False
        if not offering.looked:
            self._look(offering)
        if not offering.more:
            return False
        positions, named = offering.take()
        self.offer_cursor = offering.cursor
        if positions:
            frame = Offer(epoch=self._epoch, no=self._no + 1, events=pack(named))
            self._add(Items(delivery.OFFERED, tuple(positions)), encode_frame(frame))
            self._offer_in_flight = True
        self._waits = not positions and offering.more
        return not self._waits

    def _look(self, offering: Offering) -> None:
        self._looks = not offering.look()
        self.offer_cursor = offering.cursor

    def _begin_offering(self, cursor: int) -> Offering:
        self._offering = Offering(
            self._context,
            self._tx,
            self._stream,
            cursor,
            allowed=self._allowed,
            linked=self._linked,
            due_to=self._offer_to,
        )
        return self._offering

    def _answers(self) -> bool:
        waiting = reoffers.answers(self._tx, self._stream, 1)
        if not waiting or self._backfill_left:
            return False
        reoffers.remove_answer(self._tx, self._stream, waiting[0])
        frame = Answered(epoch=self._epoch, no=self._no + 1, id=waiting[0])
        self._add(Items(delivery.ANSWERED, (), waiting[0]), encode_frame(frame))
        return True

    # --- Frames.

    def _stage_records(self, kind: int, offer: offers.Offer) -> None:
        frame = Records(epoch=self._epoch, no=self._no + 1, records=offer.data)
        self._add(Items(kind, tuple(offer.positions)), encode_frame(frame))

    def _stage_events(self, kind: int, content: Content) -> None:
        offer = content.offer
        if self._slots is None:
            self._slots = frontier.read(self._tx)
        clock = frontier.tick(self._slots, self._context.site)
        if self.offer_cursor is not None:
            heard = {self._stream.peer, *(self._linked or ())}
            clock = self._context.known(self._stream.key).news(clock, self._context.site, heard)
        if kind == delivery.LIVE:
            frame = encode_frame(Live(epoch=self._epoch, no=self._no + 1, clock=clock, events=offer.data))
        else:
            frame = encode_frame(self._batch_of(clock, content))
        self._add(Items(kind, tuple(offer.positions)), frame)

    def _batch_of(self, clock: dict[bytes, int], content: Content) -> Batch | DeflatedBatch:
        deflated = content.deflated() if FEATURE_DEFLATE in self._features else None
        if deflated is None:
            return Batch(epoch=self._epoch, no=self._no + 1, clock=clock, events=content.offer.data)
        return DeflatedBatch(epoch=self._epoch, no=self._no + 1, clock=clock, deflated=deflated)

    def _add(self, items: Items, cbor: bytes) -> None:
        self._no += 1
        self._in_order += items.kind != delivery.LIVE
        row = StagedRow(
            self._no,
            digest(cbor),
            self.cursor,
            self.record_cursor,
            items,
            self._allowed.text,
            expires_ms=self._allowed.take_expiry(),
            offer_cursor_after=self.offer_cursor,
        )
        self._offer_carried = self.offer_cursor
        delivery.add_staged(self._tx, self._stream, row, cbor)
        self.frames.append(StagedFrame(row.staged, cbor))

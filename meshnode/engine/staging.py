"""One staging: the next frames of one stream, stored with the positions that follow them (profile §8, "Sender").

The order within one call: records, records to be offered again, live events, events to be offered again, events of the
log, `answered`. An event can so never overtake the record that makes it acceptable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from meshnode.engine import backfill
from meshnode.engine.context import Context
from meshnode.engine.live import Ahead, waiting
from meshnode.engine.offer import Filter, TableFilter
from meshnode.limits import BATCH_EVENTS, LIVE_BACKLOG, LIVE_EVENTS
from meshnode.model.delivery import StagedFrame
from meshnode.model.frames import Answered, Batch, Live, Records, digest, encode_frame
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
    ) -> None:
        self.frames: list[StagedFrame] = []
        self.caught_up = False
        self.cursor = outbound.cursor
        self.record_cursor = outbound.record_cursor
        self._context = context
        self._tx = tx
        self._stream = stream
        self._epoch = outbound.epoch
        self._no = outbound.settled_no
        self._batch = batch
        self._in_order = 0  # frames among `frames` that are not live
        self._waits = False  # rows that are filtered out were passed without end: go on in the next transaction
        self._in_flight = False
        self._backfill_looked = False
        self._backfill_left = False  # a step of a backfill was made and there is more
        self._allowed = TableFilter.now(context, tx, offered)
        self._slots: dict[bytes, int] | None = None

    def follow(self, staged: Sequence[StagedRow]) -> None:
        """Go on after what is in flight."""
        if staged:
            last = staged[-1]
            self._no, self.cursor, self.record_cursor = last.no, last.cursor_after, last.record_cursor_after
            self._in_flight = True

    def fill(self, room: int, ahead: Ahead) -> bool:
        """Stage up to `room` frames, and besides what goes ahead; whether there is more of the former.

        Without frames it moves `cursor` past what is filtered.
        """
        records = self._take(room, self._new_records, self._records_again)
        if ahead.room and (records or self._records_are_out()):
            self._go_ahead(ahead)
        self.caught_up = records and self._take(room, self._events_again, self._new_events, self._answers)
        if self._backfill_left:
            self.caught_up = False
        if self._slots is not None:
            frontier.write_local(self._tx, self._slots, self._context.site)
        # With frames in flight the cursor cannot pass what is filtered out: the next ack goes on with it.
        waits = self._waits and (self._in_flight or self.frames)
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
                self._stage_events(delivery.LIVE, offer)
            ahead.after, positions = (done or [ahead.after])[-1], positions[len(done) :]
        if not positions:
            ahead.after = end

    def _is_behind(self, end: int) -> bool:
        """Whether more is to be sent first than a few frames hold.

        What is filtered out is passed over: a live frame that settles takes the cursor along, as any other does.
        """
        upcoming = offers.events_after(self._tx, self.cursor, self._stream.no, self._allowed, end, 1)
        self.cursor = upcoming.positions[0] - 1 if upcoming.positions else upcoming.scanned_to
        if end - self.cursor > LIVE_BACKLOG:
            return True
        return len(reoffers.due(self._tx, self._stream, reoffers.EVENT, LIVE_BACKLOG + 1)) > LIVE_BACKLOG

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
            self._stage_events(delivery.EVENTS_AGAIN, offer)
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
        offer = offers.events_after(self._tx, self.cursor, self._stream.no, self._allowed, last, self._batch)
        self.cursor = offer.scanned_to
        if offer.positions:
            self._stage_events(delivery.EVENTS, offer)
        self._waits = not offer.positions and not offer.exhausted
        return not (offer.exhausted or self._waits)

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

    def _stage_events(self, kind: int, offer: offers.Offer) -> None:
        if self._slots is None:
            self._slots = frontier.read(self._tx)
        clock = frontier.tick(self._slots, self._context.site)
        shape = Live if kind == delivery.LIVE else Batch
        frame = shape(epoch=self._epoch, no=self._no + 1, clock=clock, events=offer.data)
        self._add(Items(kind, tuple(offer.positions)), encode_frame(frame))

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
        )
        delivery.add_staged(self._tx, self._stream, row, cbor)
        self.frames.append(StagedFrame(row.staged, cbor))

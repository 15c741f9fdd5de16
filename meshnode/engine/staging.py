"""One staging: the next frames of one stream, stored with the positions that follow them (profile §8, "Sender").

The order within one call: records, records and events to be offered again, events of the log, `answered`. An event can
so never overtake the record that makes it acceptable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from meshnode.engine.context import Context
from meshnode.engine.offer import Filter, TableFilter
from meshnode.limits import BATCH_EVENTS
from meshnode.model.deflate import deflated_events
from meshnode.model.delivery import StagedFrame
from meshnode.model.frames import FEATURE_DEFLATE, Answered, Batch, DeflatedBatch, Records, digest, encode_frame
from meshnode.store import delivery, frontier, offers, reoffers
from meshnode.store.database import Tx
from meshnode.store.delivery import Items, Outbound, StagedRow, Stream


class Staging:
    """Lives within one transaction. `last` is the frame that the next one follows."""

    def __init__(self, context: Context, tx: Tx, stream: Stream, outbound: Outbound, offered: Filter) -> None:
        self.frames: list[StagedFrame] = []
        self.caught_up = False
        self.cursor = outbound.cursor
        self.record_cursor = outbound.record_cursor
        self._context = context
        self._tx = tx
        self._stream = stream
        self._epoch = outbound.epoch
        self._no = outbound.settled_no
        self._waits = False  # rows that are filtered out were passed without end: go on in the next transaction
        self._in_flight = False
        self._filter_text = offered.text
        self._features = offered.features
        self._allowed = TableFilter(tx, offered)
        self._slots: dict[bytes, int] | None = None

    def follow(self, staged: Sequence[StagedRow]) -> None:
        """Go on after what is in flight."""
        if staged:
            last = staged[-1]
            self._no, self.cursor, self.record_cursor = last.no, last.cursor_after, last.record_cursor_after
            self._in_flight = True

    def fill(self, room: int) -> bool:
        """Stage up to `room` frames; whether there is more. Without frames it moves `cursor` past what is filtered."""
        steps: tuple[Callable[[], bool], ...] = (
            self._new_records,
            self._records_again,
            self._events_again,
            self._new_events,
            self._answers,
        )
        for step in steps:
            while len(self.frames) < room and step():
                pass
            if len(self.frames) >= room or self._waits:
                break
        else:
            self.caught_up = True
        if self._slots is not None:
            frontier.write_local(self._tx, self._slots, self._context.site)
        # With frames in flight the cursor cannot pass what is filtered out: the next ack goes on with it.
        return not (self.caught_up or (self._waits and (self._in_flight or self.frames)))

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
        due = reoffers.due(self._tx, self._stream, reoffers.EVENT, BATCH_EVENTS)
        if not due:
            return False
        offer, done = offers.events_at(self._tx, due, self._allowed)
        reoffers.remove(self._tx, self._stream, reoffers.EVENT, done)
        if offer.positions:
            self._stage_events(delivery.EVENTS_AGAIN, offer)
        return True

    def _new_events(self) -> bool:
        offer = offers.events_after(
            self._tx, self.cursor, self._stream.no, self._allowed, self._context.next_position - 1
        )
        self.cursor = offer.scanned_to
        if offer.positions:
            self._stage_events(delivery.EVENTS, offer)
        self._waits = not offer.positions and not offer.exhausted
        return not (offer.exhausted or self._waits)

    def _answers(self) -> bool:
        waiting = reoffers.answers(self._tx, self._stream, 1)
        if not waiting:
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
        self._add(Items(kind, tuple(offer.positions)), encode_frame(self._batch(clock, offer.data)))

    def _batch(self, clock: dict[bytes, int], events: list[bytes]) -> Batch | DeflatedBatch:
        deflated = deflated_events(events) if FEATURE_DEFLATE in self._features else None
        if deflated is None:
            return Batch(epoch=self._epoch, no=self._no + 1, clock=clock, events=events)
        return DeflatedBatch(epoch=self._epoch, no=self._no + 1, clock=clock, deflated=deflated)

    def _add(self, items: Items, cbor: bytes) -> None:
        self._no += 1
        row = StagedRow(self._no, digest(cbor), self.cursor, self.record_cursor, items, self._filter_text)
        delivery.add_staged(self._tx, self._stream, row, cbor)
        self.frames.append(StagedFrame(row.staged, cbor))

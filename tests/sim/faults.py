"""Faults to plant in the production code, each in one place: what the simulator must see within a few seeds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final
from unittest.mock import patch

import msgspec

from meshnode.codec.framing import frame
from meshnode.engine import inbox
from meshnode.engine.concurrency import Concurrency
from meshnode.engine.context import Context
from meshnode.engine.staging import Staging
from meshnode.merge.rows import RowFold
from meshnode.model.delivery import Content, Settlement
from meshnode.model.event import Scalar
from meshnode.model.frames import Ack, Inbound, Offer, encode_frame
from meshnode.model.frames_untrusted import decode_control_untrusted
from meshnode.model.hlc import CLOCK_BYTES, ZERO, Rank
from meshnode.model.offered import unpack
from meshnode.store import frontier, inbound, log, meta, schema
from meshnode.store.database import Tx
from meshnode.store.delivery import Stream
from meshnode.store.watermarks import Group
from meshnode.sync import sender
from meshnode.sync.effects import Effect, SendControl
from meshnode.sync.receiver import Receiver
from meshnode.sync.sender import Sender

Fault = Callable[[], AbstractContextManager[None]]


@contextmanager
def ack_before_commit() -> Iterator[None]:
    """The receiver acknowledges a frame when it accepts it."""
    accept = Receiver.frame_untrusted

    def acknowledge(self: Receiver, content: Content, digest: bytes, size: int) -> list[Effect]:
        before = self.next_no
        effects = accept(self, content, digest, size)
        if self.next_no == before:
            return effects
        ack = Ack(epoch=content.epoch, no=content.no, digest=digest, hlc=ZERO, rejected=(), held=0, dropped=0)
        return [*effects, SendControl(frame(encode_frame(ack)))]

    with patch.object(Receiver, "frame_untrusted", acknowledge):
        yield


@contextmanager
def cursor_before_ack() -> Iterator[None]:
    """The sender settles what it has sent."""
    advanced = Sender.advanced

    def settle(self: Sender, result: Any, now_ms: int) -> list[Effect]:
        effects = advanced(self, result, now_ms)
        while self._unsettled:
            sent = self._unsettled.popleft()
            self._settled_no, self._settled_digest = sent.no, sent.digest
            self._acks.append(Settlement(sent.no, sent.digest, ()))
        return effects

    with patch.object(Sender, "advanced", settle):
        yield


@contextmanager
def rejected_lost_with_a_repeated_ack() -> Iterator[None]:
    """A repeated frame is acknowledged without what was rejected of it."""
    repeat = Receiver._repeat

    def forget(self: Receiver, no: int, digest: bytes) -> list[Effect]:
        effects = repeat(self, no, digest)
        for index, effect in enumerate(effects):
            if isinstance(effect, SendControl):
                message = decode_control_untrusted(effect.data[4:])
                if isinstance(message, Ack):
                    bare = msgspec.structs.replace(message, rejected=())
                    effects[index] = SendControl(frame(encode_frame(bare)))
        return effects

    with patch.object(Receiver, "_repeat", forget):
        yield


@contextmanager
def log_positions_reused() -> Iterator[None]:
    """After a start the log goes on behind the last position that is there, not behind the last given out."""
    read_counter = meta.read_counter

    def behind_the_last(tx: Tx, name: str) -> int:
        if name == meta.NEXT_POSITION:
            return int(tx.execute("SELECT coalesce(max(position), 0) + 1 FROM meshnode_log").fetchone()[0])
        return read_counter(tx, name)

    with patch.object(meta, "read_counter", behind_the_last):
        yield


@contextmanager
def no_tombstone_clock() -> Iterator[None]:
    """A delete clears what is there and leaves no clock behind."""
    delete = RowFold.delete

    def clear(self: RowFold, rank: Rank) -> None:
        delete(self, rank)
        self.state.tombstone = None

    with patch.object(RowFold, "delete", clear):
        yield


@contextmanager
def arrival_breaks_ties() -> Iterator[None]:
    """Of two events with one clock the later arrival wins."""
    upsert = RowFold.upsert

    def let_the_later_win(self: RowFold, rank: Rank, columns: Mapping[str, Scalar]) -> None:
        ranks = self.state.columns
        for name in columns:
            won = ranks.get(name)
            if won is not None and won[:CLOCK_BYTES] == rank[:CLOCK_BYTES]:
                del ranks[name]
        upsert(self, rank, columns)

    with patch.object(RowFold, "upsert", let_the_later_win):
        yield


@contextmanager
def watermark_over_a_hole() -> Iterator[None]:
    """A group advances whatever was rejected or is held below."""

    def advance(self: Group, *, held: bool) -> None:
        if self.reached > self.applied:
            self.applied, self.changed = self.reached, True

    with patch.object(Group, "advance", advance):
        yield


@contextmanager
def reoffers_not_durable() -> Iterator[None]:
    """What is to be offered again is forgotten with the process."""
    migrate = schema.migrate

    def forget(tx: Tx) -> None:
        migrate(tx)
        tx.execute("DELETE FROM meshnode_reoffers")

    with patch.object(schema, "migrate", forget):
        yield


@contextmanager
def records_after_events() -> Iterator[None]:
    """Events are staged before the records that make them acceptable."""
    new_records, answers = Staging._new_records, Staging._answers

    def later(self: Staging) -> bool:
        return False

    def records_then_answers(self: Staging) -> bool:
        return new_records(self) or answers(self)

    with patch.multiple(Staging, _new_records=later, _answers=records_then_answers):
        yield


@contextmanager
def own_frontier_slot_merged() -> Iterator[None]:
    """What peers claim of this node's own counter is believed."""

    def merge(tx: Tx, local: bytes, clock: Mapping[bytes, int]) -> None:
        rows = [(counter, site) for site, counter in clock.items()]
        tx.executemany("UPDATE meshnode_frontier SET counter = max(counter, ?) WHERE site = ?", rows)

    with patch.object(frontier, "merge", merge):
        yield


@contextmanager
def merely_offered_declined() -> Iterator[None]:
    """What any peer has offered is taken for what will come from there, and declined from then on (profile §14)."""
    really_wanted, offered = inbox.wanted, defaultdict[bytes, set[bytes]](set)

    def decline(context: Context, tx: Tx, stream: Stream, offer: Offer) -> tuple[int, ...]:
        before, ids = set(offered[context.site]), [each.short_id for each in unpack(offer.events)]
        offered[context.site].update(ids)
        return tuple(each for each in really_wanted(context, tx, stream, offer) if ids[each] not in before)

    with patch.object(inbox, "wanted", decline):
        yield


@contextmanager
def resume_from_a_pruned_frame() -> Iterator[None]:
    """A peer that holds less than was settled is sent what follows the settled frames."""
    same_stream = sender.same_stream

    def same_or_less(inbound: Inbound | None, epoch: bytes, settled_no: int, *more: Any) -> bool:
        less = inbound is not None and inbound.epoch == epoch and inbound.next - 1 < settled_no
        return less or same_stream(inbound, epoch, settled_no, *more)

    with patch.object(sender, "same_stream", same_or_less):
        yield


FAULTS: Final[dict[str, Fault]] = {
    "ack before commit": ack_before_commit,
    "cursor before ack": cursor_before_ack,
    "rejected lost with a repeated ack": rejected_lost_with_a_repeated_ack,
    "log positions reused": log_positions_reused,
    "no tombstone clock": no_tombstone_clock,
    "arrival-order tie-break": arrival_breaks_ties,
    "watermark over a hole": watermark_over_a_hole,
    "re-offer set not durable": reoffers_not_durable,
    "records after events": records_after_events,
    "decline of a merely offered id": merely_offered_declined,
    "frontier slot merged from a peer": own_frontier_slot_merged,
    "resume from a pruned frame": resume_from_a_pruned_frame,
}


# --- further ones, so that every checker has seen something


@contextmanager
def clock_not_kept() -> Iterator[None]:
    """After a start the clock is that of the wall, whatever was written before."""
    with patch.object(meta, "read_clock", lambda _tx: ZERO), patch.object(log, "newest_of_all", lambda _tx: ZERO):
        yield


@contextmanager
def log_cut_at_start() -> Iterator[None]:
    """A start takes the last event that came from others for half-written, and drops it."""
    migrate = schema.migrate

    def drop(tx: Tx) -> None:
        migrate(tx)
        own = "SELECT no FROM meshnode_sites WHERE site = (SELECT value FROM meshnode_meta WHERE name = 'site')"
        last = f"SELECT max(position) FROM meshnode_log WHERE site_no NOT IN ({own})"
        tx.execute(f"DELETE FROM meshnode_log WHERE position = ({last})")

    with patch.object(schema, "migrate", drop):
        yield


@contextmanager
def acks_kept_for_ever() -> Iterator[None]:
    """Stored acks are never dropped."""
    with patch.object(inbound, "ACKS_KEPT", 10**9):
        yield


@contextmanager
def requests_never_answered() -> Iterator[None]:
    """What a peer asked for is sent, and that it was is never said."""
    with patch.object(Staging, "_answers", lambda _self: False):
        yield


@contextmanager
def groups_stand_still() -> Iterator[None]:
    """A group that had a rejected event never advances again."""
    with patch.object(Group, "settle", lambda _self, _hlc: None):
        yield


@contextmanager
def watermark_over_an_unanswered_request() -> Iterator[None]:
    """What was left out here before is no hole in what a peer sends, though it was asked for again."""
    with patch.object(inbound, "doubts", lambda _tx, _stream: []):
        yield


@contextmanager
def repeats_taken_for_news() -> Iterator[None]:
    """What comes again after it was seen here, or written here, is taken for what was unknown until now."""
    with patch.object(Concurrency, "_may_repeat", lambda _self, _rank: False):
        yield


FURTHER: Final[dict[str, Fault]] = {
    "clock not kept": clock_not_kept,
    "log cut at a start": log_cut_at_start,
    "acks kept for ever": acks_kept_for_ever,
    "requests never answered": requests_never_answered,
    "groups stand still": groups_stand_still,
    "repeats taken for news": repeats_taken_for_news,
    "watermark over an unanswered request": watermark_over_an_unanswered_request,
}

"""The sending half of a link: what goes out next, and what an ack or nak means (profile §8, "Sender"). Pure.

Wishes pile up in a `Sender`; `pump` turns them into one store job at a time, so that the answers come in order. Nothing
in here moves a cursor: that happens in the job that settles a matching ack.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from meshnode.codec.framing import frame
from meshnode.errors import CloseCode, ProtocolError
from meshnode.limits import CYCLE_MS, GENESIS_REWIND_MS, LIVE_FRAMES, REQUESTS_PER_PEER, WINDOW_FRAMES
from meshnode.model.delivery import Advanced, OutboundStream, Replaced, Settlement, Staged, StagedFrame
from meshnode.model.frames import Ack, Inbound, Nak, Open, Request, encode_frame
from meshnode.sync.effects import Advance, Answer, Close, Effect, NewEpoch, Resend, RewindPoint, SendEvents
from meshnode.sync.pace import Pace
from meshnode.sync.resume import rewind_wait_ms, same_stream
from meshnode.sync.waiting import Waiting

RETRY_MS = 1_000  # first pause before what was rejected twice is offered again; doubles up to a cycle
REOPEN_MS = 1_000  # pause between new epochs that a peer's naks force, where nothing is settled meanwhile
LAZY_MS = 500  # how long what a peer brought waits until the rest of it is looked at for the same peer
WATERMARKS_MS = 1_000  # watermarks are told at most this often: one message stands for many acks

_ANOTHER_LINK = Close(CloseCode.DUPLICATE, "another link carries this stream")


def _due(at_ms: int, now_ms: int, span_ms: int) -> bool:
    """Whether a moment has come that was set at most `span_ms` ahead; a wall clock that stepped back makes it come."""
    return now_ms >= at_ms or at_ms > now_ms + span_ms


def _check_indexes_untrusted(ack: Ack, staged: Staged) -> None:
    """An ack names only what its frame has: `rejected` what it carries, `wanted` what it offers."""
    if (ack.wanted is not None) is not staged.offers:
        raise ProtocolError("only the ack of an offer says what is wanted, and it has to")
    if any(index >= staged.items for index in ack.rejected) or (ack.rejected and staged.offers):
        raise ProtocolError("an ack that rejects what the frame does not carry")
    if any(index >= staged.items for index in ack.wanted or ()):
        raise ProtocolError("an ack that wants what the frame does not offer")


class Sender:
    """Mirror of one outbound stream. `stop` and `hold` keep it silent without touching what is on disk."""

    def __init__(self, outbound: OutboundStream | None, past_epochs: Iterable[bytes]) -> None:
        self._epoch: bytes | None = None
        self._settled_no = 0
        self._settled_digest = b""
        self._unsettled: deque[Staged] = deque()
        self._rewound_ms = 0
        self._replaces: tuple[Replaced, ...] = ()
        self._past = set(past_epochs)
        if outbound is not None:
            self._take(outbound)
        self._known_no = self._last_no()
        # What is wanted, until `pump` makes a job of it.
        self._acks: list[Settlement] = []
        self._opening: RewindPoint | None = None
        self._open_at = 0
        self._reopened_at: int | None = None
        self._resend_from: int | None = None
        self._requests: deque[Request] = deque()
        self._stage = False
        self._fresh = False  # there may be something that goes ahead of the backlog
        self._lazy_at: int | None = None
        self._retry = False
        self._watermarks = False
        self._watermarks_asked = False
        self._watermarks_refused = False  # something has to be acknowledged before they may be told
        self._watermarks_at = 0
        # Where events of others are offered first (feature `offer`).
        self._waiting: Waiting | None = None
        self.linked: frozenset[bytes] | None = None  # whom the peer says it is linked to
        # What the peer rejected, and when it is worth offering again.
        self._rejected = False
        self._retry_at = 0
        self._retry_pause = 0
        self._cycle_at = 0
        # How much may be in flight, and what goes ahead of it.
        self._pace = Pace()
        self._more = False  # there was more to stage than there was room
        self._live = False  # the feature is agreed
        self._live_after = 0
        # Whether jobs may start.
        self._busy = False
        self._greeted = False
        self._peer_holds: Inbound | None = None  # as its hello said
        self._opened = False  # whether this link carried an `open` of ours
        self._stopped = False
        self._held = False

    # --- Reading.

    @property
    def after(self) -> tuple[bytes, int]:
        """Epoch and number of the last frame that this link knows as staged (profile §8, `watermarks.after`)."""
        return self._epoch or bytes(8), self._known_no

    @property
    def in_flight(self) -> int:
        """Staged frames that are not settled."""
        return len(self._unsettled)

    @property
    def stands_still(self) -> bool:
        """Whether stored state cannot be read, as far as is known."""
        return self._stopped

    @property
    def idle(self) -> bool:
        """Whether nothing is staged, wanted or under way."""
        return not (self._busy or self._unsettled or self._acks or self._stage or self._opening)

    def next_timer(self) -> int | None:
        """When `pump` is worth calling without any other input."""
        if self._busy or self._held or not self._greeted:
            return None
        if self._stopped:
            return self._cycle_at
        if self._opening is not None:
            return self._open_at
        due = [self._cycle_at]
        if self._lazy_at is not None:
            due.append(self._lazy_at)
        if self._tells_watermarks:
            due.append(self._watermarks_at)
        if self._waiting is not None and self._waiting.next_timer is not None:
            due.append(self._waiting.next_timer)
        return min(due)

    @property
    def _tells_watermarks(self) -> bool:
        return self._watermarks and not self._watermarks_refused and self._room() > 0

    # --- Inputs.

    def greeted(self, inbound: Inbound | None, now_ms: int, *, live: bool = False) -> list[Effect]:
        """The peer's hello was read: go on with the same epoch, or begin another one (profile §8, "Resuming")."""
        self._greeted = True
        self._live = self._fresh = live
        self._peer_holds = inbound
        self._cycle_at = now_ms + CYCLE_MS
        return self._begin(now_ms)

    def offers(self, *, first: bool) -> None:
        """Events of others are offered on this link; of us and the peer we are the `first` to do so."""
        self._waiting = Waiting(first=first)

    def linked_to(self, sites: frozenset[bytes]) -> None:
        """The peer said whom it is linked to: what waits for any other site is offered now."""
        gone = self.linked is None or self.linked - sites
        self.linked = sites
        if gone:
            self._stage = True
            self._watermarks = True

    def hurry(self) -> None:
        """Somebody waits for the peer to have everything."""
        if self._waiting is not None:
            self._waiting.hurry()
            self._stage = True

    def ack_untrusted(self, ack: Ack, now_ms: int) -> None:
        """Settle the oldest frame, or nothing; any ack that names neither raises ProtocolError (profile §8)."""
        if self._stopped and self._epoch is None:
            return  # the cursor could not be read, so whose ack this is cannot be told
        if ack.epoch != self._epoch:
            if ack.epoch not in self._past:
                raise ProtocolError("an ack of an epoch that was never ours")
            return
        if 0 < ack.no <= self._settled_no:
            if ack.no == self._settled_no and ack.digest != self._settled_digest:
                raise ProtocolError("an ack with another digest than the settled frame's")
            return
        oldest = self._unsettled[0] if self._unsettled else None
        if oldest is None or (ack.no, ack.digest) != (oldest.no, oldest.digest):
            raise ProtocolError("an ack that is not of the oldest unsettled frame")
        _check_indexes_untrusted(ack, oldest)
        self._unsettled.popleft()
        self._settled_no, self._settled_digest = ack.no, ack.digest
        self._pace.settled(ack.no, now_ms, more=self._more)
        self._acks.append(
            Settlement(ack.no, ack.digest, tuple(ack.rejected), ack.wanted or (), ack.hlc, dropped=ack.dropped)
        )
        self._reopened_at = None
        self._watermarks_refused = False
        if ack.rejected and not oldest.live:  # else the backlog brings them again
            self._note_rejection(now_ms)

    def nak_untrusted(self, nak: Nak, now_ms: int) -> None:
        """Send again from `expected` if that is staged; otherwise begin a new epoch (profile §8)."""
        if nak.epoch != self._epoch or self._opening is not None or self._stopped:
            return
        if nak.expected <= self._settled_no:
            self._reopen("genesis", now_ms)
        elif nak.expected <= self._known_no:
            if self._resend_from is None or nak.expected < self._resend_from:
                self._resend_from = nak.expected
        else:
            self._reopen("settled", now_ms)

    def request_untrusted(self, request: Request) -> bool:
        """Queue the answer; False where the peer asks faster than we can answer (it asks again when it reconnects)."""
        if len(self._requests) >= REQUESTS_PER_PEER:
            return False
        self._requests.append(request)
        return True

    def grew(self, now_ms: int) -> None:
        """Something new may be there to send: a cycle starts, unless one is running."""
        if self._rejected and self.idle and _due(self._retry_at, now_ms, CYCLE_MS):
            self._retry = True
        self._stage = True
        self._fresh = self._live
        self._lazy_at = None

    def grew_by_peer(self, now_ms: int) -> None:
        """The peer itself brought something new: what others authored goes back to it, but there is no hurry."""
        if self._lazy_at is None:
            self._lazy_at = now_ms + LAZY_MS

    def watermarks_rose(self, now_ms: int) -> None:
        """They rose by what the peer told, which it does rarely: no need to wait before they are told."""
        self._watermarks = True
        self._watermarks_at = now_ms

    def want_watermarks(self) -> None:
        """Watermarks may have changed: tell them once everything is staged (profile §6)."""
        self._watermarks = True

    def refilter(self, now_ms: int, *, widened: bool) -> None:
        """Our policy changed: an opt-out stops what is staged at once, an opt-in brings what the store queued."""
        if self._epoch is not None and self._unsettled and not widened:
            self._reopen("settled", now_ms, forced=False)
        self.grew(now_ms)

    def hold(self, held: bool, now_ms: int) -> list[Effect]:
        """Publish nothing while held: nothing is staged, sent or opened; acks still settle."""
        before, self._held = self._held, held
        return self._begin(now_ms) if before and not held and self._greeted else []

    def stop(self) -> None:
        """The stream's stored state cannot be read: it stops with its cursor unmoved (NEOTH commit contract).

        Once a cycle it is looked at again, from the settled cursor: somebody may have repaired it.
        """
        self._stopped = True
        self._busy = False

    def wake(self, now_ms: int) -> None:
        """Somebody asked: a cycle starts now, and what stands still is looked at again."""
        self._cycle_at = now_ms
        self._retry_at = now_ms

    # --- Jobs.

    def pump(self, now_ms: int) -> list[Effect]:
        """At most one further job."""
        if self._busy or not self._greeted:
            return []
        if self._stopped and not self._look_again(now_ms):
            return []
        if _due(self._cycle_at, now_ms, CYCLE_MS):
            self._start_cycle(now_ms)
        if self._lazy_at is not None and _due(self._lazy_at, now_ms, LAZY_MS):
            self.grew(now_ms)
        if self._waiting is not None and self._waiting.is_due(now_ms):
            self._stage = True
        job = self._next_job(now_ms)
        if job is None:
            return []
        self._busy = True
        return [job]

    def _look_again(self, now_ms: int) -> bool:
        """Whether what stands still may have a job: once a cycle from the settled cursor, and to settle acks."""
        if not self._held and _due(self._cycle_at, now_ms, CYCLE_MS):
            self._stopped = False
            self._reopen("settled", now_ms, forced=False)
        return not self._stopped or bool(self._acks)

    def advanced(self, result: Advanced | None, now_ms: int) -> list[Effect]:
        """Send what was staged; None means that the stored epoch is another link's."""
        self._busy = False
        if result is None:
            return [_ANOTHER_LINK]
        self._forget_settled(result.settled_no)
        self._more = result.more
        self._stage = self._stage or result.more
        self._live_after = result.live_after
        if self._watermarks_asked:
            self._watermarks_refused = result.watermarks is None
            if self._watermarks_refused:
                self._watermarks, self._watermarks_at = True, now_ms
        if self._waiting is not None and result.seen_to:
            self._waiting.noted(result.seen_to, now_ms, waiting=result.waiting, more=result.more)
        fresh = self._learn(result.frames)
        if self._opening is not None or self._resend_from is not None or self._held:
            return []  # they go out with the resend, or are discarded
        return self._send(fresh, now_ms)

    def resent(self, frames: tuple[StagedFrame, ...] | None, now_ms: int) -> list[Effect]:
        """Send staged frames again; None means that their filter is no longer the current one: discard them."""
        self._busy = False
        if frames is None:
            self._reopen("settled", now_ms, forced=False)
            return []
        self._learn(frames)
        if self._opening is not None or self._held:
            return []
        return self._send([each for each in frames if each.staged.no > self._settled_no], now_ms)

    def epoch_opened(self, outbound: OutboundStream | None) -> list[Effect]:
        """A new epoch is on disk: open it at the peer and stage."""
        self._busy = False
        if outbound is None:
            return [_ANOTHER_LINK]
        if self._epoch is not None:
            self._past.add(self._epoch)
        self._take(outbound)
        self._known_no = self._last_no()
        self._acks.clear()  # they came while the epoch was being replaced: their frames were discarded with it
        self._opening = None
        self._resend_from = None
        self._stage = self._retry = True
        self._live_after, self._fresh = 0, self._live
        self._pace.forget_all()
        return [] if self._held else [self._open_frame()]

    def answer_stored(self) -> None:
        """What the peer asked for is queued durably: stage it."""
        self._busy = False
        self._stage = True

    # --- Decisions.

    def _begin(self, now_ms: int) -> list[Effect]:
        """Start what this link carries; a cycle starts when a peer connects."""
        self._stage = self._retry = True
        if self._stopped or self._held:
            return []
        if self._epoch is not None and (self._opened or self._same_stream()):
            if not self._live and any(each.live for each in self._unsettled):
                self._reopen("settled", now_ms, forced=False)  # the peer does not know such frames any more
                return []
            self._resend_from = self._settled_no + 1 if self._unsettled else None
            return [self._open_frame()]
        self._reopen("genesis", now_ms)
        return []

    def _same_stream(self) -> bool:
        assert self._epoch is not None
        return same_stream(
            self._peer_holds,
            self._epoch,
            self._settled_no,
            self._settled_digest,
            tuple(self._unsettled),
            self._replaces,
        )

    def _start_cycle(self, now_ms: int) -> None:
        """At the latest every 30 s, whatever was heard of the log (profile §8)."""
        self._cycle_at = now_ms + CYCLE_MS
        self._stage = True
        self._watermarks_refused = False
        self._watermarks = self._watermarks or self._waiting is not None  # those that wait to be told
        if not self._rejected:
            self._retry_pause = 0
        self._retry = self._retry or _due(self._retry_at, now_ms, CYCLE_MS)

    def _next_job(self, now_ms: int) -> Effect | None:
        silent = self._opening is not None or self._resend_from is not None or self._held or self._stopped
        if self._acks and silent:
            return self._advance(now_ms, room=0)  # settle first: a new epoch starts at the settled cursor
        if self._held or self._stopped:
            return None
        if self._opening is not None:
            return NewEpoch(self._epoch, self._opening) if _due(self._open_at, now_ms, GENESIS_REWIND_MS) else None
        if self._resend_from is not None:
            assert self._epoch is not None
            first, self._resend_from = max(self._resend_from, self._settled_no + 1), None
            return Resend(self._epoch, first)
        if self._requests:
            return Answer(self._requests.popleft())
        room, live_room = self._room(), self._live_room()
        told = self._tells_watermarks and _due(self._watermarks_at, now_ms, WATERMARKS_MS)
        if self._acks or told or (room > 0 and self._stage) or (live_room > 0 and self._fresh):
            return self._advance(now_ms, room, live_room)
        return None

    def _room(self) -> int:
        """How many frames may follow what is in flight; where live ones may come, some of the window is theirs."""
        live = sum(each.live for each in self._unsettled)
        window = WINDOW_FRAMES - len(self._unsettled) - (max(LIVE_FRAMES - live, 0) if self._live else 0)
        return max(min(window, self._pace.room), 0)

    def _live_room(self) -> int:
        """How many frames may go ahead of the backlog."""
        if not self._live:
            return 0
        live = sum(each.live for each in self._unsettled)
        return min(LIVE_FRAMES - live, WINDOW_FRAMES - len(self._unsettled))

    def _advance(self, now_ms: int, room: int, live_room: int = 0) -> Effect | None:
        if self._epoch is None:
            return None
        watermarks = self._watermarks and room > 0 and _due(self._watermarks_at, now_ms, WATERMARKS_MS)
        job = Advance(
            self._epoch,
            tuple(self._acks),
            self._known_no,
            room,
            self._retry and room > 0,
            watermarks,
            self._pace.events,
            self._live_after,
            live_room,
            self.linked,
            0 if self._waiting is None else self._waiting.due_to,
        )
        self._acks.clear()
        self._fresh = self._fresh and not live_room
        if room > 0:
            self._stage = self._retry = False
            self._rejected = self._rejected and not job.retry
        self._watermarks_asked = watermarks
        if watermarks:
            self._watermarks = False
            self._watermarks_at = now_ms + WATERMARKS_MS
        return job

    def _reopen(self, at: RewindPoint, now_ms: int, *, forced: bool = True) -> None:
        """Want a new epoch. `forced` ones, by the peer's doing, are bounded in number; ours start at once."""
        if self._opening is not None and (at == "settled" or (forced and self._opening == "genesis")):
            return
        wait = 0
        if forced and self._reopened_at is not None:
            wait = min(max(self._reopened_at + REOPEN_MS - now_ms, 0), REOPEN_MS)
        if forced and at == "genesis":
            wait = max(wait, rewind_wait_ms(self._rewound_ms, now_ms))
        self._opening = at
        self._open_at = now_ms + wait
        if forced:
            self._reopened_at = self._open_at

    def _note_rejection(self, now_ms: int) -> None:
        """The next cycle offers it again; the more often it comes back, the later."""
        self._rejected = True
        self._retry_at = now_ms + self._retry_pause
        self._retry_pause = min(max(2 * self._retry_pause, RETRY_MS), CYCLE_MS)

    def _open_frame(self) -> SendEvents:
        assert self._epoch is not None
        self._opened = True
        return SendEvents(frame(encode_frame(Open(epoch=self._epoch, next=self._settled_no + 1))))

    def _send(self, frames: Iterable[StagedFrame], now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for each in frames:
            self._pace.sent(each.staged.no, each.load, now_ms)
            effects.append(SendEvents(frame(each.cbor)))
        return effects

    def _take(self, outbound: OutboundStream) -> None:
        self._epoch = outbound.epoch
        self._settled_no = outbound.settled_no
        self._settled_digest = outbound.settled_digest
        self._unsettled = deque(outbound.staged)
        self._rewound_ms = outbound.rewound_ms
        self._replaces = outbound.replaces

    def _last_no(self) -> int:
        return self._unsettled[-1].no if self._unsettled else self._settled_no

    def _learn(self, frames: Iterable[StagedFrame]) -> list[StagedFrame]:
        """Remember the frames that another session of this peer, or the last job, staged."""
        fresh = [each for each in frames if each.staged.no > self._known_no]
        self._unsettled.extend(each.staged for each in fresh)
        if fresh:
            self._known_no = fresh[-1].staged.no
        return fresh

    def _forget_settled(self, settled_no: int) -> None:
        """Another session of this peer, one that is being replaced, may have settled more than we saw acks for."""
        while self._unsettled and self._unsettled[0].no <= settled_no:
            gone = self._unsettled.popleft()
            self._settled_no, self._settled_digest = gone.no, gone.digest
            self._pace.forget(gone.no)

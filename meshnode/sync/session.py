"""One peer's delivery over one authenticated link, without I/O: bytes and time in, effects out (profile §8).

What a driver does is said in `meshnode.sync`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from meshnode.codec.framing import FrameReader, frame
from meshnode.errors import CloseCode, ProtocolError
from meshnode.limits import FRAME_BYTES, HELLO_BYTES, INTRODUCE_BYTES
from meshnode.model.delivery import (
    Advanced,
    Committed,
    GroupName,
    LinkState,
    OutboundStream,
    Received,
    StagedFrame,
    Told,
)
from meshnode.model.frames import (
    FEATURE_COVERING,
    FEATURE_LIVE,
    FEATURE_OFFER,
    FEATURE_VERIFY,
    Ack,
    Bye,
    CompareFrame,
    Hello,
    Introduce,
    Links,
    Nak,
    Open,
    Request,
    WatermarkEntry,
    Watermarks,
    digest,
)
from meshnode.model.frames_untrusted import decode_control_untrusted, decode_events_untrusted
from meshnode.model.hlc import ZERO, beyond_skew
from meshnode.sync.early import EarlyFrames
from meshnode.sync.effects import (
    Close,
    Effect,
    Introduced,
    Notice,
    PeerBye,
    PeerCompares,
    PeerHello,
    PeerWatermarks,
    RolledBack,
    SendControl,
)
from meshnode.sync.framecounts import FrameCounts
from meshnode.sync.greeting import Greeting, check_hello_untrusted, label, own_hello, plain, remarks, said, without_skew
from meshnode.sync.links import ToldLinks
from meshnode.sync.own_past import OwnPast
from meshnode.sync.receiver import Receiver
from meshnode.sync.resume import holds_more
from meshnode.sync.sender import Sender
from meshnode.sync.watermarks import HeardWatermarks, ToldWatermarks

_Work: TypeAlias = Callable[[], list[Effect]]


class Session:
    """Both halves of one link and what ties them: hello first, then everything else."""

    def __init__(self, greeting: Greeting, peer: bytes, *, admitted: bool = True) -> None:
        self.peer = peer
        self.hello: Hello | None = None
        self.counts = FrameCounts()  # or those of the node, which it shares with its other sessions
        self._greeting = greeting
        self._admitted = admitted
        self._introduced = False
        self._dead = False
        self._leaving = False
        self._held = False
        self._state = LinkState(None, None)
        self._sender: Sender | None = None
        self._receiver = Receiver(None)
        # The hello and the introduce have their own, smaller bounds; of a stranger nothing else is ever read.
        self._control = FrameReader(FRAME_BYTES if admitted else max(HELLO_BYTES, INTRODUCE_BYTES))
        self._events = FrameReader(FRAME_BYTES)
        self._early = EarlyFrames()  # came before `start`, or before the hello
        self._own_past = OwnPast(greeting.site)
        self._requested: dict[bytes, None] = {}
        self._features: frozenset[str] = frozenset()  # agreed: listed by both sides
        self._links = ToldLinks(peer)
        self._told = ToldWatermarks()
        self._heard = HeardWatermarks()
        self.stopped = ""
        """Why our stream stands still, empty while it does not (NEOTH commit contract)."""

    # --- Reading.

    @property
    def closed(self) -> bool:
        """Whether the session ended; it takes no more inputs."""
        return self._dead

    @property
    def in_flight(self) -> int:
        """Staged frames that the peer has not acknowledged."""
        return self._sender.in_flight if self._sender else 0

    @property
    def next_inbound(self) -> int:
        """The number of the peer's next frame, 0 while it opened no stream."""
        return self._receiver.next_no

    @property
    def uncommitted_bytes(self) -> int:
        """What is held of the peer's event stream and not on disk: the driver lets no more come beyond a bound."""
        return self._receiver.uncommitted_bytes + self._early.event_bytes

    @property
    def queued(self) -> tuple[Received, ...]:
        """Frames of the peer that wait to be committed: the driver may verify what is in them meanwhile."""
        return self._receiver.queued

    @property
    def peer_watermarks(self) -> dict[GroupName, Told]:
        """What the peer told on this link: evidence for `status` and `wait`."""
        return self._heard.entries

    def take_told(self) -> dict[GroupName, Told]:
        """A bounded part of what was told since the last call, for whoever keeps it over restarts."""
        return self._heard.take_risen()

    @property
    def peer_told(self) -> bool:
        """Whether it told watermarks on this link: it had nothing left to stage then."""
        return self._heard.told

    @property
    def compares(self) -> bool:
        """Whether the peer takes part in comparisons."""
        return FEATURE_VERIFY in self._features

    def next_timer(self) -> int | None:
        """When `timer` is due, in wall-clock milliseconds; None where nothing is waited for."""
        if self._dead or self._leaving or self._sender is None:
            return None
        due = [self._sender.next_timer(), self._told.next_timer()]
        if self._offers:
            due.append(self._links.next_timer())
        return min((each for each in due if each is not None), default=None)

    @property
    def peer_links(self) -> frozenset[bytes] | None:
        """Whom the peer says it is linked to; None before it said so, or where that feature was not agreed."""
        return self._sender.linked if self._sender else None

    # --- Inputs: the life of the link.

    def start(self, state: LinkState, now_ms: int) -> list[Effect]:
        """Send our hello; the peer is a member and `state` is what the store holds of it."""
        if self._dead or self._sender is not None:
            return []
        self._admitted = True
        self._control.set_limit(FRAME_BYTES)
        self._state = state
        self._sender = Sender(state.outbound, state.past_epochs)
        self._receiver = Receiver(state.inbound, state.link)
        effects: list[Effect] = []
        if state.outbound_fault is not None:
            effects.extend(self._stop_sending(state.outbound_fault))
        self._sender.hold(self._held, now_ms)
        if self._greeting.introduce:
            effects.append(said(Introduce(records=self._greeting.introduce)))
        effects.append(said(own_hello(self._greeting, state, self._receiver.holds, now_ms)))
        early = self._early.take_control()
        return effects + self._guarded(lambda: self._control_frames_untrusted(early, now_ms), now_ms)

    def control_untrusted(self, data: bytes, now_ms: int) -> list[Effect]:
        """Bytes of the control stream, in any portions."""
        return self._guarded(lambda: self._control_frames_untrusted(self._control.feed(data), now_ms), now_ms)

    def events_untrusted(self, data: bytes, now_ms: int) -> list[Effect]:
        """Bytes of the peer's event stream, in any portions."""
        return self._guarded(lambda: self._event_frames_untrusted(self._events.feed(data)), now_ms)

    def timer(self, now_ms: int) -> list[Effect]:
        """A moment named by `next_timer` has come; calling it at any other time does no harm."""
        return self._guarded(list, now_ms)

    def goodbye(self, code: CloseCode, reason: str) -> list[Effect]:
        """Say why we leave, and leave."""
        if self._dead:
            return []
        self._die()
        farewell: list[Effect] = [said(Bye(code=int(code), reason=label(reason)))] if self.hello else []
        return [*farewell, Close(code, reason)]

    # --- Inputs: news of this node.

    def log_grew(self, now_ms: int) -> list[Effect]:
        """Events or records were committed by somebody else than this session."""
        if self._sender is not None:
            self._sender.grew(now_ms)
            self._sender.want_watermarks()
            self._told.written(now_ms)
        return self._guarded(list, now_ms)

    def wake(self, now_ms: int) -> list[Effect]:
        """The node's owner wants a cycle now."""
        if self._sender is not None:
            self._sender.wake(now_ms)
        return self._guarded(list, now_ms)

    def linked(self, sites: Iterable[bytes], now_ms: int) -> list[Effect]:
        """Whom this node is linked to by now."""
        self._links.are(sites)
        return self._guarded(list, now_ms)

    def hurry(self, now_ms: int) -> list[Effect]:
        """Somebody waits for the peer to have everything: what was gathered for it goes out."""
        if self._sender is not None:
            self._sender.hurry()
        return self._guarded(list, now_ms)

    def requests(self, bodies: Iterable[bytes], now_ms: int) -> list[Effect]:
        """All that this node asks of the peer at present (CBOR of request frames); each goes out once a link."""
        fresh = [body for body in bodies if body not in self._requested]
        self._requested.update(dict.fromkeys(fresh))
        return [] if self.hello is None or self._dead else self._ask(fresh)

    def compare(self, message: CompareFrame) -> list[Effect]:
        """Say this in a comparison."""
        return [said(message)] if self.compares and not self._dead else []

    def publish(self, allowed: bool, now_ms: int) -> list[Effect]:
        """Whether this node may offer anything (profile §8: not while it does not know which copy it is)."""
        self._held = not allowed
        if self._sender is None:
            return []
        begun = self._sender.hold(self._held, now_ms)
        return self._guarded(lambda: begun, now_ms)

    def policy_changed(self, now_ms: int, *, widened: bool) -> list[Effect]:
        """What may be offered changed: unless it only widened, staged frames are made again; then go on staging.

        What was passed over before is queued by the store in the transaction that changed the policy.
        """
        if self._sender is not None:
            self._sender.refilter(now_ms, widened=widened)
        return self._guarded(list, now_ms)

    # --- Inputs: answers to jobs.

    def advanced(self, result: Advanced | None, now_ms: int) -> list[Effect]:
        """Answer to `Advance`."""
        return self._guarded(lambda: self._advanced(result, now_ms), now_ms)

    def resent(self, frames: tuple[StagedFrame, ...] | None, now_ms: int) -> list[Effect]:
        """Answer to `Resend`; None: what is staged is not what the peer may get any more."""
        return self._guarded(lambda: self._sending().resent(frames, now_ms), now_ms)

    def epoch_opened(self, stream: OutboundStream | None, now_ms: int) -> list[Effect]:
        """Answer to `NewEpoch`; None: the stored epoch is not the one that this session knew."""
        self._told = ToldWatermarks()  # what was told after frames of the old one may never have counted
        return self._guarded(lambda: self._sending().epoch_opened(stream), now_ms)

    def answer_stored(self, stored: bool, now_ms: int) -> list[Effect]:
        """Answer to `Answer`; False where the peer has too many unanswered requests."""
        self._sending().answer_stored()
        notice = Notice("request-limit", "it asks for more than one node answers at a time")
        return self._guarded(lambda: [] if stored else [notice], now_ms)

    def committed(self, result: Committed | None, now_ms: int) -> list[Effect]:
        """Answer to `Commit`, given once it is on disk: the acks leave now."""
        self._sending().want_watermarks()
        if result is not None and result.claimed:
            self._sending().watermarks_rose(now_ms)
        if result is not None and result.added:
            self._told.written(now_ms)
        if result is not None and (result.added or result.offered):
            self._sending().grew_by_peer(now_ms)
        if result is not None and result.answered:
            self._heard.again()
        return self._guarded(lambda: self._committed(result), now_ms)

    def stream_failed(self, reason: str, now_ms: int) -> list[Effect]:
        """A sending job met state that cannot be read: our stream stops, the peer's goes on (NEOTH commit contract)."""
        return self._guarded(lambda: self._stop_sending(reason), now_ms)

    # --- Frames.

    def _control_frames_untrusted(self, frames: Sequence[bytes], now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        try:
            for index, cbor in enumerate(frames):
                if self._sender is None and (self._introduced or self._admitted):
                    self._early.keep_control_untrusted(frames[index:])
                    return effects
                effects.extend(self._control_frame_untrusted(cbor, now_ms))
        except ProtocolError as error:
            return effects + self._end(error)  # what came before it still counts
        return effects

    def _control_frame_untrusted(self, cbor: bytes, now_ms: int) -> list[Effect]:
        message = decode_control_untrusted(cbor, self._features)
        self.counts.received(cbor)
        if isinstance(message, Introduce):
            return self._introduce_untrusted(message)
        if not self._admitted:
            raise ProtocolError("the site is not a member of this mesh", CloseCode.NOT_A_MEMBER)
        if isinstance(message, Hello):
            return self._hello_untrusted(message, now_ms)
        if self.hello is None:
            raise ProtocolError("the hello comes first")
        if isinstance(message, CompareFrame):
            return [PeerCompares(message)]
        match message:
            case Ack():
                return self._ack_untrusted(message, now_ms)
            case Nak():
                self._sending().nak_untrusted(message, now_ms)
            case Request():
                if not self._sending().request_untrusted(message):
                    return [Notice("request-limit", "it asks faster than it is answered")]
            case Watermarks():
                return self._watermarks_untrusted(message, now_ms)
            case Links():
                self._sending().linked_to(frozenset(message.sites))
            case Bye():
                self._leaving = True
                return [PeerBye(message.code, message.reason)]
        return []

    def _introduce_untrusted(self, message: Introduce) -> list[Effect]:
        if self._introduced or self.hello is not None:
            raise ProtocolError("an introduce comes once and first")
        self._introduced = True
        return [Introduced(tuple(message.records))]

    def _hello_untrusted(self, hello: Hello, now_ms: int) -> list[Effect]:
        if self.hello is not None:
            raise ProtocolError("a second hello")
        scope = check_hello_untrusted(hello, self.peer)
        claimed = hello.max_hlc.get(self._greeting.site, ZERO)
        hello, skewed = without_skew(hello, now_ms)
        self.hello = hello
        self._features = frozenset(hello.features).intersection(self._greeting.features)
        known = max(self._state.own_newest, dict(self._state.max_hlc).get(self._greeting.site, ZERO))
        asked = (*self._requested, *self._state.requests)
        self._own_past.greeted(claimed, skewed=self._greeting.site not in hello.max_hlc, known=known, asked=asked)
        effects: list[Effect] = [PeerHello(hello, scope, hello.wall - now_ms, self._features)]
        effects.extend(remarks(hello, skewed, known, self._greeting.site, now_ms))
        if holds_more(hello.inbound, self._state.outbound, self._state.past_epochs):
            effects.append(RolledBack(None, everything=self._offers))
        effects.extend(self._ask(self._requested))
        effects.extend(self.requests(self._state.requests, now_ms))
        if self._offers:
            self._sending().offers(first=self._greeting.site < self.peer)
        live = FEATURE_LIVE in self._features
        effects.extend(self._sending().greeted(hello.inbound, now_ms, live=live))
        self._sending().want_watermarks()
        return effects + self._event_frames_untrusted(self._early.take_events())

    def _ack_untrusted(self, ack: Ack, now_ms: int) -> list[Effect]:
        self._sending().ack_untrusted(ack, now_ms)
        if beyond_skew(ack.hlc.physical, now_ms):
            return [Notice("skew", "its clock reading in an ack is too far in the future")]
        return []

    def _watermarks_untrusted(self, message: Watermarks, now_ms: int) -> list[Effect]:
        skewed = self._heard.take_untrusted(message, now_ms)
        effects: list[Effect] = [PeerWatermarks(len(message.entries))]
        if skewed:
            effects.append(Notice("skew", f"{skewed} watermarks are too far in the future"))
        return effects

    def _event_frames_untrusted(self, frames: Sequence[bytes]) -> list[Effect]:
        if self.hello is None:
            self._early.keep_events_untrusted(frames)
            return []
        effects: list[Effect] = []
        try:
            for cbor in frames:
                effects.extend(self._event_frame_untrusted(cbor))
        except ProtocolError as error:
            return effects + self._end(error)
        return effects

    def _event_frame_untrusted(self, cbor: bytes) -> list[Effect]:
        message = decode_events_untrusted(cbor, self._features)
        self.counts.received(cbor)
        if isinstance(message, Open):
            self._receiver.open_untrusted(message)
            return []
        return self._receiver.frame_untrusted(message, digest(cbor), len(cbor))

    # --- The rest.

    @property
    def _offers(self) -> bool:
        """Whether events of others are offered on this link before they are sent."""
        return FEATURE_OFFER in self._features

    def _committed(self, result: Committed | None) -> list[Effect]:
        effects = self._receiver.committed(result)
        if result is not None:
            effects.extend(self._own_past.claimed(result.own_ahead, self._requested))
            effects.extend(self._own_past.answered(result.answered, result.own_newest))
        return effects

    def _advanced(self, result: Advanced | None, now_ms: int) -> list[Effect]:
        effects = self._sending().advanced(result, now_ms)
        if not self._sending().stands_still:
            self.stopped = ""
        if result is not None and result.watermarks is not None:
            entries: Sequence[WatermarkEntry] = result.watermarks
            if self._offers:
                heard = {self._greeting.site, self.peer, *(self.peer_links or ())}
                entries = self._told.worth_telling(entries, heard, now_ms)
            effects.extend(map(said, self._told.messages(entries, *self._sending().after)))
        return effects

    def _links_changed(self, now_ms: int) -> list[Effect]:
        """The first telling follows our hello, whether or not there are any."""
        told = self._links.due(now_ms) if self._offers and self.hello is not None else None
        return [] if told is None else [said(told)]

    def _ask(self, bodies: Iterable[bytes]) -> list[Effect]:
        """Requests as they are stored, without what the peer did not agree to."""
        return [SendControl(frame(body if FEATURE_COVERING in self._features else plain(body))) for body in bodies]

    def _stop_sending(self, reason: str) -> list[Effect]:
        self._sending().stop()
        self.stopped = reason
        return [Notice("unreadable-state", reason)]

    def _sending(self) -> Sender:
        assert self._sender is not None, "the session was not started"
        return self._sender

    def _guarded(self, work: _Work, now_ms: int) -> list[Effect]:
        """Run one input and then whatever jobs it makes possible; a ProtocolError ends the link, and only that."""
        if self._dead:
            return []
        try:
            effects = work()
        except ProtocolError as error:
            effects = self._end(error)
        if any(isinstance(effect, Close) for effect in effects):
            self._die()
            # Acks that matched before the peer broke the protocol are lost with the link: it sends them again.
            return effects
        if self._leaving or self._sender is None:
            return effects
        effects = [*effects, *self._time_passed(now_ms), *self._links_changed(now_ms)]
        return [*effects, *self._receiver.pump(self._heard), *self._sender.pump(now_ms)]

    def _time_passed(self, now_ms: int) -> Iterator[Effect]:
        """What the peer told beyond the skew bound counts once it is within it: it tells nothing twice on one link."""
        if self._told.is_due(now_ms):
            self._sending().watermarks_rose(now_ms)
        counting = self._heard.time_passed(now_ms)
        if counting:
            yield PeerWatermarks(counting)
        yield from self._own_past.time_passed(now_ms, self._requested)

    def _end(self, error: ProtocolError) -> list[Effect]:
        self._die()
        return [Close(error.code, label(str(error)))]

    def _die(self) -> None:
        """Jobs under way may keep a dead session for long: of what the peer sent it keeps nothing."""
        self._dead = True
        self._early.clear()
        self._control, self._events = FrameReader(), FrameReader()
        self._receiver.release()

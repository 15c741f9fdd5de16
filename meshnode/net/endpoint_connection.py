"""One connection: its handshake, its three streams and its end, as the endpoint and the link see them (profile §7).

Whatever a peer sends becomes bytes for its link, a close code, or nothing. Once per wake-up `settle` works through the
events of all datagrams that arrived, then transmits once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aioquic.quic import events

from meshnode.errors import CloseCode
from meshnode.limits import LABEL_BYTES, LINK_MOVE_S
from meshnode.net.aioquic_private import MutualConnection
from meshnode.net.endpoint_config import EndpointConfig
from meshnode.net.endpoint_driver import Driver
from meshnode.net.endpoint_ports import Ending, Owner, Sink, close_code_of
from meshnode.net.endpoint_pulse import Pulse
from meshnode.net.endpoint_source import Address
from meshnode.net.quic_words import APPLICATION_ERROR, quic_words

_CONTROL = 0  # the first bidirectional stream of the QUIC client
_CLIENT_EVENTS, _SERVER_EVENTS = 2, 3  # the first unidirectional stream of either side
_CONFIRM_S = 1.0  # seconds a refusing dialer gives its handshake flight to arrive before it closes


class Connection:
    """A connection of either direction, from its first datagram until its ids are forgotten."""

    def __init__(
        self, quic: MutualConnection, owner: Owner, config: EndpointConfig, address: Address, *, opened_by_us: bool
    ) -> None:
        self.quic = quic
        self.opened_by_us = opened_by_us
        self._address = address
        self.sink: Sink | None = None
        self.ending: Ending | None = None
        self.connection_ids: set[bytes] = set()
        self.usable = False  # authenticated, and the peer knows it too
        self.address_proven = False  # by a Retry, before the handshake
        self._own_events, self._peer_events = (
            (_CLIENT_EVENTS, _SERVER_EVENTS) if opened_by_us else (_SERVER_EVENTS, _CLIENT_EVENTS)
        )
        self._owner = owner
        self._config = config
        self._loop = asyncio.get_running_loop()
        self.begun = self._loop.time()
        self.pulse = Pulse(quic, self._wake, config.keep_alive_s)
        self._driver = Driver(quic, send=owner.send_all, wake=self._wake, broken=self.abandon)
        self._deadline: asyncio.TimerHandle | None = None
        self._moves_from = 0.0  # when its address may be said to be another one
        self._early_bytes = 0
        self._asked_for_ack = False
        self._handshaken = False
        self._refusal: tuple[CloseCode, str] | None = None
        self._chunks: dict[int, list[bytes]] = {}
        self._control_backlog = bytearray()  # ours, until the client has opened the control stream

    @property
    def address(self) -> Address:
        """Where the peer is: its datagrams may come from another address by and by (RFC 9000 §9)."""
        return self._address

    # --- What the endpoint calls.

    def receive_untrusted(self, data: bytes, address: Address) -> None:
        """Take in one datagram; `settle` has to follow."""
        self.pulse.heard()
        if not self._handshaken:
            self._early_bytes += len(data)
            if self._early_bytes > self._config.handshake_bytes:
                self.abandon("more bytes than a handshake has")
                return
        self._driver.receive_untrusted(data, address)

    def settle(self) -> None:
        """Work through what arrived, then transmit."""
        self._work_off_untrusted()
        self._check_bounds()
        if self.ending is None and self.quic.ending is not None:
            self._finish(self.quic.ending)
        if self.ending is None and self._control_backlog and self.quic.has_stream(_CONTROL):
            backlog, self._control_backlog = bytes(self._control_backlog), bytearray()
            self._write(_CONTROL, backlog)
        if self.ending is None and self.sink is not None:
            self.sink.progressed()
        self._follow()
        self._driver.transmit()

    def rerouted(self) -> None:
        """Our own addresses changed, and with them the path."""
        self.quic.rerouted(self._loop.time())
        self._wake()

    def abandon_after(self, seconds: float, reason: str) -> None:
        """Forget the connection unless it is usable by then."""
        self._set_deadline(seconds, lambda: self.abandon(reason))

    def close_after(self, seconds: float, code: CloseCode, reason: str) -> None:
        """Close the connection unless it may `stay`."""
        self._set_deadline(seconds, lambda: self.close(code, reason))

    def stay(self) -> None:
        """No deadline any more."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def abandon(self, reason: str) -> None:
        """Forget the connection without another datagram: who is behind it is unproven, or gone."""
        self._end(Ending(None, reason, local=True))
        self._gone()

    def use(self, sink: Sink) -> None:
        """The peer is authenticated and knows it: streams lead to `sink` from now on."""
        self.sink = sink
        self.usable = True
        self.stay()
        self.pulse.start()

    def close_now(self, code: CloseCode, reason: str) -> None:
        """As `close`, for an endpoint that is about to give up its socket."""
        self.close(code, reason)
        self._close_refused()
        self.settle()
        self._gone()

    # --- What the link calls.

    @property
    def closing(self) -> bool:
        """This side has had enough: nothing more is read or sent."""
        return self.ending is not None or self._refusal is not None or self.quic.closing_locally

    def close(self, code: CloseCode, reason: str) -> None:
        """End with an application close code that the peer can read, after what is already queued."""
        if self.ending is not None or self._refusal is not None or self.quic.ending is not None:
            return
        reason = reason.encode()[:LABEL_BYTES].decode(errors="ignore")
        if self.opened_by_us and not self.quic.confirmed:
            # Before the handshake is confirmed the code would arrive as a bare "application error": wait a moment.
            self._refusal = (code, reason)
            self._set_deadline(_CONFIRM_S, self._close_refused)
        else:
            self._driver.transmit()
            self.quic.close(error_code=int(code), reason_phrase=reason)
        self._wake()

    def send_control(self, data: bytes) -> None:
        """Write to the control stream; a server's words wait until the client opened it."""
        if self._control_backlog or not (self.opened_by_us or self.quic.has_stream(_CONTROL)):
            self._control_backlog += data
        else:
            self._write(_CONTROL, data)
        if self.control_unacknowledged > self._config.control_bytes:
            self.close(CloseCode.LIMIT, "the control stream is not read")

    def send_events(self, data: bytes) -> None:
        """Write to this side's event stream."""
        self._write(self._own_events, data)

    def consumed(self, size: int) -> None:
        """Let the peer send that much more."""
        if self.quic.receive_window.consume(size):
            self._wake()

    @property
    def control_unacknowledged(self) -> int:
        """Bytes of control frames that the peer has not acknowledged."""
        return len(self._control_backlog) + self.quic.unacknowledged(_CONTROL)

    @property
    def events_unacknowledged(self) -> int:
        """Bytes of event frames that the peer has not acknowledged."""
        return self.quic.unacknowledged(self._own_events)

    # --- The events of a wake-up.

    def _work_off_untrusted(self) -> None:
        while (event := self.quic.next_event()) is not None:
            self._handle_untrusted(event)
        if not self.opened_by_us and not self.quic.decrypted_something:
            self.abandon("nothing but noise")
        if self.closing:
            self._chunks.clear()
            if self.quic.confirmed:
                self._close_refused()
            return
        # A dialer learns that it was let in by the confirmation, or by the peer's first words where that was lost.
        if self._handshaken and not self.usable and (self.quic.confirmed or self._chunks):
            self._owner.confirmed(self)
        if self._chunks and self.sink is not None:
            chunks, self._chunks = self._chunks, {}
            self.sink.received_untrusted(
                b"".join(chunks.get(_CONTROL, ())), b"".join(chunks.get(self._peer_events, ()))
            )

    def _handle_untrusted(self, event: events.QuicEvent) -> None:
        match event:
            case events.StreamDataReceived():
                self._stream_data_untrusted(event)
            case events.HandshakeCompleted():
                self._handshaken = True
                if event.session_resumed or event.early_data_accepted:
                    self.close(CloseCode.NOT_AUTHENTICATED, "a resumed session shows no certificate")
                else:
                    self._owner.handshaken_untrusted(self, self.quic.peer_certificates, event.alpn_protocol or "")
            case events.PingAcknowledged():
                self.pulse.answered(event.uid)
            case events.ConnectionIdIssued():
                self._owner.learn(self, event.connection_id)
            case events.ConnectionIdRetired():
                self._owner.forget(self, event.connection_id)
            case events.StreamReset() | events.StopSendingReceived() | events.DatagramFrameReceived():
                self.close(CloseCode.PROTOCOL_ERROR, "streams of this protocol are not reset, and it has no datagrams")
            case events.ConnectionTerminated():
                self._finish(event)
                self._gone()

    def _stream_data_untrusted(self, event: events.StreamDataReceived) -> None:
        if event.stream_id not in (_CONTROL, self._peer_events):
            self.close(CloseCode.PROTOCOL_ERROR, f"stream {event.stream_id} is neither the control nor an event stream")
        elif not self._handshaken:
            self.close(CloseCode.NOT_AUTHENTICATED, "stream data before the handshake")
        elif event.data:
            self._chunks.setdefault(event.stream_id, []).append(event.data)

    def _follow(self) -> None:
        """The peer moved: said once that is proven, and not more often than the node can take."""
        address = self.quic.proven_address
        if address is not None and address != self._address and self._loop.time() >= self._moves_from:
            self._address, self._moves_from = address, self._loop.time() + LINK_MOVE_S
            if self.ending is None and self.sink is not None:
                self.sink.moved()

    def _check_bounds(self) -> None:
        if self.ending is not None or not self._handshaken:
            return
        if self.quic.kept_handshake_bytes > self._config.handshake_bytes:
            self.close(CloseCode.LIMIT, "a TLS message without an end")
        kept = self.quic.kept_packets
        if kept > self._config.kept_packets:
            self.close(CloseCode.LIMIT, "nothing that was sent is acknowledged")
        elif kept <= self._config.kept_packets // 4:
            self._asked_for_ack = False
        elif not self._asked_for_ack:  # bare acknowledgements are not acknowledged, unless a PING goes with them
            self._asked_for_ack = True
            self.pulse.nudge()

    def _write(self, stream_id: int, data: bytes) -> None:
        if self.ending is not None or self.quic.ending is not None:
            return
        try:
            self.quic.send_stream_data(stream_id, data)
        except (ValueError, RuntimeError):  # the peer stopped the stream in this very wake-up
            self.close(CloseCode.PROTOCOL_ERROR, "a stream that the protocol needs was ended")
        self._wake()

    def _wake(self) -> None:
        self._owner.touch(self)

    # --- The way out.

    def _close_refused(self) -> None:
        if self._refusal is not None and self.quic.ending is None:
            self.quic.close(error_code=int(self._refusal[0]), reason_phrase=self._refusal[1])
            self._wake()

    def _finish(self, event: events.ConnectionTerminated) -> None:
        code, reason, local = None, event.reason_phrase, self.quic.closing_locally
        of_quic = event.frame_type is not None
        if not of_quic:
            code = close_code_of(event.error_code)
        if code is None and not reason:
            unknown = f"it closed with code {event.error_code}, which this release does not know"
            reason = quic_words(event.error_code) if of_quic else unknown
        self._end(Ending(code, reason, local, of_quic and not local and event.error_code == APPLICATION_ERROR))

    def _end(self, ending: Ending) -> None:
        """Report the end once."""
        if self.ending is not None:
            return
        self.ending = ending
        self.stay()
        self.pulse.stop()
        self._chunks.clear()
        self._control_backlog.clear()
        if self.sink is not None:
            self.sink.ended(ending)
        self._owner.ended(self, ending)

    def _gone(self) -> None:
        self._driver.stop()
        self._owner.gone(self)

    def _set_deadline(self, seconds: float, action: Callable[[], None]) -> None:
        self.stay()
        self._deadline = self._loop.call_later(seconds, action)

"""The one module that touches aioquic's private names (profile §7); a test fails loudly when a release changes them.

Mutual TLS, back-pressure, prompt news of a close and the size of datagrams have no public API there:

- a server asks for a client certificate only if its TLS context is told to, and that context is made at the first
  datagram, so the connection is subclassed where the context is made;
- flow-control windows double on bytes received, so that a peer chooses how much is kept for it; here the
  connection's window slides with bytes consumed instead;
- `ConnectionTerminated` comes three probe timeouts after the close itself;
- datagrams stay as large as they were configured, and nothing probes the path;
- an acknowledgement leaves a millisecond after what it is for, in a datagram of its own, though an answer that could
  carry it follows soon; and bursts are so small that each wait for the next one, a millisecond of the event loop's
  clock, bounds how fast a LAN is.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterable

from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.congestion.reno import RenoCongestionControl
from aioquic.quic.connection import Limit, NetworkAddress, QuicConnection, QuicConnectionState
from aioquic.quic.events import ConnectionTerminated
from aioquic.quic.packet import QuicFrameType, QuicPacketType, QuicProtocolVersion
from aioquic.quic.packet_builder import QuicDeliveryState, QuicPacketBuilder, QuicSentPacket
from aioquic.quic.recovery import QuicPacketPacer
from aioquic.tls import Epoch
from cryptography import x509

from meshnode.limits import DATAGRAM_BYTES
from meshnode.net.identity import EndpointIdentity
from meshnode.net.path_size import PathSize, Probe

_PROBE_TIMEOUTS = 3  # of QUIC's, after which the probe of a size counts as lost
_PROBE_S = 0.5  # seconds at least, as a busy peer takes longer than its path
_ACK_S = 0.01  # seconds an acknowledgement waits for something that carries it; a peer reckons with 25 ms
_ACK_PACKETS = 8  # packets to be acknowledged from which it does not wait
_TICK_S = 1e-6  # seconds ago from which an acknowledgement is due: what is due now alone, pacing may still hold back
_BURST_BYTES = 96 * 1024  # that may leave at once, as far as the congestion window goes
_PACE = 1.25  # times the congestion window in a round trip
PEER_STREAMS = 8  # streams of a kind that a peer may open: one is used, a second ends the link with a close code


def configuration(
    identity: EndpointIdentity, *, is_client: bool, alpns: list[str], idle_s: float, window: int
) -> QuicConfiguration:
    """QUIC v1, one certificate of our own, no authority asked about the peer's: the transport binding decides."""
    # It warns of every malformed packet, so that strangers would write our log; the endpoint has notices instead.
    logging.getLogger("quic").setLevel(logging.CRITICAL)
    return QuicConfiguration(
        alpn_protocols=alpns,
        is_client=is_client,
        idle_timeout=idle_s,
        max_data=window,
        max_stream_data=window,
        max_datagram_size=DATAGRAM_BYTES,
        certificate=identity.certificate,
        private_key=identity.tls_key,
        supported_versions=[QuicProtocolVersion.VERSION_1],
        verify_mode=ssl.CERT_NONE,
    )


class ReceiveWindow(Limit):
    """Connection-wide flow control that opens as bytes are consumed, never because they arrived."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._consumed = 0
        self._granted = window
        super().__init__(frame_type=QuicFrameType.MAX_DATA, name="max_data", value=window)

    @property
    def value(self) -> int:
        """The highest number of bytes that the peer may send on all streams together."""
        return self._granted

    @value.setter
    def value(self, proposed: int) -> None:
        """Whoever doubles the window on receipt asks in vain."""

    def consume(self, size: int) -> bool:
        """Count bytes as done with; says whether the peer is now to be told of a wider window."""
        self._consumed += size
        opening = self._consumed + self._window - self._granted
        if opening < self._window // 2:
            return False
        self._granted += opening
        return True


class _Observed(RenoCongestionControl):
    """aioquic's own congestion control, which is told of every packet: which arrive, which are lost, of which size."""

    def __init__(self, path: PathSize) -> None:
        super().__init__(max_datagram_size=path.size)
        self.unanswered_since: float | None = None
        self._path = path

    def on_packet_sent(self, *, packet: QuicSentPacket) -> None:
        super().on_packet_sent(packet=packet)
        if self.unanswered_since is None and packet.is_ack_eliciting:
            self.unanswered_since = packet.sent_time

    def on_packet_acked(self, *, now: float, packet: QuicSentPacket) -> None:
        super().on_packet_acked(now=now, packet=packet)
        self.unanswered_since = now if self.bytes_in_flight else None
        self._path.arrived(packet.sent_bytes)

    def on_packets_expired(self, *, packets: Iterable[QuicSentPacket]) -> None:
        expired = list(packets)
        super().on_packets_expired(packets=expired)
        self._path.lost(min((packet.sent_bytes for packet in expired), default=0))

    def on_packets_lost(self, *, now: float, packets: Iterable[QuicSentPacket]) -> None:
        lost = list(packets)
        super().on_packets_lost(now=now, packets=lost)
        self._path.lost(min((packet.sent_bytes for packet in lost), default=0))

    def resize(self, size: int) -> None:
        """Datagrams are of another size from here on (RFC 9002 §7.2)."""
        self._max_datagram_size = size
        self.congestion_window = max(self.congestion_window, 2 * size)


class _LanPacer(QuicPacketPacer):
    """aioquic's pacing with bursts worth a wait, and a little faster than the window (RFC 9002 §7.7)."""

    def update_rate(self, congestion_window: int, smoothed_rtt: float) -> None:
        super().update_rate(congestion_window, smoothed_rtt / _PACE)
        burst_s = _BURST_BYTES * smoothed_rtt / (_PACE * congestion_window)
        self.bucket_max = max(self.bucket_max, min(burst_s, smoothed_rtt / _PACE))


class MutualConnection(QuicConnection):
    """A connection that demands a certificate of either side and bounds what it keeps for its peer."""

    def __init__(
        self,
        *,
        configuration: QuicConfiguration,
        datagram_sizes: Iterable[int] = (),
        original_destination_connection_id: bytes | None = None,
        retry_source_connection_id: bytes | None = None,
    ) -> None:
        super().__init__(
            configuration=configuration,
            original_destination_connection_id=original_destination_connection_id,
            retry_source_connection_id=retry_source_connection_id,
        )
        self.receive_window = ReceiveWindow(configuration.max_data)
        self._local_max_data = self.receive_window
        for limit in (self._local_max_streams_bidi, self._local_max_streams_uni):
            limit.value = limit.sent = PEER_STREAMS
        self._path_size = PathSize(datagram_sizes)
        self._measured: NetworkAddress | None = None  # the address that this is about
        self._control = self._loss._cc = _Observed(self._path_size)
        self._loss._pacer = _LanPacer(max_datagram_size=self._path_size.size)
        self._unacked = 0  # packets that the peer waits for an acknowledgement of

    def _initialize(self, peer_cid: bytes) -> None:
        super()._initialize(peer_cid)
        if not self._is_client:
            self.tls._request_client_certificate = True

    @property
    def decrypted_something(self) -> bool:
        """False while every packet was noise: such a connection is nobody's."""
        return self._state != QuicConnectionState.FIRSTFLIGHT

    @property
    def confirmed(self) -> bool:
        """The handshake is complete at both ends, so that an application close is readable to the peer."""
        return self._handshake_confirmed

    @property
    def peer_certificates(self) -> list[x509.Certificate]:
        """What the peer presented; its possession of the first one's key is proven, nothing else is."""
        if self.tls._peer_certificate is None:
            return []
        return [self.tls._peer_certificate, *self.tls._peer_certificate_chain]

    @property
    def ending(self) -> ConnectionTerminated | None:
        """How the connection ends or has ended, as soon as that is known."""
        return self._close_event

    @property
    def closing_locally(self) -> bool:
        """This side ended it: a close is due, was sent, or the peer fell silent."""
        return self._close_event is not None and self._state != QuicConnectionState.DRAINING

    @property
    def kept_handshake_bytes(self) -> int:
        """Bytes of an unfinished TLS message, which a peer may announce as 16 MiB."""
        return len(self.tls._receive_buffer)

    @property
    def kept_packets(self) -> int:
        """Packets remembered until the peer acknowledges them, which it may never do."""
        return sum(len(space.sent_packets) for space in self._spaces.values())

    def has_stream(self, stream_id: int) -> bool:
        """The stream was opened by either side."""
        return stream_id in self._streams

    def unacknowledged(self, stream_id: int) -> int:
        """Bytes written to a stream that the peer has not acknowledged."""
        stream = self._streams.get(stream_id)
        return 0 if stream is None else len(stream.sender._buffer)

    def reorder_bytes(self) -> int:
        """Bytes kept of streams with gaps; the receive window bounds them."""
        return sum(len(stream.receiver._buffer) for stream in self._streams.values())

    @property
    def unanswered_since(self) -> float | None:
        """When the peer was last known to be there, while it owes an acknowledgement; None while it owes none."""
        return self._control.unanswered_since

    @property
    def proven_address(self) -> NetworkAddress | None:
        """Where the peer is, as far as it has shown that it receives there (RFC 9000 §8.2)."""
        path = self._network_paths[0] if self._network_paths else None
        return path.addr if path is not None and path.is_validated else None

    # --- Acknowledgements.

    def receive_datagram(self, data: bytes, addr: NetworkAddress, now: float) -> None:
        """As in aioquic; what came is acknowledged once there is enough of it, or with what is sent anyway."""
        space = self._spaces[Epoch.ONE_RTT] if self._handshake_confirmed else None
        before = -1 if space is None else space.largest_received_packet
        if space is not None:
            self._ack_delay = _ACK_S
        super().receive_datagram(data, addr, now)
        if space is None or space.ack_at is None:
            self._unacked = 0
            return
        self._unacked += 1
        in_order = space.largest_received_packet == before + 1
        if self._unacked >= _ACK_PACKETS or not in_order:  # a gap is told at once (RFC 9000 §13.2.1)
            space.ack_at = min(space.ack_at, now - _TICK_S)

    # --- The size of datagrams.

    @property
    def datagram_bytes(self) -> int:
        """How large datagrams may be on the path in use."""
        return self._max_datagram_size

    def refused(self, size: int, now: float) -> None:
        """A datagram of that size did not leave: the interface takes none so large."""
        self._path_size.refused(size, now)

    def rerouted(self, now: float) -> None:
        """Our own network changed, so datagrams take another path from now on."""
        self._path_size.moved(now)

    def datagrams_to_send(self, now: float) -> list[tuple[bytes, NetworkAddress]]:
        """As in aioquic, each as large as the path is known to carry, and a probe of its size where one is due."""
        if self._network_paths[0].addr != self._measured:
            self._measured = self._network_paths[0].addr
            self._path_size.moved(now)
        patience_s = max(_PROBE_S, _PROBE_TIMEOUTS * self._loss.get_probe_timeout())
        probe = self._path_size.probe(now, patience_s) if self._can_probe else None
        self._resize(self._path_size.size)
        space = self._spaces[Epoch.ONE_RTT] if self._handshake_confirmed else None
        if space is not None and space.ack_at is not None and self._has_words:
            space.ack_at = min(space.ack_at, now - _TICK_S)  # it costs no datagram of its own
        flight = super().datagrams_to_send(now)
        if space is not None and space.ack_at is None:
            self._unacked = 0
        if probe is not None and self._can_probe:  # it may have been told to close
            flight += self._size_probe(probe, now)
        return flight

    def get_timer(self) -> float | None:
        """As in aioquic, and not later than something is due about the size of datagrams."""
        at, probe_at = super().get_timer(), self._path_size.next_at() if self._can_probe else None
        return at if probe_at is None or at is None else min(at, probe_at)

    @property
    def _has_words(self) -> bool:
        """Something of a stream, or a PING, wants to be sent."""
        return bool(self._ping_pending) or any(not each.sender.buffer_is_empty for each in self._streams.values())

    @property
    def _can_probe(self) -> bool:
        """The handshake is confirmed, and the path is one that the peer proved to be at."""
        return (
            self._handshake_confirmed
            and self._state is QuicConnectionState.CONNECTED
            and self._network_paths[0].is_validated
        )

    def _resize(self, size: int) -> None:
        if size != self._max_datagram_size:
            self._max_datagram_size = self._loss._pacer._max_datagram_size = size
            self._control.resize(size)

    def _size_probe(self, probe: Probe, now: float) -> list[tuple[bytes, NetworkAddress]]:
        """One datagram with a PING and padding up to the size (RFC 9000 §14.4).

        It is not counted as in flight: its loss says nothing about congestion, nor its silence about the peer.
        """
        builder = QuicPacketBuilder(
            host_cid=self.host_cid,
            peer_cid=self._peer_cid.cid,
            version=QuicProtocolVersion.VERSION_1,
            is_client=self._is_client,
            max_datagram_size=probe.size,
            packet_number=self._packet_number,
            spin_bit=self._spin_bit,
        )
        builder.start_packet(QuicPacketType.ONE_RTT, self._cryptos[Epoch.ONE_RTT])
        frame = builder.start_frame(QuicFrameType.PING, handler=self._on_size_probe, handler_args=(probe,))
        frame.push_bytes(bytes(builder.remaining_buffer_space))
        datagrams, packets = builder.flush()
        self._packet_number = builder.packet_number
        for packet in packets:
            packet.sent_time, packet.in_flight, packet.is_ack_eliciting = now, False, False
            self._loss.on_packet_sent(packet=packet, space=self._spaces[Epoch.ONE_RTT])
        return [(datagram, self._network_paths[0].addr) for datagram in datagrams]

    def _on_size_probe(self, delivery: QuicDeliveryState, probe: Probe) -> None:
        if delivery is QuicDeliveryState.ACKED:
            self._path_size.probe_arrived(probe)
        else:
            self._path_size.probe_lost(probe)

"""The one module that touches aioquic's private names (profile §7); a test fails loudly when a release changes them.

Mutual TLS, back-pressure and prompt news of a close have no public API there:

- a server asks for a client certificate only if its TLS context is told to, and that context is made at the first
  datagram, so the connection is subclassed where the context is made;
- flow-control windows double on bytes received, so that a peer chooses how much is kept for it; here the
  connection's window slides with bytes consumed instead;
- `ConnectionTerminated` comes three probe timeouts after the close itself.
"""

from __future__ import annotations

import logging
import ssl

from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import Limit, QuicConnection, QuicConnectionState
from aioquic.quic.events import ConnectionTerminated
from aioquic.quic.packet import QuicFrameType, QuicProtocolVersion
from cryptography import x509

from meshnode.net.identity import EndpointIdentity

PEER_STREAMS = 8  # streams of a kind that a peer may open: one is used, a second ends the link with a close code


def configuration(
    identity: EndpointIdentity, *, is_client: bool, alpns: list[str], idle_s: float, window: int, datagram_bytes: int
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
        max_datagram_size=datagram_bytes,
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


class MutualConnection(QuicConnection):
    """A connection that demands a certificate of either side and bounds what it keeps for its peer."""

    def __init__(
        self,
        *,
        configuration: QuicConfiguration,
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

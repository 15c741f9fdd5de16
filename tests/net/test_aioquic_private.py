"""Fails loudly when a release of aioquic changes what net/aioquic_private.py leans on."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import aioquic
from aioquic import tls
from aioquic.quic.connection import Limit, QuicConnection, QuicConnectionState, QuicNetworkPath
from aioquic.quic.packet import QuicPacketType
from aioquic.quic.packet_builder import QuicSentPacket
from aioquic.quic.recovery import QuicPacketRecovery, QuicPacketSpace
from aioquic.quic.stream import QuicStream
from support.quic import ALICE, bare_configuration, identity

import meshnode.net
from meshnode.net.aioquic_private import PEER_STREAMS, MutualConnection, ReceiveWindow, configuration

_PRIVATE = re.compile(r"\b(?:tls|quic|connection|stream|sender|receiver|_quic)\._[a-z]\w*")


def connection(*, is_client: bool) -> MutualConnection:
    """A connection that was told to begin, without a network."""
    made = MutualConnection(
        configuration=configuration(identity(ALICE), is_client=is_client, alpns=["ssp/1"], idle_s=30, window=1000),
        datagram_sizes=(1452,),
        original_destination_connection_id=None if is_client else b"original",
    )
    made._version = 1
    made._initialize(b"original")
    return made


def test_the_minor_release_is_the_one_that_was_read() -> None:
    assert aioquic.__version__.split(".")[:2] == ["1", "7"], (
        "read quic/connection.py and tls.py again, then change this"
    )


def test_a_server_asks_for_a_certificate_and_a_client_does_not() -> None:
    assert connection(is_client=False).tls._request_client_certificate is True
    assert connection(is_client=True).tls._request_client_certificate is False
    assert "_request_client_certificate" in inspect.getsource(tls.Context._server_handle_hello)
    assert connection(is_client=True).tls._verify_mode == 0


def test_the_names_that_are_read_exist() -> None:
    made = connection(is_client=False)
    for name in ("_peer_certificate", "_peer_certificate_chain", "_receive_buffer"):
        assert hasattr(made.tls, name), name
    for name in ("_state", "_handshake_confirmed", "_close_event", "_spaces", "_streams", "_is_client"):
        assert hasattr(made, name), name
    for name in ("_network_paths", "_packet_number", "_peer_cid", "_spin_bit", "_cryptos", "_max_datagram_size"):
        assert hasattr(made, name), name
    assert hasattr(QuicStream().sender, "_buffer")
    assert hasattr(QuicPacketSpace(), "sent_packets")
    assert {"FIRSTFLIGHT", "DRAINING"} <= set(QuicConnectionState.__members__)
    assert made.peer_certificates == []
    assert not made.confirmed
    assert not made.decrypted_something
    assert made.ending is None
    assert made.kept_packets == made.kept_handshake_bytes == made.unacknowledged(0) == 0
    assert not made.has_stream(0)


def test_the_size_of_datagrams_is_kept_where_it_is_changed() -> None:
    """By the connection, its pacer and its congestion control, and nowhere else."""
    made = connection(is_client=True)
    made._resize(1452)
    assert made.datagram_bytes == made._max_datagram_size == 1452
    source = inspect.getsource(QuicConnection.datagrams_to_send)
    assert "max_datagram_size=self._max_datagram_size" in source
    assert made._loss._cc is made._control
    for holder in (made._loss._pacer, made._loss._cc):
        assert vars(holder)["_max_datagram_size"] == 1452
    assert not [name for name in vars(made._loss) if "datagram" in name]
    assert QuicNetworkPath(("192.0.2.1", 1)).is_validated is False


def test_what_is_not_in_flight_is_neither_congestion_nor_silence() -> None:
    """How the loss of a probe stays without consequence."""
    assert "if packet.in_flight:\n                lost_packets_cc.append" in inspect.getsource(
        QuicPacketRecovery._on_packets_lost
    )
    assert "if packet.is_ack_eliciting:" in inspect.getsource(QuicPacketRecovery.reschedule_data)
    made = connection(is_client=True)
    space = made._spaces[tls.Epoch.ONE_RTT]
    packet = QuicSentPacket(tls.Epoch.ONE_RTT, False, False, False, 1, QuicPacketType.ONE_RTT, 1.0, 1452)
    made._loss.on_packet_sent(packet=packet, space=space)
    assert made.kept_packets == 1
    assert made._loss.bytes_in_flight == space.ack_eliciting_in_flight == 0


def test_an_acknowledgement_is_due_by_one_number() -> None:
    """And leaves, whatever pacing says, once that is in the past."""
    assert "space.ack_at = now + self._ack_delay" in inspect.getsource(QuicConnection.receive_datagram)
    writing = inspect.getsource(QuicConnection._write_application)
    assert "if space.ack_at is None or space.ack_at >= now:" in writing
    assert "and space.ack_at <= now" in writing
    assert "self._loss._pacer" in writing
    made = connection(is_client=True)
    assert made._ping_pending == []
    assert hasattr(made._spaces[tls.Epoch.ONE_RTT], "largest_received_packet")
    assert QuicStream().sender.buffer_is_empty


def test_an_end_is_known_at_once() -> None:
    made = connection(is_client=False)
    made.close(error_code=2, reason_phrase="no")
    assert made.ending is not None
    assert (made.ending.error_code, made.ending.frame_type) == (2, None)
    assert made.closing_locally


def test_the_receive_window_takes_the_place_of_the_one_that_doubles() -> None:
    made = connection(is_client=False)
    assert made._local_max_data is made.receive_window
    source = inspect.getsource(QuicConnection)
    assert "max_data.value *= 2" in source
    assert "self._local_max_data.used + newly_received > self._local_max_data.value" in source
    assert set(vars(Limit(0, "", 0))) == {"frame_type", "name", "sent", "used", "value"}
    assert made._local_max_streams_bidi.value == made._local_max_streams_uni.value == PEER_STREAMS


def test_the_receive_window_slides_with_what_was_consumed() -> None:
    window = ReceiveWindow(1000)
    window.value *= 2
    assert window.value == 1000
    assert not window.consume(499)
    assert window.value == 1000
    assert window.consume(1)
    assert window.value == 1500
    assert window.consume(1000)
    assert window.value == 2500


def test_bare_aioquic_trusts_whoever_so_the_binding_check_must_be_ours() -> None:
    assert bare_configuration("alice").verify_mode == 0
    made = connection(is_client=True)
    assert len(made.configuration.supported_versions) == 1
    assert made.configuration.certificate_chain == []
    assert made._session_ticket_fetcher is None
    assert made._session_ticket_handler is None


def test_private_names_live_in_one_module() -> None:
    package = Path(meshnode.net.__file__).parents[1]
    offenders = [
        f"{path.relative_to(package)}: {match}"
        for path in package.rglob("*.py")
        if path.name != "aioquic_private.py" and "aioquic" in path.read_text()
        for match in _PRIVATE.findall(path.read_text())
        if match != "self._quic"
    ]
    assert not offenders

"""When an acknowledgement leaves, and how much may leave at once: in virtual time (profile §7)."""

from __future__ import annotations

import pytest
from aioquic.quic.recovery import QuicPacketPacer
from support.quic_wire import Wire

from meshnode.net import aioquic_private
from meshnode.net.aioquic_private import _ACK_PACKETS, _ACK_S, _BURST_BYTES, _LanPacer

DELAY_S = 0.002  # one way: less than an acknowledgement waits


def quiet() -> Wire:
    """A path whose ends have nothing to say any more, and the stream is open."""
    wire = Wire(delay_s=DELAY_S)
    wire.send(wire.client, 1)
    wire.run(5.0)
    wire.sent.clear()
    return wire


def owed(wire: Wire) -> int:
    """Bytes that the server has not acknowledged."""
    return wire.client.quic.unacknowledged(0)


def test_a_lone_packet_is_acknowledged_after_a_moment() -> None:
    wire = quiet()
    wire.send(wire.client, 100)
    took = wire.until(lambda: owed(wire) == 0)
    assert took == pytest.approx(2 * DELAY_S + _ACK_S)
    wire.run(1.0)
    assert len(wire.sent) == 2


def test_an_answer_carries_the_acknowledgement() -> None:
    wire = quiet()
    wire.send(wire.client, 100)
    wire.until(lambda: wire.server.received == 101)
    wire.run(_ACK_S / 2)
    wire.send(wire.server, 100)
    wire.until(lambda: wire.client.received == 100)
    assert owed(wire) == 0
    assert len(wire.sent) == 2, "one datagram each way"
    wire.run(1.0)
    assert len(wire.sent) == 3, "and the acknowledgement of the answer"


def test_many_packets_are_acknowledged_at_once() -> None:
    wire = quiet()
    for _ in range(_ACK_PACKETS):
        wire.send(wire.client, 100)
    assert wire.until(lambda: owed(wire) == 0) == pytest.approx(2 * DELAY_S, abs=1e-4)
    for _ in range(_ACK_PACKETS - 1):  # counted anew
        wire.send(wire.client, 100)
    assert wire.until(lambda: owed(wire) == 0) == pytest.approx(2 * DELAY_S + _ACK_S, abs=1e-4)


def test_a_gap_is_told_at_once() -> None:
    wire = quiet()
    wire.carries = lambda size, now: False
    wire.send(wire.client, 100)
    wire.carries = lambda size, now: True
    wire.send(wire.client, 50)
    assert wire.until(lambda: owed(wire) < 150 or len(wire.sent) >= 3) == pytest.approx(DELAY_S, abs=1e-4)
    wire.until(lambda: wire.server.received == 151)


def test_the_handshake_waits_for_nothing() -> None:
    """Aioquic's own delay until it is confirmed: later ones leave room for an answer."""
    wire = Wire(delay_s=DELAY_S)
    assert wire.now - 1000.0 < 10 * DELAY_S


def test_a_burst_is_worth_a_wait() -> None:
    ours, theirs = _LanPacer(max_datagram_size=1452), QuicPacketPacer(max_datagram_size=1452)
    for pacer in (ours, theirs):
        pacer.update_rate(congestion_window=1_000_000, smoothed_rtt=0.001)
        pacer.update_bucket(now=100.0)
        sent = 0
        while pacer.next_send_time(now=100.0) is None:
            pacer.update_after_send(now=100.0)
            sent += 1452
        if pacer is ours:
            assert _BURST_BYTES <= sent <= _BURST_BYTES + 2 * 1452
        else:
            assert sent < _BURST_BYTES / 3


def test_no_burst_is_larger_than_the_congestion_window() -> None:
    pacer = _LanPacer(max_datagram_size=1200)
    pacer.update_rate(congestion_window=12_000, smoothed_rtt=0.1)
    pacer.update_bucket(now=100.0)
    sent = 0
    while pacer.next_send_time(now=100.0) is None:
        pacer.update_after_send(now=100.0)
        sent += 1200
    assert sent <= 12_000 + 1200


def test_what_a_peer_reckons_with_is_more_than_what_is_waited() -> None:
    """`max_ack_delay` of the transport parameters, 25 ms: a probe is not sent before an acknowledgement was due."""
    wire = quiet()
    assert wire.client.quic._loss.max_ack_delay > 2 * _ACK_S
    assert aioquic_private._TICK_S < _ACK_S

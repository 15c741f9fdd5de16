"""Authenticated or not, a peer's bytes end in a close code or in nothing, and the listener lives on (profile §7)."""

from __future__ import annotations

import asyncio
import random
import socket

import pytest
from aioquic.quic import events
from aioquic.quic.connection import QuicConnection
from aioquic.quic.packet import QuicErrorCode
from aioquic.tls import Epoch
from cryptography.hazmat.primitives.serialization import Encoding
from support.quic import ALICE, BOB, PATIENCE_S, Bare, Station, bare_client, bare_configuration, station

from meshnode.errors import CloseCode, ProtocolError
from meshnode.net.endpoint import Admission, Link
from meshnode.net.endpoint_connection import Connection


async def still_listens(here: Station) -> None:
    """A member gets in and is heard."""
    async with bare_client(here.endpoint.port, "bob") as bob:
        await bob.completed()
        bob.send(0, b"hello")
        await here.until(lambda: any(seen.link.site == BOB.site and seen.control == b"hello" for seen in here.links))


async def ending(peer: Bare) -> events.ConnectionTerminated:
    """How the listener ended it."""
    await peer.until(lambda: peer.find(events.ConnectionTerminated) is not None)
    found = peer.find(events.ConnectionTerminated)
    assert isinstance(found, events.ConnectionTerminated)
    return found


async def test_garbage_datagrams_are_nothing() -> None:
    noise = random.Random(7)
    async with station() as here:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for size in [0, 1, 2, 7, 8, 9, 20, 100, 1199, 1200, 1201, 9000] * 20:
                stranger.sendto(noise.randbytes(size), ("127.0.0.1", here.endpoint.port))
        await still_listens(here)
        assert here.endpoint.reception.handshaking == 0
        assert not here.notices


async def test_initials_that_cannot_be_decrypted_leave_nothing_behind() -> None:
    noise = random.Random(8)
    async with station() as here:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for _ in range(100):
                head = b"\xc3\x00\x00\x00\x01\x08" + noise.randbytes(8) + b"\x08" + noise.randbytes(8) + b"\x00\x44\x8f"
                stranger.sendto(head + noise.randbytes(1200), ("127.0.0.1", here.endpoint.port))
        await still_listens(here)
        assert here.endpoint.reception.handshaking == 0


async def test_truncated_and_mangled_first_flights() -> None:
    noise = random.Random(9)
    captured: list[bytes] = []
    for _ in range(10):
        quic = QuicConnection(configuration=bare_configuration("alice"))
        quic.connect(("127.0.0.1", 1), now=0.0)
        captured += [data for data, _ in quic.datagrams_to_send(now=0.0)]
    async with station() as here:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for data in captured:
                for _ in range(20):
                    mangled = bytearray(data)
                    mangled[noise.randrange(60)] ^= 1 << noise.randrange(8)
                    stranger.sendto(mangled, ("127.0.0.1", here.endpoint.port))
                    stranger.sendto(data[: noise.randrange(len(data))], ("127.0.0.1", here.endpoint.port))
        await still_listens(here)


async def test_other_versions_are_negotiated_and_never_reflected() -> None:
    async with station() as here:
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.setblocking(False)
            await loop.sock_connect(stranger, ("127.0.0.1", here.endpoint.port))
            packet = b"\xc3\x0a\x0a\x0a\x0a\x08destdest\x08srcesrce".ljust(1200, b"\0")
            await loop.sock_sendall(stranger, packet[:1199])  # too small to be answered
            await loop.sock_sendall(stranger, b"\xc3\0\0\0\0" + packet[5:])  # itself a version negotiation
            await loop.sock_sendall(stranger, packet)
            async with asyncio.timeout(PATIENCE_S):
                answer = await loop.sock_recv(stranger, 2000)
            assert answer[1:5] == b"\0\0\0\0"
            assert answer.endswith(b"\0\0\0\x01")
            assert len(answer) < 100
            with pytest.raises(BlockingIOError):
                stranger.recv(2000)
        await still_listens(here)


async def test_a_certificate_that_no_parser_knows() -> None:
    class Damaged:
        def public_bytes(self, encoding: Encoding) -> bytes:
            der = bytearray(original.public_bytes(encoding))
            der[12] ^= 1  # X.509 version 4
            return bytes(der)

    configuration = bare_configuration("alice")
    original = configuration.certificate
    configuration.certificate = Damaged()
    async with station() as here:
        async with bare_client(here.endpoint.port, None, configuration=configuration) as peer:
            assert (await ending(peer)).error_code == QuicErrorCode.PROTOCOL_VIOLATION
        await still_listens(here)


@pytest.mark.parametrize("stream_id", [4, 8, 6, 28])
async def test_extra_streams(stream_id: int) -> None:
    async with station() as here, bare_client(here.endpoint.port, "alice") as peer:
        await peer.completed()
        peer.send(stream_id, b"one stream too many")
        assert await peer.close_code() == CloseCode.PROTOCOL_ERROR
        await here.until(lambda: here.links[0].closed is not None)
        assert here.links[0].closed == (CloseCode.PROTOCOL_ERROR, here.links[0].closed[1], True)
        assert not here.links[0].control


async def test_very_many_streams() -> None:
    async with station() as here:
        async with bare_client(here.endpoint.port, "alice") as peer:
            await peer.completed()
            peer.quic._remote_max_streams_bidi = 1 << 40
            peer.send(4 << 30, b"stream number 2^30")
            assert (await ending(peer)).error_code == QuicErrorCode.STREAM_LIMIT_ERROR
        await still_listens(here)


@pytest.mark.parametrize("stream_id", [0, 2])
async def test_a_stream_that_is_reset(stream_id: int) -> None:
    async with station() as here, bare_client(here.endpoint.port, "alice") as peer:
        await peer.completed()
        peer.send(stream_id, b"first")
        peer.quic.reset_stream(stream_id, 0)
        peer.transmit()
        assert await peer.close_code() == CloseCode.PROTOCOL_ERROR


async def test_a_stream_that_is_stopped() -> None:
    async with station() as here, bare_client(here.endpoint.port, "alice") as peer:
        await here.until(lambda: bool(here.links))
        here.links[0].link.send_events(b"first")
        await peer.until(lambda: bool(peer.received.get(3)))
        peer.quic.stop_stream(3, 0)
        peer.transmit()
        assert await peer.close_code() == CloseCode.PROTOCOL_ERROR
        here.links[0].link.send_events(b"after the end")


async def test_a_stream_that_is_finished_is_read_to_its_end() -> None:
    async with station() as here, bare_client(here.endpoint.port, "alice") as peer:
        await peer.completed()
        peer.send(0, b"control", end_stream=True)
        peer.send(2, b"events", end_stream=True)
        await here.first()
        await here.until(lambda: here.links[0].events == b"events" and here.links[0].control == b"control")
        here.links[0].link.send_control(b"answer")
        await peer.until(lambda: peer.received.get(0) == b"answer")
        peer.send(6, b"another event stream")
        assert await peer.close_code() == CloseCode.PROTOCOL_ERROR


async def test_datagram_frames() -> None:
    async with station() as here:
        async with bare_client(here.endpoint.port, "alice", max_datagram_frame_size=1000) as peer:
            await peer.completed()
            peer.quic.send_datagram_frame(b"no such thing here")
            peer.transmit()
            assert (await ending(peer)).error_code == QuicErrorCode.PROTOCOL_VIOLATION
        await still_listens(here)


async def test_a_gap_costs_no_more_than_the_window() -> None:
    """aioquic's own windows double with the highest offset seen, so that one byte a megabyte on would buy memory."""
    window = 256 * 1024
    async with station(window_bytes=window) as here:
        async with bare_client(here.endpoint.port, "alice") as peer:
            await peer.completed()
            peer.send(0, b"x")
            await here.first()
            await here.until(lambda: here.links[0].control == b"x")
            connection = here.links[0].link.connection
            for offset in range(10_000, 4 * window, 50_000):
                leave_gap(peer, offset)
                if peer.find(events.ConnectionTerminated):
                    break
            assert (await ending(peer)).error_code == QuicErrorCode.FLOW_CONTROL_ERROR
            assert connection.quic.reorder_bytes() <= window
        await still_listens(here)


def leave_gap(peer: Bare, offset: int) -> None:
    """Send one byte at an offset, whatever the listener allowed."""
    stream = peer.quic._get_or_create_stream_for_send(0)
    sender = stream.sender
    peer.quic._remote_max_data = stream.max_stream_data_remote = 1 << 40
    sender._buffer = bytearray(b"y")
    sender._buffer_start, sender._buffer_stop = offset, offset + 1
    sender._pending.add(offset, offset + 1)
    sender.buffer_is_empty = False
    peer.transmit()


async def test_a_tls_message_without_an_end_after_the_handshake() -> None:
    async with station() as here:
        async with bare_client(here.endpoint.port, "alice") as peer:
            await peer.completed()
            peer.write_crypto(Epoch.ONE_RTT, b"\x04\xff\xff\xff" + bytes(200_000))
            assert await peer.close_code() == CloseCode.LIMIT
        await still_listens(here)


async def test_a_tls_message_without_an_end_instead_of_a_handshake() -> None:
    async with station() as here:
        async with bare_client(here.endpoint.port, "alice", transmit=False) as peer:
            peer.write_crypto(Epoch.INITIAL, b"\x01\xff\xff\xff" + bytes(200_000), instead=True)
            await here.until(lambda: bool(here.notices))
            assert here.kinds() == ["handshake-failed"]
            await still_listens(here)
        assert not [seen for seen in here.links if seen.link.site == ALICE.site]


async def test_a_peer_that_never_reads_its_control_stream() -> None:
    async with station(control_bytes=100_000) as here:
        async with bare_client(here.endpoint.port, "alice", max_stream_data=1000) as peer:
            await peer.completed()
            peer.send(0, b"hello")
            await here.first()
            await here.until(lambda: here.links[0].control == b"hello")
            for _ in range(101):
                here.links[0].link.send_control(bytes(1000))
            assert await peer.close_code() == CloseCode.LIMIT
        await still_listens(here)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ProtocolError("nonsense"), CloseCode.PROTOCOL_ERROR),
        (ProtocolError("too much", CloseCode.LIMIT), CloseCode.LIMIT),
        (RuntimeError("a bug"), CloseCode.INTERNAL),
    ],
)
async def test_a_node_that_raises_over_bytes_ends_that_link_only(error: Exception, code: CloseCode) -> None:
    def fail(data: bytes) -> None:
        raise error

    async with station() as here:
        here.take = lambda seen: setattr(seen.link, "on_control", fail) if seen.link.site == ALICE.site else None
        async with bare_client(here.endpoint.port, "alice") as peer:
            await peer.completed()
            peer.send(0, b"bytes")
            assert await peer.close_code() == code
        await still_listens(here)
        assert not [link for link in here.endpoint.links() if link.site == ALICE.site]


async def test_a_node_that_raises_over_a_link_ends_that_link_only() -> None:
    def fail(link: Link) -> None:
        raise RuntimeError("a bug")

    async with station() as here:
        here.endpoint.reception._on_link = fail
        async with bare_client(here.endpoint.port, "alice") as peer:
            assert await peer.close_code() == CloseCode.INTERNAL
        here.endpoint.reception._on_link = here.on_link
        await still_listens(here)


async def test_a_node_that_raises_over_admission_or_a_notice_refuses_that_peer_only() -> None:
    def fail(*anything: object) -> Admission:
        raise RuntimeError("a bug")

    async with station() as here:
        here.endpoint.reception._admit = fail
        here.endpoint._notices._on_notice = fail
        async with bare_client(here.endpoint.port, "alice") as peer:
            assert await peer.close_code() == CloseCode.NOT_AUTHENTICATED
        here.endpoint.reception._admit = here.admit
        await still_listens(here)


async def test_a_defect_costs_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*anything: object) -> None:
        raise RuntimeError("a bug")

    async with station() as here:
        async with bare_client(here.endpoint.port, "alice") as peer:
            connection = (await here.first()).link.connection
            monkeypatch.setattr(connection, "_work_off_untrusted", fail)
            peer.send(0, b"x")
            await here.until(lambda: here.links[0].closed is not None)
            assert here.links[0].closed[0] is None
        await still_listens(here)


async def test_a_parser_that_raises_ends_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(connection: Connection) -> None:
        raise KeyError("aioquic met something it did not expect")

    async with station() as here:
        async with bare_client(here.endpoint.port, "alice") as peer:
            await here.until(lambda: bool(here.links))
            monkeypatch.setattr(here.links[0].link.connection.quic, "receive_datagram", fail)
            peer.send(0, b"x")
            assert (await ending(peer)).error_code == QuicErrorCode.PROTOCOL_VIOLATION
            await here.until(lambda: here.links[0].closed is not None)
        await still_listens(here)

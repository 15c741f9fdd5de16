"""What a link does for the node: bytes in order, bounds both ways, and an end that is told once (profile §7)."""

from __future__ import annotations

import asyncio
import socket

import pytest
from aioquic.quic import events
from support.quic import ALICE, BOB, CAROL, FAST, PATIENCE_S, bare_client, cut_off, identity, mute, station

from meshnode.errors import CloseCode, TransportError
from meshnode.net.endpoint import Endpoint
from meshnode.net.endpoint_ports import TOO_MANY_PEERS, Ending, in_words


async def test_bytes_of_both_streams_arrive_in_order_in_both_directions() -> None:
    async with station(CAROL) as carol, station(ALICE) as alice:
        link = await alice.endpoint.dial("127.0.0.1", carol.endpoint.port)
        theirs = (await carol.first()).link
        chunks = [bytes([n]) * (n * 37) for n in range(1, 200)]
        for chunk in chunks:
            link.send_control(chunk)
            link.send_events(chunk[::-1] + b"e")
            theirs.send_events(chunk)
        whole, events_whole = b"".join(chunks), b"".join(chunk[::-1] + b"e" for chunk in chunks)
        await carol.until(lambda: carol.of(theirs).control == whole and carol.of(theirs).events == events_whole)
        await alice.until(lambda: alice.of(link).events == whole)
        theirs.send_control(b"answer")
        await alice.until(lambda: alice.of(link).control == b"answer")


async def test_a_server_may_speak_before_the_client_opened_the_control_stream() -> None:
    async with station(CAROL) as carol, station(ALICE) as alice:
        carol.take = lambda seen: seen.link.send_control(b"hello from the server")
        link = await alice.endpoint.dial("127.0.0.1", carol.endpoint.port)
        theirs = (await carol.first()).link
        assert theirs.buffered == len(b"hello from the server")
        link.send_control(b"hello")
        await alice.until(lambda: alice.of(link).control == b"hello from the server")


async def test_what_is_queued_leaves_before_the_close() -> None:
    async with station(CAROL) as carol, station(ALICE) as alice:
        link = await alice.endpoint.dial("127.0.0.1", carol.endpoint.port)
        link.send_control(b"bye")
        link.close(CloseCode.VERSION, "another version is spoken here")
        theirs = await carol.first()
        await carol.until(lambda: theirs.closed is not None)
        assert theirs.control == b"bye"
        assert theirs.closed == (CloseCode.VERSION, "another version is spoken here", False)
        await alice.until(lambda: alice.of(link).closed is not None)
        assert alice.of(link).closed == (CloseCode.VERSION, "another version is spoken here", True)
        assert not carol.endpoint.links()
        assert not alice.endpoint.links()
        link.send_control(b"nobody hears this")
        link.close()
        assert await link.ping(0.01) is False
        with pytest.raises(TransportError):
            await link.drained()


async def test_a_reason_is_cut_to_what_a_label_may_have() -> None:
    async with station() as here, bare_client(here.endpoint.port, "alice") as peer:
        (await here.first()).link.close(CloseCode.INTERNAL, "ü" * 100)
        assert await peer.close_code() == CloseCode.INTERNAL
        assert peer.find(events.ConnectionTerminated).reason_phrase == "ü" * 64


async def test_buffered_counts_what_is_unacknowledged_and_drained_waits_for_it() -> None:
    async with station(CAROL) as carol, station(ALICE) as alice:
        link = await alice.endpoint.dial("127.0.0.1", carol.endpoint.port)
        link.send_events(bytes(1_000_000))
        assert link.buffered == 1_000_000
        await link.drained(500_000)
        assert link.buffered <= 500_000
        assert len(carol.links[0].events) >= 500_000
        await link.drained(0)
        assert link.buffered == 0
        assert len(carol.links[0].events) == 1_000_000


async def test_a_paused_link_lets_the_peer_send_one_window_and_no_more() -> None:
    window = 128 * 1024
    async with station(CAROL, window_bytes=window) as carol, station(ALICE) as alice:
        carol.take = lambda seen: seen.link.pause()
        link = await alice.endpoint.dial("127.0.0.1", carol.endpoint.port)
        theirs = await carol.first()
        link.send_events(bytes(10 * window))
        await carol.until(lambda: len(theirs.events) == window)
        assert await link.ping(PATIENCE_S)  # a round trip later there is still no more
        assert len(theirs.events) == window
        theirs.link.resume()
        await carol.until(lambda: len(theirs.events) == 10 * window)


async def test_a_transfer_many_times_the_window_costs_no_growing_window() -> None:
    window = 64 * 1024
    async with station(CAROL, window_bytes=window) as carol, station(ALICE) as alice:
        link = await alice.endpoint.dial("127.0.0.1", carol.endpoint.port)
        theirs = await carol.first()
        for _ in range(20):
            link.send_events(bytes(window))
            await link.drained(window)
        await link.drained(0)
        assert len(theirs.events) == 20 * window
        limit = theirs.link.connection.quic.receive_window
        assert limit.value - limit.used <= window


async def test_ping() -> None:
    async with station(CAROL) as carol, station(ALICE) as alice:
        link = await alice.endpoint.dial("127.0.0.1", carol.endpoint.port)
        assert await link.ping(PATIENCE_S)
        assert await carol.links[0].link.ping(PATIENCE_S)


async def test_a_silent_link_is_lost_in_time() -> None:
    """Keep-alive after 0.1 s, lost 0.2 s later: the profile's 15 s and 45 s, scaled."""
    async with station(CAROL, keep_alive_s=0.1, silence_s=0.3) as carol, station(ALICE) as alice:
        await alice.endpoint.dial("127.0.0.1", carol.endpoint.port)
        theirs = await carol.first()
        began = asyncio.get_running_loop().time()
        cut_off(alice.endpoint)
        await carol.until(lambda: theirs.closed is not None)
        took = asyncio.get_running_loop().time() - began
        assert theirs.closed[0] is None
        assert theirs.closed[2]
        # Three probe timeouts are QUIC's own minimum, which on loopback is below the bound.
        assert took < 5
        assert not carol.endpoint.links()


async def test_keep_alive_keeps_a_link_that_says_nothing() -> None:
    async with (
        station(CAROL, keep_alive_s=0.1, silence_s=1.1) as carol,
        station(ALICE, keep_alive_s=0.1, silence_s=1.1) as alice,
    ):
        link = await alice.endpoint.dial("127.0.0.1", carol.endpoint.port)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5):
                await alice.until(lambda: alice.of(link).closed is not None)
        assert await link.ping(PATIENCE_S)


async def test_a_close_that_was_lost_is_said_again() -> None:
    async with station(CAROL) as carol, station(ALICE) as alice:
        link = await alice.endpoint.dial("127.0.0.1", carol.endpoint.port)
        theirs = await carol.first()
        with mute(carol.endpoint):
            theirs.link.close(CloseCode.VERSION, "lost")
            await carol.until(lambda: theirs.closed is not None)
        link.send_control(b"are you there?")
        await alice.until(lambda: alice.of(link).closed is not None)
        assert alice.of(link).closed == (CloseCode.VERSION, "lost", False)


async def test_an_unknown_close_code_is_no_code() -> None:
    async with station() as here, bare_client(here.endpoint.port, "alice") as peer:
        await here.first()
        peer.quic.close(error_code=4711)
        peer.transmit()
        await here.until(lambda: here.links[0].closed is not None)
        assert here.links[0].closed == (None, "it closed with code 4711, which this release does not know", False)


async def test_dialing_nobody_fails_in_time() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        async with station(handshake_s=0.2) as here:
            with pytest.raises(TransportError, match="no answer") as failure:
                await here.endpoint.dial("127.0.0.1", silent.getsockname()[1])
            assert failure.value.code is None
            assert not here.endpoint._connections


async def test_a_dial_that_is_cancelled_leaves_nothing() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        async with station() as here:
            dialing = asyncio.create_task(here.endpoint.dial("127.0.0.1", silent.getsockname()[1]))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            dialing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await dialing
            assert not here.endpoint._connections


async def test_dialing_names_and_addresses_that_do_not_exist() -> None:
    async with station() as here:
        with pytest.raises(
            TransportError, match=r"^[a-z.:0-9-]+: (there is no host of that name|the name could not be)"
        ):
            await here.endpoint.dial("no-such-host.invalid", 4747)
        with pytest.raises(TransportError, match="no address"):
            await here.endpoint.dial("::1", 4747)


async def test_shutting_down_tells_every_peer() -> None:
    async with station(ALICE) as alice, station(BOB) as bob:
        async with station(CAROL) as carol:
            links = [await where.endpoint.dial("127.0.0.1", carol.endpoint.port) for where in (alice, bob)]
            port = carol.endpoint.port
            await carol.endpoint.close()
            for where, link in zip((alice, bob), links, strict=True):
                await where.until(lambda where=where, link=link: where.of(link).closed is not None)
                assert where.of(link).closed == (CloseCode.SHUTTING_DOWN, "shutting down", False)
            assert [seen.closed[0] for seen in carol.links] == [CloseCode.SHUTTING_DOWN] * 2
            with pytest.raises(TransportError):
                await carol.endpoint.dial("127.0.0.1", alice.endpoint.port)
        async with station(BOB) as again:
            assert port
            assert again.endpoint.port


async def test_a_port_that_is_taken_is_one_clear_error() -> None:
    async with station() as here:
        with pytest.raises(TransportError, match=f"UDP port {here.endpoint.port} cannot be used"):
            await Endpoint.create(
                "127.0.0.1",
                here.endpoint.port,
                identity=identity(BOB),
                admit=here.admit,
                on_link=here.on_link,
                on_notice=here.on_notice,
                config=FAST,
            )


@pytest.mark.parametrize(
    ("ending", "says"),
    [
        (Ending(CloseCode.LIMIT, TOO_MANY_PEERS, True), "this node has as many links as it may (max_links)"),
        (Ending(CloseCode.LIMIT, TOO_MANY_PEERS, False), "it has as many links as it takes (its max_links)"),
        (Ending(CloseCode.LIMIT, "too many strangers", False), "refused: too many strangers"),
        (Ending(CloseCode.SHUTTING_DOWN, "", False), "refused: shutting down"),
    ],
    ids=["ours", "theirs", "another", "without a word"],
)
def test_whose_limit_it_was_is_told(ending: Ending, says: str) -> None:
    assert in_words(ending) == says

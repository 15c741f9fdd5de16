"""The bounds of an endpoint, each driven to its edge (profile §7, §12)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from aioquic.quic import events
from support.quic import ALICE, BOB, CAROL, PATIENCE_S, STRANGER, Bare, Station, bare_client, station

from meshnode import limits
from meshnode.errors import CloseCode, TransportError
from meshnode.model.site import SiteKey
from meshnode.net.endpoint import EndpointConfig
from meshnode.net.endpoint_notices import NoticeBoard

CROWD = [SiteKey.from_seed(bytes([n]) * 32) for n in range(1, 8)]


def test_the_defaults_are_the_profiles() -> None:
    config = EndpointConfig()
    assert (config.live_links, config.handshakes) == (64, 64)
    assert (config.handshake_s, config.keep_alive_s, config.silence_s, config.duplicate_ping_s) == (10, 15, 45, 2)
    assert config.idle_s + config.keep_alive_s == config.silence_s
    assert (limits.DATAGRAM_BYTES, min(config.datagram_sizes)) == (1200, 1232)


async def begin(stack: AsyncExitStack, here: Station, *, proven: bool = False) -> Bare:
    """A client that sends its first flight and never answers again, but a Retry where its address is to be proven."""
    peer = await stack.enter_async_context(bare_client(here.endpoint.port, "stranger", transmit=False))
    received = peer.datagram_received

    def only_retry(data: bytes, addr: tuple[str, int]) -> None:
        if proven and data[0] & 0xF0 == 0xF0:
            received(data, addr)
            peer._timer.cancel()

    peer.datagram_received = only_retry
    peer.transmit()
    peer._timer.cancel()
    return peer


async def half_handshakes(stack: AsyncExitStack, here: Station, number: int, *, proven: bool = False) -> None:
    """As many that the listener waits for."""
    for _ in range(number):
        await begin(stack, here, proven=proven)
    async with asyncio.timeout(PATIENCE_S):
        while here.endpoint.reception.handshaking < number:  # noqa: ASYNC110 - nothing reports a half handshake
            await asyncio.sleep(0)


async def test_half_a_handshake_is_given_up() -> None:
    async with station(handshake_s=0.2) as here, AsyncExitStack() as stack:
        await half_handshakes(stack, here, 1)
        await here.until(lambda: here.endpoint.reception.handshaking == 0)
        assert not here.endpoint._connections
        assert not here.endpoint._by_id
        assert here.kinds() == ["handshake-failed"]


async def test_from_the_threshold_on_a_new_connection_must_answer_a_retry() -> None:
    async with station(retry_from=3) as here, AsyncExitStack() as stack:
        await half_handshakes(stack, here, 2)
        async with bare_client(here.endpoint.port, "alice") as peer:
            await peer.completed()
            assert peer.quic._retry_count == 0
        await half_handshakes(stack, here, 3)
        # A spoofed source never answers the Retry, and so leaves nothing behind.
        await begin(stack, here)
        async with bare_client(here.endpoint.port, "bob") as peer:
            await peer.completed()
            assert peer.quic._retry_count == 1
            await here.until(lambda: any(seen.link.site == BOB.site for seen in here.links))
        assert here.endpoint.reception.handshaking == 3


async def test_our_own_dialer_answers_a_retry() -> None:
    async with station(CAROL, retry_from=0) as carol, station(ALICE) as alice:
        link = await alice.endpoint.dial("127.0.0.1", carol.endpoint.port)
        assert link.connection.quic._retry_count == 1


async def test_a_token_of_another_is_worth_nothing() -> None:
    async with station() as here, AsyncExitStack() as stack:
        peer = await stack.enter_async_context(bare_client(here.endpoint.port, "alice", transmit=False))
        peer.quic._peer_token = b"a token from somewhere else"
        peer.transmit()
        async with bare_client(here.endpoint.port, "bob"):
            await here.first()
        assert here.endpoint.reception.handshaking == 0
        assert peer.find(events.HandshakeCompleted) is None


async def test_a_flood_of_handshakes_keeps_no_member_out() -> None:
    async with station(handshakes=4, retry_from=100) as here, AsyncExitStack() as stack:
        await half_handshakes(stack, here, 4)
        for _ in range(10):
            await begin(stack, here)
        async with bare_client(here.endpoint.port, "alice") as peer:
            await peer.completed()
            peer.send(0, b"through")
            await here.first()
            await here.until(lambda: here.links[0].control == b"through")
        assert here.endpoint.reception.handshaking <= 4
        assert here.kinds().count("handshakes") == 1


async def test_a_crowd_from_one_address_is_bounded_and_keeps_out_no_other() -> None:
    """`127.0.0.2` is another host as far as QUIC can tell."""
    async with station(retry_from=0, handshakes_per_address=3) as here, AsyncExitStack() as stack:
        await half_handshakes(stack, here, 3, proven=True)
        late = await begin(stack, here, proven=True)
        async with bare_client(here.endpoint.port, "alice", local="127.0.0.2") as peer:
            await peer.completed()
            await here.first()
        assert here.endpoint.reception.handshaking == 3
        assert late.quic._retry_count == 0, "it is not even asked again"


async def test_an_address_is_not_crowded_by_what_others_send_in_its_name() -> None:
    async with (
        station(retry_from=3, handshakes_per_address=3, handshake_s=2 * PATIENCE_S) as here,
        AsyncExitStack() as stack,
    ):
        await half_handshakes(stack, here, 3)
        async with bare_client(here.endpoint.port, "alice") as peer:
            await peer.completed()
            await here.first()


async def test_of_too_many_the_oldest_of_the_largest_crowd_gives_way() -> None:
    async with station(retry_from=0, handshakes=4) as here, AsyncExitStack() as stack:
        alone = await stack.enter_async_context(
            bare_client(here.endpoint.port, "stranger", local="127.0.0.2", transmit=False)
        )
        received = alone.datagram_received
        alone.datagram_received = lambda data, addr: received(data, addr) if alone.quic._retry_count == 0 else None
        alone.transmit()
        async with asyncio.timeout(PATIENCE_S):
            while here.endpoint.reception.handshaking < 1:  # noqa: ASYNC110 - nothing reports a half handshake
                await asyncio.sleep(0)
        (first,) = here.endpoint.reception._strangers
        await half_handshakes(stack, here, 4, proven=True)
        oldest = list(here.endpoint.reception._strangers)[1]
        await begin(stack, here, proven=True)
        async with asyncio.timeout(PATIENCE_S):
            while oldest in here.endpoint.reception._strangers:  # noqa: ASYNC110 - likewise
                await asyncio.sleep(0)
        assert first in here.endpoint.reception._strangers
        assert here.endpoint.reception.handshaking == 4


async def test_strangers_that_stay_give_way_too() -> None:
    async with (
        station(introduce_s=PATIENCE_S, handshakes=1) as here,
        bare_client(here.endpoint.port, "stranger") as first,
    ):
        await here.first()
        async with bare_client(here.endpoint.port, "alice") as second:
            assert await first.close_code() == CloseCode.LIMIT
            await second.completed()


async def test_live_links_are_bounded_and_the_next_peer_is_told() -> None:
    members = (CAROL, ALICE, BOB, *CROWD)
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(station(CAROL, members=members, live_links=3))
        links = []
        for key in CROWD[:3]:
            peer = await stack.enter_async_context(station(key, members=members))
            links.append((peer, await peer.endpoint.dial("127.0.0.1", here.endpoint.port)))
        await here.until(lambda: len(here.endpoint.links()) == 3)
        async with bare_client(here.endpoint.port, "alice") as one_too_many:
            assert await one_too_many.close_code() == CloseCode.LIMIT
        assert here.notices[0][:2] == ("too-many-peers", ALICE.site)
        # A peer that already has its link may make a new one.
        await links[0][0].endpoint.dial("127.0.0.1", here.endpoint.port)
        assert len(here.endpoint.links()) == 3
        # A dialer that is full learns it from its own side.
        async with station(BOB, members=members) as bob:
            with pytest.raises(TransportError) as refusal:
                await here.endpoint.dial("127.0.0.1", bob.endpoint.port)
            assert refusal.value.code is CloseCode.LIMIT
            assert refusal.value.ours
            assert "this node has as many links as it may (max_links)" in str(refusal.value)


async def test_where_links_yield_the_farthest_gives_its_place_to_a_neighbour() -> None:
    members = sorted(CROWD, key=lambda key: key.site)
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(station(members[3], members=members, live_links=2, yields=True))
        peers = {at: await stack.enter_async_context(station(members[at], members=members)) for at in (0, 2, 4, 6)}
        links = {at: await peers[at].endpoint.dial("127.0.0.1", here.endpoint.port) for at in (0, 6, 2)}
        await peers[0].until(lambda: peers[0].of(links[0]).closed is not None)
        assert peers[0].of(links[0]).closed[0] is CloseCode.LIMIT
        with pytest.raises(TransportError) as refusal:
            await here.endpoint.dial("127.0.0.1", peers[0].endpoint.port)
        assert (refusal.value.code, refusal.value.site) == (CloseCode.LIMIT, members[0].site)
        await here.endpoint.dial("127.0.0.1", peers[4].endpoint.port)
        await peers[6].until(lambda: peers[6].of(links[6]).closed is not None)
        assert {link.site for link in here.endpoint.links()} == {members[2].site, members[4].site}
        here.endpoint.allow_links(3)
        links[6] = await peers[6].endpoint.dial("127.0.0.1", here.endpoint.port)
        await here.until(lambda: len(here.endpoint.links()) == 3)
        here.endpoint.allow_links(2)
        await peers[6].until(lambda: peers[6].of(links[6]).closed is not None)
        assert {link.site for link in here.endpoint.links()} == {members[2].site, members[4].site}
        assert here.notices == [], "few links are no condition to be told about"


async def test_packets_that_are_never_acknowledged_are_bounded() -> None:
    async with station(kept_packets=20) as here, bare_client(here.endpoint.port, "alice") as peer:
        await here.first()
        peer.quic._write_ack_frame = lambda *args, **kwargs: None
        for number in range(200):
            peer.quic.send_ping(number)
            peer.transmit()
            # One answer a packet: pings that arrive together are answered together, and keep fewer packets.
            await peer.until(lambda number=number: answered(peer) > number or terminated(peer))
            if terminated(peer):
                break
        assert await peer.close_code() == CloseCode.LIMIT


def terminated(peer: Bare) -> bool:
    """Whether the connection is over."""
    return peer.find(events.ConnectionTerminated) is not None


async def test_a_peer_that_only_ever_pings_is_asked_to_acknowledge_now_and_then() -> None:
    async with station(kept_packets=40) as here, bare_client(here.endpoint.port, "alice") as peer:
        link = (await here.first()).link
        for number in range(200):
            peer.quic.send_ping(number)
            peer.transmit()
            await peer.until(lambda number=number: answered(peer) > number)
            assert link.connection.quic.kept_packets <= 40
        assert not link.closed


def answered(peer: Bare) -> int:
    """PINGs that the listener acknowledged."""
    return sum(isinstance(event, events.PingAcknowledged) for event in peer.events)


async def test_a_peer_that_fails_again_and_again_is_one_notice() -> None:
    async with station() as here:
        for _ in range(5):
            async with bare_client(here.endpoint.port, None) as peer:
                assert await peer.close_code() == CloseCode.NOT_AUTHENTICATED
        assert here.kinds() == ["not-authenticated"]


def test_notices_say_how_many_they_stand_for_and_are_bounded() -> None:
    now = [0.0]
    posted: list[tuple[str, bytes | None, str]] = []
    board = NoticeBoard(lambda *notice: posted.append(notice), lambda: now[0], 60)
    for _ in range(4):
        board.post("not-authenticated", "198.51.100.7", "who is that")
    assert posted == [("not-authenticated", None, "who is that")]
    now[0] = 60.0
    board.post("not-authenticated", "198.51.100.7", "who is that")
    assert posted[1][2] == "who is that (and 3 more like it)"
    board.post("retired", STRANGER.site, "retired")
    assert posted[2] == ("retired", STRANGER.site, "retired")
    for number in range(10_000):
        board.post("not-authenticated", f"host {number}", "flood")
    assert len(posted) <= limits.NOTICE_SUBJECTS + 5
    assert len(board._seen) <= limits.NOTICE_SUBJECTS + 5
    now[0] = 1_000.0
    board.post("not-authenticated", "a new host", "again")
    assert posted[-1][2] == "again"
    assert len(board._seen) <= 5

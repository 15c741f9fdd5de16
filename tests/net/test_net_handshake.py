"""Who gets in: each refusal ends in its close code, and the listener lives on (profile §7)."""

from __future__ import annotations

import asyncio

import pytest
from aioquic.quic import events
from aioquic.tls import SessionTicket
from support.quic import (
    ALICE,
    BOB,
    CAROL,
    PATIENCE_S,
    STRANGER,
    Seen,
    Station,
    bare_client,
    bare_configuration,
    bare_server,
    identity,
    station,
)

from meshnode.errors import CloseCode, TransportError
from meshnode.net.endpoint import ALPN_PAIRING, ALPN_SYNC
from meshnode.net.quic_words import quic_words

BAD_CERTIFICATES = [
    "no-binding",
    "signed-by-another-key",
    "lifted-from-alice",
    "other-mesh",
    "garbage-binding",
    "empty-binding",
    "two-certificates",
]


async def still_listens(here: Station) -> None:
    """A member gets in and is heard."""
    async with bare_client(here.endpoint.port, "bob") as bob:
        await bob.completed()
        bob.send(0, b"hello")
        await here.until(lambda: any(seen.link.site == BOB.site and seen.control == b"hello" for seen in here.links))


async def test_a_member_gets_in_and_both_sides_know_who_it_is() -> None:
    async with station(CAROL) as carol, station(ALICE) as alice:
        link = await alice.endpoint.dial("127.0.0.1", carol.endpoint.port, expect_site=CAROL.site)
        theirs = carol.links[0].link
        assert (link.site, link.public_key, link.opened_by_us, link.alpn) == (
            CAROL.site,
            CAROL.public_key,
            True,
            ALPN_SYNC,
        )
        assert (theirs.site, theirs.public_key, theirs.opened_by_us) == (ALICE.site, ALICE.public_key, False)
        assert (link.spki, link.own_spki) == (theirs.own_spki, theirs.spki)
        assert link.admitted
        assert link.live
        assert theirs.live
        assert link.remote_address == f"127.0.0.1:{carol.endpoint.port}"


async def test_no_client_certificate() -> None:
    async with station() as here:
        async with bare_client(here.endpoint.port, None) as peer:
            assert await peer.close_code() == CloseCode.NOT_AUTHENTICATED
        assert here.kinds() == ["not-authenticated"]
        assert not here.links
        await still_listens(here)


@pytest.mark.parametrize("fixture", BAD_CERTIFICATES)
async def test_bad_client_certificates(fixture: str) -> None:
    async with station() as here:
        async with bare_client(here.endpoint.port, fixture) as peer:
            assert await peer.close_code() == CloseCode.NOT_AUTHENTICATED
        assert here.kinds() == ["not-authenticated"]
        assert not here.links
        await still_listens(here)


@pytest.mark.parametrize("fixture", BAD_CERTIFICATES)
async def test_bad_server_certificates_are_refused_by_the_dialer_and_the_server_learns_the_code(fixture: str) -> None:
    async with station() as here, bare_server(fixture) as (port, accepted):
        with pytest.raises(TransportError) as refusal:
            await here.endpoint.dial("127.0.0.1", port)
        assert refusal.value.code is CloseCode.NOT_AUTHENTICATED
        assert await accepted[0].close_code() == CloseCode.NOT_AUTHENTICATED
        assert not here.links


async def test_a_dialer_requires_the_site_it_expects() -> None:
    async with station() as here, bare_server("bob") as (port, accepted):
        with pytest.raises(TransportError, match="another site") as refusal:
            await here.endpoint.dial("127.0.0.1", port, expect_site=ALICE.site)
        assert (refusal.value.code, refusal.value.site) == (CloseCode.NOT_AUTHENTICATED, BOB.site)
        assert await accepted[0].close_code() == CloseCode.NOT_AUTHENTICATED


async def test_an_unknown_site_that_does_not_introduce_itself_is_no_member() -> None:
    async with station() as here:
        async with bare_client(here.endpoint.port, "stranger") as peer:
            assert await peer.close_code() == CloseCode.NOT_A_MEMBER
        await here.until(lambda: bool(here.notices))
        assert here.notices[0][:2] == ("not-a-member", STRANGER.site)
        assert not here.links[0].link.admitted
        await still_listens(here)


async def test_a_dialer_learns_that_it_is_no_member() -> None:
    async with station(CAROL, members=(CAROL,)) as carol, station(ALICE) as alice:
        link = await alice.endpoint.dial("127.0.0.1", carol.endpoint.port)
        await alice.until(lambda: alice.of(link).closed is not None)
        assert alice.of(link).closed[0] is CloseCode.NOT_A_MEMBER


async def test_an_introduction_reaches_the_node_which_admits() -> None:
    async with station(introduce_s=2.0) as here:

        def admit_on_word(seen: Seen) -> None:
            seen.link.on_control = lambda data: seen.link.admit() if data == b"introduce" else None

        here.take = admit_on_word
        async with bare_client(here.endpoint.port, "stranger") as peer:
            await peer.completed()
            peer.send(0, b"introduce")
            await here.until(lambda: bool(here.links) and here.links[0].link.live)
            link = here.links[0].link
            link.send_control(b"welcome")
            await peer.until(lambda: peer.received.get(0) == b"welcome")
            assert here.endpoint.link_to(STRANGER.site) is link
            peer.send(2, b"events")
            peer.send(0, b"!")
        # Admitted, so the time that a stranger has does not end it: only the peer's own close does.
        await here.until(lambda: here.links[0].closed is not None)
        assert here.links[0].closed[0] is CloseCode.DONE
        assert not here.notices


async def test_nothing_but_control_is_read_from_a_site_that_is_no_member() -> None:
    async with station(introduce_s=PATIENCE_S) as here, bare_client(here.endpoint.port, "stranger") as peer:
        await peer.completed()
        peer.send(2, b"events")
        assert await peer.close_code() == CloseCode.NOT_A_MEMBER
        assert not here.links[0].events


async def test_an_introduction_is_bounded() -> None:
    async with station(introduce_s=PATIENCE_S) as here, bare_client(here.endpoint.port, "stranger") as peer:
        await peer.completed()
        peer.send(0, bytes(200_000))
        assert await peer.close_code() == CloseCode.NOT_A_MEMBER
        assert len(here.links[0].control) <= 140_000


async def test_a_retired_site() -> None:
    async with station() as here:
        here.retired.add(ALICE.site)
        async with bare_client(here.endpoint.port, "alice") as peer:
            assert await peer.close_code() == CloseCode.RETIRED
        assert here.notices[0][:2] == ("retired", ALICE.site)
        await still_listens(here)


async def test_a_site_retired_while_it_is_linked() -> None:
    async with station() as here, bare_client(here.endpoint.port, "alice") as peer:
        await here.until(lambda: bool(here.links))
        here.endpoint.recheck()
        here.retired.add(ALICE.site)
        here.endpoint.recheck()
        assert await peer.close_code() == CloseCode.RETIRED


@pytest.mark.parametrize("alpn", ["h3", "ssp/2", "ssp-near/1", None])
async def test_a_wrong_alpn_fails_the_handshake_for_both(alpn: str | None) -> None:
    configuration = bare_configuration("alice")
    configuration.alpn_protocols = None if alpn is None else [alpn]
    async with station() as here:
        async with bare_client(here.endpoint.port, None, configuration=configuration) as peer:
            await peer.until(lambda: peer.find(events.ConnectionTerminated) is not None)
            assert peer.find(events.HandshakeCompleted) is None
        assert not here.links
        assert here.kinds() == ["handshake-failed"]
        await still_listens(here)


async def test_a_dial_that_its_dialer_gives_up_is_no_notice() -> None:
    """Addresses of one node are raced, and the others given up: nothing went wrong."""
    async with station() as here, station(BOB) as bob, asyncio.timeout(PATIENCE_S):
        here.endpoint._socket.send_all = lambda flight: []  # type: ignore[method-assign]  # its answers are late
        dial = asyncio.create_task(bob.endpoint.dial("127.0.0.1", here.endpoint.port))
        while not here.endpoint.reception.handshaking:  # noqa: ASYNC110 - nothing reports a half handshake
            await asyncio.sleep(0)
        dial.cancel()
        await asyncio.wait({dial})
        while here.endpoint.reception.handshaking:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert here.kinds() == []


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (0xC, "it gave up before the connection was up (QUIC error 0xc)"),
        (0x7, "it broke off (QUIC error 0x7): if it is a device of yours, bring both devices to the same release"),
        (0x178, "it speaks another protocol, or another version of this one: bring both devices"),
        (0x105, "it broke off (TLS alert 5): if it is"),
    ],
)
def test_errors_of_the_transport_are_words(error: int, says: str) -> None:
    assert quic_words(error).startswith(says)


async def test_a_server_with_another_alpn_is_no_peer() -> None:
    async with station() as here, bare_server("bob", alpn="h3") as (port, _):
        with pytest.raises(TransportError) as refusal:
            await here.endpoint.dial("127.0.0.1", port)
        assert refusal.value.code is None
        assert not here.links


async def test_pairing_is_refused_while_no_invite_is_open() -> None:
    async with station() as here, bare_client(here.endpoint.port, "stranger", alpn=ALPN_PAIRING) as peer:
        assert await peer.close_code() == CloseCode.NOT_AUTHENTICATED
        assert not here.links


async def test_pairing_links_have_one_stream_and_are_no_live_links() -> None:
    async with station(CAROL) as carol, station(STRANGER, members=()) as joiner:
        carol.pairing = True
        link = await joiner.endpoint.dial("127.0.0.1", carol.endpoint.port, alpn=ALPN_PAIRING, expect_site=CAROL.site)
        link.send_control(b"pair-hello")
        await carol.until(lambda: bool(carol.links) and carol.links[0].control == b"pair-hello")
        assert not carol.endpoint.links()
        carol.links[0].link.send_control(b"pair-open")
        await joiner.until(lambda: joiner.of(link).control == b"pair-open")
        link.send_events(b"not in this protocol")
        await joiner.until(lambda: joiner.of(link).closed is not None)
        assert joiner.of(link).closed[0] is CloseCode.PROTOCOL_ERROR


async def test_a_ceremony_does_not_last_for_ever() -> None:
    async with station(pairing_s=0.1) as here:
        here.pairing = True
        async with bare_client(here.endpoint.port, "stranger", alpn=ALPN_PAIRING) as peer:
            assert await peer.close_code() == CloseCode.NOT_AUTHENTICATED


async def test_a_resumed_session_is_a_full_handshake_and_so_needs_a_certificate() -> None:
    tickets: list[SessionTicket] = []
    async with (
        bare_server("bob", gives_tickets=True) as (port, _),
        bare_client(port, "alice", tickets=tickets) as first,
    ):
        await first.completed()
        await first.until(lambda: bool(tickets))
    async with station() as here:
        resuming = bare_configuration(None)
        resuming.session_ticket = tickets[0]
        async with bare_client(here.endpoint.port, None, configuration=resuming) as peer:
            peer.send(0, b"early data")
            assert await peer.close_code() == CloseCode.NOT_AUTHENTICATED
            done = peer.find(events.HandshakeCompleted)
            assert not done.session_resumed
            assert not done.early_data_accepted
        assert not here.links
        await still_listens(here)


async def test_the_listener_gives_no_session_tickets() -> None:
    tickets: list[SessionTicket] = []
    async with station() as here, bare_client(here.endpoint.port, "alice", tickets=tickets) as peer:
        await here.until(lambda: bool(here.links))
        here.links[0].link.send_events(b"something after the handshake")
        await peer.until(lambda: bool(peer.received.get(3)))
        assert not tickets


async def test_a_node_that_dials_itself_notices() -> None:
    async with station(ALICE) as here:
        with pytest.raises(TransportError, match="itself") as refusal:
            await here.endpoint.dial("127.0.0.1", here.endpoint.port)
        assert refusal.value.code is CloseCode.DUPLICATE
        assert not here.endpoint.links()


async def test_a_copy_of_a_node_that_meets_the_original_is_a_twin() -> None:
    async with station(ALICE) as one, station(ALICE) as other:
        with pytest.raises(TransportError) as refusal:
            await one.endpoint.dial("127.0.0.1", other.endpoint.port)
        assert refusal.value.code is CloseCode.TWIN
        assert one.kinds() == ["twin"]


async def test_a_fresh_tls_key_each_start_and_nothing_secret_in_a_repr() -> None:
    first, second = identity(ALICE), identity(ALICE)
    assert first.spki != second.spki
    assert "secret" not in repr(first)
    assert "tls_key" not in repr(first)

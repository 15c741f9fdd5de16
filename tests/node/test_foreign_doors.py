"""The node's doors, seen by an independent peer: handshake, links and pairing (profile §7, §10)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aioquic.quic.packet import QuicErrorCode, QuicProtocolVersion
from aioquic.tls import AlertDescription
from support.foreign_bytes import Site, encode, framed, now_ms
from support.foreign_node import Here, running
from support.foreign_pairing import pair, pairing
from support.foreign_peer import Foreigner, Link
from support.foreign_wire import Certificate, Listener, bound_site, certificate_for, connection, listener

from meshnode.limits import INVITE_TRIES, SILENCE_S


def _is_ended_by_tls(wire: Any, alert: AlertDescription) -> bool:
    return wire.ended is not None and wire.ended.error_code == QuicErrorCode.CRYPTO_ERROR + int(alert)


def _certificates(peer: Foreigner, member: Foreigner) -> dict[str, list[Certificate]]:
    """Certificates that authenticate nobody."""
    site, mesh = peer.site, peer.mesh
    other = Site(os.urandom(32))
    own = certificate_for(site, mesh)
    lifted = certificate_for(member.site, mesh)
    value = next(each.value.value for each in lifted.certificate.extensions)  # type: ignore[attr-defined]
    return {
        "none": [],
        "two": [own, certificate_for(site, mesh)],
        "another mesh": [certificate_for(site, bytes(16))],
        "without binding": [certificate_for(site, mesh, binding=None)],
        "garbage for a binding": [certificate_for(site, mesh, binding=b"garbage")],
        "lifted binding": [certificate_for(site, mesh, binding=value)],
        "another transport": [certificate_for(site, mesh, transport="tcp")],
        "another public key": [certificate_for(site, mesh, public_key=other.public_key)],
        "another spki": [certificate_for(site, mesh, spki=bytes(32))],
        "more in the binding": [certificate_for(site, mesh, more=1)],
        "an issued that is none": [certificate_for(site, mesh, issued="now")],
        "binding of a record's type": [
            certificate_for(site, mesh, binding=site.vouch(mesh, site, (now_ms(), 0))),
        ],
    }


async def test_who_does_not_authenticate_gets_code_2(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer, member = await here.member(), await here.member()
        for case, certificates in _certificates(peer, member).items():
            async with connection(here.port, *certificates) as wire:
                assert (await wire.end())[0] == 2, case
                assert not wire.received, f"{case}: something was said to a stranger"
        async with peer.greeted(here.port):
            pass


async def test_the_kind_of_tls_key_and_dates_do_not_matter(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.dial(here.port, peer.certificate(ed25519=True)) as link:
            link.hello()
            await link.greeting()


async def test_another_alpn_fails_the_handshake(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        for alpn in ("h3", "ssp/2", "ssp-near/1"):
            async with connection(here.port, peer.certificate(), alpn=alpn, handshake=False) as wire:
                await wire.until(lambda wire=wire: wire.ended is not None, despite_end=True)  # type: ignore[misc]
                assert _is_ended_by_tls(wire, AlertDescription.no_application_protocol), (alpn, wire.ended)


async def test_the_nodes_side_of_the_handshake(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            quic = link.wire.quic
            assert link.wire.alpn == "ssp/1"
            assert quic._version == QuicProtocolVersion.VERSION_1
            assert bound_site(link.wire.peer_certificate, peer.mesh)[0] == peer.node
            assert quic._remote_max_idle_timeout <= SILENCE_S, "a silent connection is found within 45 s"
            assert quic.tls._certificate_request is not None, "a certificate is required of the client"
            first = link.wire.peer_certificate
            await link.wire.ping()
        async with peer.greeted(here.port) as link:
            assert link.wire.peer_certificate == first, "one TLS key per start"
    async with running(tmp_path) as here, peer.greeted(here.port) as link:
        assert link.wire.peer_certificate != first


async def test_a_site_that_nobody_knows_is_not_a_member(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        stranger = Foreigner(Site(os.urandom(32)), mesh=peer.mesh, node=peer.node)
        introductions: dict[str, Callable[[Link], object]] = {
            "hello": lambda link: link.hello(),
            "nothing that admits": lambda link: link.say({"t": "introduce", "records": []}),
            "its own vouch": lambda link: link.say(
                {"t": "introduce", "records": [stranger.site.vouch(peer.mesh, stranger.site, stranger.hlc())]}
            ),
            "a member's vouch": lambda link: link.say(
                {"t": "introduce", "records": [peer.site.vouch(peer.mesh, stranger.site, stranger.hlc())]}
            ),
        }
        for case, introduce in introductions.items():
            async with stranger.dial(here.port) as link:
                introduce(link)
                assert (await link.wire.end())[0] == 3, case
                assert not link.wire.received.get(3), f"{case}: events went to a stranger"


async def test_a_site_not_yet_known_introduces_itself(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.put("a")
        peer = await here.member()
        founder = here.recovery()
        for records in (
            lambda new: [founder.vouch(peer.mesh, new.site, peer.hlc())],
            lambda new: _chain(peer, founder, new),
        ):
            new = Foreigner(Site(os.urandom(32)), "new", peer.mesh, peer.node, peer.founder, dict(peer.keys))
            async with new.dial(here.port) as link:
                link.say({"t": "introduce", "records": records(new)})
                link.hello()
                await link.greeting()
                assert len(link.events_in(await link.took_until("batch"))) >= 1
                link.open()
                ack = await link.offered(new.event({"id": "new"}, {"title": "mine"}))
                assert (ack["rejected"], ack["held"], ack["dropped"]) == ([], 0, 0)
            async with new.greeted(here.port):
                pass  # it is known from now on


def _chain(peer: Foreigner, founder: Site, new: Foreigner) -> list[bytes]:
    """Records of an authority nobody heard of, and its vouch, in an order that does not help."""
    authority = Site(os.urandom(32))
    chain = [
        founder.vouch(peer.mesh, authority, peer.hlc()),
        founder.role(peer.mesh, authority, "authority", peer.hlc()),
        authority.vouch(peer.mesh, new.site, peer.hlc()),
    ]
    return chain[::-1]


async def test_a_member_may_introduce_itself_too(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.dial(here.port) as link:
            link.say({"t": "introduce", "records": peer.records})
            link.hello()
            await link.greeting()
            link.open()
            await link.offered(peer.event({"id": "a"}, {}))


async def test_an_introduction_is_at_most_64_kib(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        stranger = Foreigner(Site(os.urandom(32)), mesh=peer.mesh, node=peer.node)
        vouch = here.recovery().vouch(peer.mesh, stranger.site, peer.hlc())
        rest = 64 * 1024 - len(encode({"t": "introduce", "records": [vouch, bytes(30_000), bytes(30_000)]}))
        for more, code in ((1, 8), (0, None)):
            records = [vouch, bytes(30_000), bytes(30_000 + rest + more)]
            async with stranger.dial(here.port) as link:
                link.say({"t": "introduce", "records": records})
                link.hello()
                if code is None:
                    await link.greeting()
                else:
                    assert (await link.wire.end())[0] == code


async def test_the_retired_get_code_4(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer, other = await here.member(), await here.member()
        record = here.recovery().retirement(peer.mesh, peer.site, peer.hlc(), peer.hlc())
        async with peer.greeted(here.port) as mine, other.greeted(here.port) as link:
            link.open()
            await link.acked(link.offer("records", records=[record]))
            assert (await mine.wire.end())[0] == 4
        async with peer.dial(here.port) as link:
            link.hello()
            assert (await link.wire.end())[0] == 4
        invite = await here.node.invite(60_000)
        content = peer.take_invite(invite.invite)
        async with pairing(peer, here.port, content) as ceremony:
            ceremony.hello()
            assert (await _end_of(ceremony))[0] == 4
        await pair(Foreigner.create(), here.port, invite.invite)  # nothing was consumed


# --- duplicate links


@asynccontextmanager
async def crossed(tmp_path: Path, *, node_is_smaller: bool) -> AsyncIterator[tuple[Here, Foreigner, Link, Link]]:
    """A link that the peer opened, and one that the node opened after it; both have greeted."""
    async with AsyncExitStack() as stack:
        here_at = await stack.enter_async_context(running(tmp_path))
        site = Site(os.urandom(32))
        node = bytes.fromhex((await here_at.node.status()).site)
        while (node < site.site) != node_is_smaller:
            site = Site(os.urandom(32))
        peer = await here_at.member(site=site)
        await stack.aclose()
        listening: Listener = await stack.enter_async_context(listener(peer.certificate()))
        here = await stack.enter_async_context(running(tmp_path, peers=[f"127.0.0.1:{listening.port}"]))
        theirs = await Link(peer, await listening.wire(), opened_by_us=False).reached()
        assert bound_site(theirs.wire.peer_certificate, peer.mesh)[0] == peer.node
        theirs.hello()
        await theirs.greeting()
        ours = await stack.enter_async_context(peer.dial(here.port))
        yield here, peer, ours, theirs


async def test_the_node_dials_and_serves_the_same(tmp_path: Path) -> None:
    async with crossed(tmp_path, node_is_smaller=True) as (here, peer, _, link):
        await here.put("a")
        assert [event["row_key"] for event in link.events_in(await link.took_until("batch"))] == [{"id": "a"}]
        link.open()
        await link.offered(peer.event({"id": "b"}, {"title": "mine"}))
        assert await here.title("b") == "mine"


async def test_of_crossed_links_that_of_the_smaller_site_stays(tmp_path: Path) -> None:
    for node_is_smaller in (True, False):
        home = tmp_path / str(node_is_smaller)
        async with crossed(home, node_is_smaller=node_is_smaller) as (_, peer, ours, theirs):
            stays, goes = (theirs, ours) if node_is_smaller else (ours, theirs)
            if stays is ours:
                ours.hello()
                await ours.greeting()
            assert (await goes.wire.end())[0] == 6
            stays.open()
            await stays.offered(peer.event({"id": "a"}, {}))


async def test_of_crossed_links_the_other_stays_where_one_is_dead(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        here_at = await stack.enter_async_context(running(tmp_path))
        peer = await here_at.member()
        while (await here_at.node.status()).site > peer.site.site.hex():  # the node's own link would stay
            peer = await here_at.member()
        await stack.aclose()
        listening = await stack.enter_async_context(listener(peer.certificate()))
        here = await stack.enter_async_context(running(tmp_path, peers=[f"127.0.0.1:{listening.port}"]))
        dead = await Link(peer, await listening.wire(), opened_by_us=False).reached()
        dead.hello()
        await dead.greeting()
        dead.wire.vanish()
        link = await stack.enter_async_context(peer.greeted(here.port))
        link.open()
        await link.offered(peer.event({"id": "a"}, {"title": "heard"}))
        assert await here.title("a") == "heard"


async def test_of_two_links_by_one_dialer_the_newer_stays(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.greeted(here.port) as older, peer.greeted(here.port) as newer:
            assert (await older.wire.end())[0] == 6
            newer.open()
            await newer.offered(peer.event({"id": "a"}, {}))


async def test_a_restarted_peer_takes_the_place_of_its_dead_link(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.greeted(here.port) as older:
            older.wire.vanish()
            peer.boot = os.urandom(8)
            async with peer.greeted(here.port) as newer:
                newer.open()
                await newer.offered(peer.event({"id": "a"}, {}))


async def test_twins_are_told(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.greeted(here.port) as older:
            peer.boot = os.urandom(8)
            async with peer.greeted(here.port) as newer:
                assert (await newer.wire.end())[0] == 11
                assert (await older.wire.end())[0] == 11


# --- pairing


async def test_pairing_is_refused_while_no_invite_is_open(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = Foreigner.create()
        invite = peer.take_invite((await here.node.invite(1)).invite)
        while invite["expires"] >= now_ms():
            pass
        async with connection(here.port, peer.certificate(), alpn="ssp-pair/1", handshake=False) as wire:
            await wire.until(lambda: wire.ended is not None, despite_end=True)
            assert wire.ended is not None
            refused = _is_ended_by_tls(wire, AlertDescription.no_application_protocol)
            assert refused or (wire.ended.frame_type is None and wire.ended.error_code == 2), wire.ended


async def test_an_invite_says_what_it_must(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.put("a")
        peer = Foreigner.create("laptop")
        invite = peer.take_invite((await here.node.invite(60_000)).invite)
        assert invite["site"].hex() == (await here.node.status()).site
        assert invite["founder"] == here.recovery().public_key
        assert 0 < invite["expires"] - now_ms() <= 60_000
        assert all(address.rpartition(":")[2] == str(here.port) for address in invite["addrs"])
        await pair(peer, here.port, (await here.node.invite(60_000)).invite)
        assert peer.site.site in peer.keys
        assert [each.name for each in await here.node.peers()] == ["laptop"]


async def refusal(peer: Foreigner, here: Here, content: dict[str, Any], **hello: Any) -> tuple[int, str]:
    """How a ceremony ends that gets no further than its first step."""
    async with pairing(peer, here.port, content) as ceremony:
        ceremony.hello(**hello)
        return await ceremony.wire.end()


async def test_expired_consumed_and_unknown_look_alike(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.node.invite(60_000)  # keeps the door open
        peer = Foreigner.create()
        consumed = (await here.node.invite(60_000)).invite
        await pair(Foreigner.create(), here.port, consumed)
        expired = (await here.node.invite(1)).invite
        ends = []
        for text in (consumed, expired):
            invite = peer.take_invite(text)
            while invite["expires"] >= now_ms() and text is expired:
                pass
            async with pairing(peer, here.port, invite) as ceremony:
                ceremony.hello()
                ends.append(await _end_of(ceremony))
        ends.append(await refusal(peer, here, peer.take_invite(consumed), invite=os.urandom(8)))
        assert ends[0][0] == 2
        assert len(set(ends)) == 1, ends


async def _end_of(ceremony: Any) -> tuple[int, str]:
    """How it ends for somebody who holds the secret."""
    from support.foreign_wire import Ended

    try:
        await ceremony.opened()
        ceremony.prove()
        await ceremony.paired()
    except Ended:
        pass
    return await ceremony.wire.end()


PROOFS = {"mac", "sig", "public key"}  # what is no frame of §10 at all is a protocol-error instead
WRONG: dict[str, Callable[[Any], dict[str, Any]]] = {
    "mac": lambda ceremony: {"mac": bytes(32)},
    "sig": lambda ceremony: {"sig": bytes(64)},
    "public key": lambda ceremony: {"public_key": Site(os.urandom(32)).public_key},
    "short mac": lambda ceremony: {"mac": b""},
    "long name": lambda ceremony: {"name": "n" * 129},
    "more": lambda ceremony: {"more": 1},
}


async def test_a_wrong_proof_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = Foreigner.create()
        for case, wrong in WRONG.items():
            invite = peer.take_invite((await here.node.invite(60_000)).invite)
            async with pairing(peer, here.port, invite) as ceremony:
                ceremony.hello()
                await ceremony.opened()
                ceremony.prove(**wrong(ceremony))
                assert (await ceremony.wire.end())[0] == (2 if case in PROOFS else 1), case
        assert await here.node.peers() == []


@pytest.mark.parametrize("tries", [INVITE_TRIES - 1, INVITE_TRIES])
async def test_five_wrong_proofs_burn_an_invite(tmp_path: Path, tries: int) -> None:
    async with running(tmp_path) as here:
        await here.node.invite(60_000)
        peer = Foreigner.create()
        text = (await here.node.invite(60_000)).invite
        invite = peer.take_invite(text)
        for _ in range(3):
            assert (await refusal(peer, here, invite, invite=os.urandom(8)))[0] == 2  # burns nothing
        for _ in range(tries):
            async with pairing(peer, here.port, invite) as ceremony:
                ceremony.hello()
                await ceremony.opened()
                ceremony.prove(mac=bytes(32))
                assert (await ceremony.wire.end())[0] == 2
        async with pairing(peer, here.port, invite) as ceremony:
            ceremony.hello()
            if tries == INVITE_TRIES:
                assert (await _end_of(ceremony))[0] == 2
            else:
                await ceremony.opened()
                ceremony.prove()
                await ceremony.paired()


async def test_the_same_key_gets_the_same_answer_again(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.node.invite(60_000)
        peer = Foreigner.create()
        text = (await here.node.invite(60_000)).invite
        await pair(peer, here.port, text)
        again = Foreigner(peer.site)
        await pair(again, here.port, text)
        assert set(again.records) == set(peer.records)
        other = Foreigner.create()
        async with pairing(other, here.port, other.take_invite(text)) as ceremony:
            ceremony.hello()
            assert (await _end_of(ceremony))[0] == 2


async def test_a_proof_cannot_be_replayed(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = Foreigner.create()
        invite = peer.take_invite((await here.node.invite(60_000)).invite)
        async with pairing(peer, here.port, invite) as ceremony:
            ceremony.hello()
            await ceremony.opened()
            proof = ceremony.proof()
            nonce = ceremony.nonce
        async with pairing(peer, here.port, invite) as ceremony:
            ceremony.hello(nonce=nonce)
            await ceremony.opened()
            ceremony.prove(**proof)
            assert (await ceremony.wire.end())[0] == 2
        assert await here.node.peers() == []


async def test_the_ceremony_keeps_its_order(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = Foreigner.create()
        invite = peer.take_invite((await here.node.invite(60_000)).invite)
        for case in ("proof first", "hello twice", "something else", "too large"):
            async with pairing(peer, here.port, invite) as ceremony:
                if case == "proof first":
                    ceremony.prove()
                elif case == "hello twice":
                    ceremony.hello()
                    await ceremony.opened()
                    ceremony.hello()
                elif case == "something else":
                    ceremony.wire.write(0, framed(encode({"t": "hello"})))
                else:
                    ceremony.wire.write(0, (2**21 + 1).to_bytes(4, "big"))
                assert (await ceremony.wire.end())[0] in (1, 8), case
            await here.node.invite(60_000)


async def test_a_paired_peer_needs_no_more_to_be_let_in(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        async with peer.dial(here.port) as link:
            link.hello()
            await link.greeting()

"""Pairing that a person confirms, and pairing without a string, with an independent peer over QUIC (profile §10)."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from itertools import islice
from pathlib import Path

import pytest
from support.foreign_bytes import Site, digest, encode, framed, keyed
from support.foreign_nearby import NO_MESH, Nearby, visiting
from support.foreign_node import Here, running
from support.foreign_pairing import Pairing, found, pairing
from support.foreign_peer import Foreigner
from support.foreign_wire import Ended, certificate_for, listener
from support.nodes import PATIENCE_S

from meshnode.errors import PairingError
from meshnode.node import ceremony
from meshnode.node.nearby import Comparison
from meshnode.node.nearby_ceremony import STRANGERS
from meshnode.node.nearby_join import pair_nearby
from meshnode.store import invites

# --- invites


async def tries_of(here: Here, invite_id: str) -> int:
    stored = await here.node.storage.read(lambda tx: invites.get(tx, bytes.fromhex(invite_id)))
    assert stored is not None
    return stored.tries


async def test_a_peer_of_the_plain_profile_is_confirmed_too(tmp_path: Path) -> None:
    """It knows nothing of questions: it waits, and the answer comes."""
    async with running(tmp_path) as here:
        view = await here.node.invite(60_000, confirm=True)
        peer = Foreigner.create()
        async with pairing(peer, here.port, peer.take_invite(view.invite)) as ceremony:
            ceremony.hello()
            await ceremony.opened()
            ceremony.prove()
            asked = await here.node.invited(view.id, timeout_s=PATIENCE_S)
            assert (asked.state, asked.who is not None and asked.who.name) == ("asks", "foreigner")
            assert not ceremony.wire.received.get(0)  # not a word beyond `pair-open`
            await here.node.decide(peer.site.site.hex(), approve=True)
            peer.learn_all(await ceremony.paired())
            ceremony.wire.close(0)
        async with peer.greeted(here.port):
            pass


async def test_who_is_not_confirmed_in_time_is_told_with_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ceremony, "CONFIRM_HOLD_S", 0.05)
    async with running(tmp_path) as here:
        view = await here.node.invite(60_000, confirm=True)
        peer = Foreigner.create()
        async with pairing(peer, here.port, peer.take_invite(view.invite)) as link:
            link.hello()
            await link.opened()
            link.prove()
            assert await link.wire.end() == (2, "waiting for confirmation")
        assert await here.node.peers() == []


async def test_what_a_stranger_does_burns_no_invite(tmp_path: Path) -> None:
    """Nobody without the secret knows the id, and whoever does not prove anything costs the invite nothing."""
    async with running(tmp_path) as here:
        view = await here.node.invite(60_000, confirm=True)
        stranger = Foreigner.create()
        content = stranger.take_invite(view.invite)
        for number in range(6):
            async with pairing(stranger, here.port, content) as link:
                if number % 3 == 0:
                    link.hello(invite=os.urandom(8))
                    assert (await link.wire.end())[0] == 2
                elif number % 3 == 1:
                    link.hello()  # even with the id: it leaves without a proof
                    await link.opened()
                    link.wire.close(0)
                else:
                    link.wire.write(0, framed(encode({"t": "pair"})))
                    assert (await link.wire.end())[0] == 1
        assert await tries_of(here, view.id) == 0
        assert (await here.node.invited(view.id)).state == "open"


async def test_swapped_nonces_and_another_invites_secret_are_wrong_proofs(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        one, two = [await here.node.invite(60_000) for _ in range(2)]
        peer = Foreigner.create()
        content, other = peer.take_invite(one.invite), peer.take_invite(two.invite)
        async with pairing(peer, here.port, content) as link:
            link.hello()
            await link.opened()
            link.nonce, link.theirs = link.theirs, link.nonce
            link.prove()
            assert (await link.wire.end())[0] == 2
        async with pairing(peer, here.port, content) as link:
            link.hello()
            await link.opened()
            key = Pairing(link.wire, peer, other, link.certificate)._key()
            link.prove(mac=keyed(key, link.transcript() + b"joiner"))
            assert (await link.wire.end())[0] == 2
        assert [await tries_of(here, each.id) for each in (one, two)] == [2, 0]
        assert await here.node.peers() == []


async def test_a_proof_made_for_another_link_cannot_be_relayed(tmp_path: Path) -> None:
    """Somebody in the middle has the joiner prove itself, and hands that on over a link of its own, on either key."""
    async with running(tmp_path) as here:
        view = await here.node.invite(60_000)
        joiner, middle = Foreigner.create(), Foreigner.create()
        content = joiner.take_invite(view.invite)
        middle.take_invite(view.invite)
        for claimed in (joiner, middle):
            async with pairing(middle, here.port, content) as link:
                link.hello()
                nonce = await link.opened()
                relayed = Pairing(link.wire, joiner, content, certificate_for(joiner.site, content["mesh"]))
                relayed.nonce, relayed.theirs = link.nonce, nonce
                link.prove(**(relayed.proof() | {"public_key": claimed.site.public_key}))
                assert (await link.wire.end())[0] == 2
        assert await here.node.peers() == []


# --- nearby


async def opened(here: Here) -> int:
    """The port where the node is open to nearby devices."""
    return int((await here.node.nearby_open()).addresses[0].rpartition(":")[2])


async def test_a_foreign_guest_is_let_in(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        port = await opened(here)
        peer = Foreigner.create()
        async with visiting(port, peer.site) as guest:
            code = await guest.until_digits()
            view = await here.node.nearby(seen="open", timeout_s=PATIENCE_S)
            assert (view.state, view.code) == ("asks", code)
            guest.say("near-yes")
            await here.node.nearby_answer(code, yes=True)
            welcome = await guest.hear("near-welcome", "mesh", "founder", "records", "port")
            guest.wire.close(0)
        assert (await here.node.nearby(seen="agreed", timeout_s=PATIENCE_S)).state == "joined"
        peer.mesh, peer.founder, peer.node = welcome["mesh"], welcome["founder"], here.node.storage.engine.context.site
        assert welcome["port"] == here.port
        peer.keys[digest(peer.founder)[:16]] = peer.founder
        peer.learn_all(welcome["records"])
        async with peer.greeted(here.port):
            pass


async def test_silent_strangers_keep_no_guest_out(tmp_path: Path) -> None:
    async with running(tmp_path) as here, AsyncExitStack() as strangers:
        port = await opened(here)
        for _ in range(2 * STRANGERS):  # each is there, and says nothing
            stranger = await strangers.enter_async_context(visiting(port, Site(os.urandom(32))))
            stranger.say("near-hello", commit=stranger.committed(), name="stranger")
        async with visiting(port, Site(os.urandom(32))) as guest:
            code = await guest.until_digits()
            view = await here.node.nearby(seen="open", timeout_s=PATIENCE_S)
            assert (view.state, view.code) == ("asks", code)


async def test_one_guests_digits_are_compared_and_no_other_learns_any(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        port = await opened(here)
        async with visiting(port, Site(os.urandom(32))) as slow, visiting(port, Site(os.urandom(32))) as guest:
            slow.say("near-hello", commit=slow.committed(), name="slow")
            slow.commit = (await slow.hear("near-open", "commit", "name"))["commit"]
            code = await guest.until_digits()
            slow.say("near-reveal", nonce=slow.nonce)
            assert await slow.wire.end() == (8, "busy")
            view = await here.node.nearby(seen="open", timeout_s=PATIENCE_S)
            assert (view.state, view.code) == ("asks", code)


async def test_strangers_do_not_push_out_the_guest_that_is_compared(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        port = await opened(here)
        async with visiting(port, Site(os.urandom(32))) as guest:
            code = await guest.until_digits()
            assert (await here.node.nearby(seen="open", timeout_s=PATIENCE_S)).state == "asks"

            async def come() -> None:
                async with visiting(port, Site(os.urandom(32))) as stranger:
                    await stranger.wire.end()

            strangers = [asyncio.create_task(come()) for _ in range(3 * STRANGERS)]
            for ended in islice(asyncio.as_completed(strangers), STRANGERS):
                await ended  # refused; those for whom there was no room hear nothing
            guest.say("near-yes")
            await here.node.nearby_answer(code, yes=True)
            await guest.hear("near-welcome", "mesh", "founder", "records", "port")
            for stranger in strangers:
                stranger.cancel()
            await asyncio.gather(*strangers, return_exceptions=True)


async def test_a_foreign_host_lets_a_device_in(tmp_path: Path) -> None:
    peer = found()
    certificate = certificate_for(peer.site, NO_MESH)
    seen: asyncio.Queue[Comparison] = asyncio.Queue()

    async def yes(comparison: Comparison) -> bool:
        seen.put_nowait(comparison)
        return True

    async with listener(certificate, alpn="ssp-near/1") as listening:
        guest = asyncio.create_task(pair_nearby(tmp_path / "n", f"127.0.0.1:{listening.port}", ask=yes, name="lap"))
        host = Nearby(await listening.wire(), peer.site, certificate, host=True)
        code = await host.until_digits_at_the_host()
        assert await seen.get() == Comparison(code, "foreigner")
        await host.hear("near-yes")
        public_key, _ = host.other
        site = Site.__new__(Site)
        site.public_key, site.site = public_key, digest(public_key)[:16]
        vouch = peer.site.vouch(peer.mesh, site, peer.hlc(), "lap")
        host.say("near-welcome", mesh=peer.mesh, founder=peer.founder, records=[*peer.records, vouch], port=4747)
        joined = await guest
        assert (await host.wire.end())[0] == 0
    assert (joined.site, joined.inviter) == (site.site.hex(), peer.site.site.hex())


async def test_a_welcome_without_both_words_is_not_to_be_had(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        port = await opened(here)
        async with visiting(port, Site(os.urandom(32))) as guest:
            code = await guest.until_digits()
            await here.node.nearby(seen="open", timeout_s=PATIENCE_S)
            guest.say("near-yes")
            await here.node.nearby_answer(code, yes=False)
            assert await guest.wire.end() == (2, "declined")
        assert await here.node.peers() == []


async def test_a_ceremony_relayed_between_two_links_shows_no_digits(tmp_path: Path) -> None:
    """The middle hands every frame on as it is: commitments are of the ends that TLS proved, so the first one fails."""
    middle, asked = Site(os.urandom(32)), []

    async def yes(comparison: Comparison) -> bool:
        asked.append(comparison)
        return True

    certificate = certificate_for(middle, NO_MESH)
    async with running(tmp_path / "a") as here, listener(certificate, alpn="ssp-near/1") as posing:
        port = await opened(here)
        at = f"127.0.0.1:{posing.port}"
        guest = asyncio.create_task(pair_nearby(tmp_path / "n", at, ask=yes, name="lap"))
        near_guest = Nearby(await posing.wire(), middle, certificate, host=True)
        async with visiting(port, middle) as near_host:
            hello = await near_guest.hear("near-hello", "commit", "name")
            near_host.say("near-hello", commit=hello["commit"], name=hello["name"])
            opening = await near_host.hear("near-open", "commit", "name")
            near_guest.say("near-open", commit=opening["commit"], name=opening["name"])
            reveal = await near_guest.hear("near-reveal", "nonce")
            near_host.say("near-reveal", nonce=reveal["nonce"])
            with pytest.raises(Ended):
                await near_host.hear("near-reveal", "nonce")
            assert (await near_host.wire.end())[0] == 1
            near_guest.wire.close(1, "over")
        with pytest.raises(PairingError):
            await guest
        assert asked == []
        assert (await here.node.nearby()).state == "open"  # nothing was compared: it waits for an honest one
        assert await here.node.peers() == []


async def test_a_guest_that_reveals_what_it_did_not_commit_to_learns_no_nonce(tmp_path: Path) -> None:
    """Or it could choose its own nonce after the host's, and with it the digits."""
    async with running(tmp_path) as here:
        port = await opened(here)
        async with visiting(port, Site(os.urandom(32))) as guest:
            guest.say("near-hello", commit=guest.committed(bytes(32)), name="x")
            await guest.hear("near-open", "commit", "name")
            guest.say("near-reveal", nonce=guest.nonce)
            with pytest.raises(Ended):
                await guest.hear("near-reveal", "nonce")
            assert (await guest.wire.end())[0] == 1

"""The node as a joiner and as a dialer, seen by an independent inviter of an independent mesh (profile §7, §10)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.foreign_bytes import Site
from support.foreign_node import running
from support.foreign_pairing import Inviter, found, invite_text
from support.foreign_peer import Foreigner, Link
from support.foreign_wire import Certificate, Listener, certificate_for, listener

from meshnode import MeshError, join

BOTH = "ssp/1 ssp-pair/1"


@asynccontextmanager
async def joining(home: Path, **invite: Any) -> AsyncIterator[tuple[Foreigner, Listener, Inviter, asyncio.Task[Any]]]:
    """A device that joins, at the moment its connection has come."""
    peer, secret = found(), os.urandom(16)
    certificate = peer.certificate()
    async with listener(certificate, alpn=BOTH) as listening:
        text = invite_text(peer, listening.port, secret=secret, **invite)
        task = asyncio.create_task(join(home, text, name="joiner", timeout_s=6.0))
        try:
            yield peer, listening, Inviter(await listening.wire(), peer, secret, certificate), task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_device_joins_and_comes_back_as_a_member(tmp_path: Path) -> None:
    async with joining(tmp_path) as (peer, listening, inviter, task):
        assert inviter.wire.alpn == "ssp-pair/1"
        await inviter.hello()
        inviter.open()
        assert await inviter.proof() == "joiner"
        vouch = inviter.vouch()
        inviter.paired([vouch, *peer.records[::-1]])
        assert (await inviter.wire.end())[0] == 0
        view = await task
        assert view.site == inviter.joiner.hex()
        assert view.inviter == peer.site.site.hex()
        peer.node = inviter.joiner
        async with running(tmp_path) as here:
            link = await Link(peer, await listening.wire(), opened_by_us=False).reached()
            assert link.wire.alpn == "ssp/1"
            link.hello()
            await link.greeting()
            frames = await link.took_until("records")
            records = [record for got in frames for record in got.frame.get("records", [])]
            assert set(records) == {vouch, *peer.records}
            link.open()
            await link.offered(peer.event({"id": "a"}, {"title": "from the founder's first device"}))
            assert await here.title("a") == "from the founder's first device"
            await here.put("b")
            got = await link.took()
            assert [event["by"] for event in link.events_in([got])] == [peer.node]


WRONG: dict[str, Callable[[Inviter], object]] = {
    "mac": lambda inviter: inviter.paired([inviter.vouch(), *inviter.peer.records], mac=bytes(32)),
    "no vouch for the joiner": lambda inviter: inviter.paired(inviter.peer.records),
    "no records": lambda inviter: inviter.paired([]),
    "more": lambda inviter: inviter.paired([inviter.vouch(), *inviter.peer.records], more=1),
    "records of text": lambda inviter: inviter.paired(["text"]),  # type: ignore[list-item]
    "another frame": lambda inviter: inviter.open(),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_an_inviter_that_cannot_prove_itself_is_not_joined(tmp_path: Path, wrong: str) -> None:
    async with joining(tmp_path) as (_, _, inviter, task):
        await inviter.hello()
        inviter.open()
        await inviter.proof()
        WRONG[wrong](inviter)
        await inviter.wire.end()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert not (tmp_path / "meshnode.db").exists(), "nothing was founded"


async def test_an_inviter_other_than_the_invite_names_hears_nothing(tmp_path: Path) -> None:
    peer, secret = found(), os.urandom(16)
    for certificate in (
        certificate_for(Site(os.urandom(32)), peer.mesh),
        certificate_for(peer.site, os.urandom(16)),
    ):
        async with listener(certificate, alpn=BOTH) as listening:
            text = invite_text(peer, listening.port, secret=secret)
            task = asyncio.create_task(join(tmp_path / os.urandom(4).hex(), text, name="joiner", timeout_s=3.0))
            wire = await listening.wire()
            assert (await wire.end())[0] in (0, 2)
            assert not wire.received, "no frame for somebody else"
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_an_invite_that_was_mistyped_or_expired_is_not_dialed(tmp_path: Path) -> None:
    peer = found()
    async with listener(peer.certificate(), alpn=BOTH) as listening:
        text = invite_text(peer, listening.port, secret=os.urandom(16))
        mistyped = text[:-1] + ("a" if text[-1] != "a" else "b")
        expired = invite_text(peer, listening.port, secret=os.urandom(16), expires=1)
        newer = invite_text(peer, listening.port, secret=os.urandom(16), v=2)
        more = invite_text(peer, listening.port, secret=os.urandom(16), more=1)
        short = invite_text(peer, listening.port, secret=b"short")
        for wrong in (mistyped, expired, newer, more, short, text.partition(":")[2][:-3], ""):
            with pytest.raises(MeshError):
                await join(tmp_path / "new", wrong, name="joiner", timeout_s=1.0)
        assert listening.accepted.empty()


@asynccontextmanager
async def dialed(tmp_path: Path, certificates: Callable[[Foreigner], list[Certificate]]) -> AsyncIterator[Any]:
    """The node dials a listener with these certificates."""
    async with running(tmp_path) as here:
        member = await here.member()
    async with (
        listener(*certificates(member)) as listening,
        running(tmp_path, peers=[f"127.0.0.1:{listening.port}"]) as here,
    ):
        yield here, member, await listening.wire()


SERVERS: dict[str, tuple[int, Callable[[Foreigner], list[Certificate]]]] = {
    "another mesh": (2, lambda member: [certificate_for(member.site, bytes(16))]),
    "without binding": (2, lambda member: [certificate_for(member.site, member.mesh, binding=None)]),
    "two": (2, lambda member: [member.certificate(), member.certificate()]),
    "a stranger": (3, lambda member: [certificate_for(Site(os.urandom(32)), member.mesh)]),
}


@pytest.mark.parametrize("server", SERVERS)
async def test_the_node_says_nothing_to_a_server_that_is_no_member(tmp_path: Path, server: str) -> None:
    code, certificates = SERVERS[server]
    async with dialed(tmp_path, certificates) as (_, _, wire):
        assert (await wire.end())[0] == code
        said = wire.frame(0)
        while said is not None:
            assert b"introduce" in said, "at most its introduction"
            said = wire.frame(0)
        assert not wire.received.get(2)


async def test_a_link_that_ends_while_the_node_stops_leaves_nothing_behind(tmp_path: Path) -> None:
    async with dialed(tmp_path, lambda member: [member.certificate()]) as (_, member, wire):
        link = await Link(member, wire, opened_by_us=False).reached()
        link.hello()
        await link.greeting()
        wire.close(0)


async def test_a_node_may_stop_at_the_moment_a_link_comes_up(tmp_path: Path) -> None:
    async with dialed(tmp_path, lambda member: [member.certificate()]) as (_, _, wire):
        assert wire.connected  # and not a word was said on it

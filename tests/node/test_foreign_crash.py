"""The node is killed, and an independent peer looks at what it kept (NEOTH commit contract, profile §8)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from support.foreign_node import free_port, running
from support.foreign_peer import Foreigner, Link, Sent
from support.foreign_wire import connection


@asynccontextmanager
async def process(home: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """`meshnode up` as a process of its own, from when it said that it runs."""
    port = free_port()
    command = ["-m", "meshnode", "--home", str(home), "up", "--listen", "127.0.0.1", "--port", str(port)]
    up = await asyncio.create_subprocess_exec(
        sys.executable, *command, "--no-mdns", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        assert up.stdout is not None
        async with asyncio.timeout(60):
            while b"is up on" not in (line := await up.stdout.readline()):
                assert line, "it ended at once"
        yield up, port
    finally:
        if up.returncode is None:
            up.kill()
        await up.communicate()


async def killed(up: asyncio.subprocess.Process) -> None:
    """As by a power cut, for all that a process can see."""
    up.kill()
    await up.wait()


async def prepared(home: Path) -> Foreigner:
    """A member of the mesh of a node that has something to say."""
    async with running(home) as here:
        await here.put("a", "x" * 200_000)
        await here.put("b", "y" * 200_000)
        return await here.member()


async def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    peer = await prepared(tmp_path)
    acks: list[bytes] = []
    sent: list[Sent] = []
    for _ in range(2):
        async with process(tmp_path) as (up, port), peer.greeted(port) as link:
            if sent:
                assert link.theirs["inbound"] == {"epoch": peer.epoch, "next": len(sent) + 1, "digest": sent[-1].digest}
            link.open()
            for each, ack in zip(sent, acks, strict=True):
                link.show(each.data)
                assert await link.control_bytes("ack") == ack
            for number in range(3):
                sent.append(link.offer(events=[peer.event({"id": f"{len(sent)}.{number}"}, {"title": "kept"})]))
                acks.append(await link.control_bytes("ack"))
            await killed(up)
    async with running(tmp_path) as here:
        assert len([row for row in await here.node.rows("notes") if row.columns.get("title") == "kept"]) == len(sent)


async def test_what_was_sent_was_staged(tmp_path: Path) -> None:
    peer = await prepared(tmp_path)
    async with process(tmp_path) as (up, port), peer.greeted(port) as link:
        first = [await link.got() for _ in range(3)]
        await killed(up)
    async with process(tmp_path) as (up, port), peer.greeted(port) as link:
        assert [(await link.got()).data for _ in first] == [got.data for got in first]
        for got in first:
            link.keep(got)
        await link.answered(what="table", schema="none", table="none")  # the acks before it were read
        await killed(up)
    async with process(tmp_path) as (_, port), peer.greeted(port) as link:
        assert (await link.opening())["next"] > first[-1].no, "what was settled is not sent again"


async def test_the_tls_key_is_made_afresh(tmp_path: Path) -> None:
    peer = await prepared(tmp_path)
    keys = []
    for _ in range(2):
        async with process(tmp_path) as (_, port), connection(port, peer.certificate()) as wire:
            link = Link(peer, wire, opened_by_us=True)
            link.hello()
            await link.greeting()
            keys.append((wire.peer_certificate.public_key(), link.theirs["boot"]))
    assert keys[0][0] != keys[1][0]
    assert keys[0][1] != keys[1][1]

"""Back-pressure: a peer that sends on and on, or never acknowledges, costs its window and no more (profile §8, §13).

`MESHNODE_CASES=16` offers a whole gigabyte to the node whose writer stands still.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from support.catching_up import memory_bytes
from support.foreign_bytes import encode
from support.foreign_node import Here, running
from support.foreign_pairing import pair
from support.foreign_peer import Foreigner, Link
from support.foreign_wire import Ended
from support.nodes import PATIENCE_S

from meshnode.errors import CloseCode
from meshnode.limits import (
    BATCH_BYTES,
    EVENT_BYTES,
    FRAME_BYTES,
    LINK_WINDOW_BYTES,
    UNCOMMITTED_BYTES,
    WINDOW_FRAMES,
)

CASES = int(os.environ.get("MESHNODE_CASES", "1"))
OFFERED_BYTES = 64 * 2**20 * CASES
GROWTH_BYTES = 64 * 2**20
EVENTS, TITLE = 30, "x" * 60_000  # of each frame: nearly as large as frames can be
ENOUGH_BYTES = 4 * 2**20  # unsent: flow control holds the rest back
STILL_S = 0.3  # seconds without a byte leaving, after which a link is given up for a new one


class Standing:
    """A node in a process of its own, and the peer that is a member of its mesh."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, peer: Foreigner) -> None:
        self.process, self.port, self.peer = process, port, peer

    async def turn(self) -> None:
        """Let the writer stand still, or go on."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b"\n")
        await self.process.stdout.readline()


@asynccontextmanager
async def standing_node(home: Path) -> AsyncIterator[Standing]:
    """One whose writer can be made to stand still."""
    script = Path(__file__).parent.parent / "support" / "standing_node.py"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(script),
        str(home),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "MALLOC_ARENA_MAX": "1", "PYTHONPATH": str(script.parents[2])},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port, invite = (await process.stdout.readline()).decode().split()
        peer = Foreigner.create()
        await pair(peer, int(port), invite)
        yield Standing(process, int(port), peer)
        process.stdin.close()
        async with asyncio.timeout(PATIENCE_S):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def unsent(link: Link) -> int:
    """Bytes of the peer's event stream that its flow control holds back or nobody acknowledged."""
    stream = link.wire.quic._streams.get(link._out)
    return 0 if stream is None else len(stream.sender._buffer)


def gone(link: Link) -> int:
    """How many bytes of the peer's event stream were acknowledged by QUIC."""
    return int(link.wire.quic._streams[link._out].sender._buffer_start)


async def pour(link: Link, events: list[bytes]) -> tuple[int, int]:
    """Frames without waiting for any ack, until no byte leaves any more or the node ends the link.

    How many bytes were offered, and how many of them left.
    """
    loop, offered, number = asyncio.get_running_loop(), 0, 0
    moved_at = loop.time()
    with suppress(Ended):
        link.hello()
        link.open(epoch=os.urandom(8), at=1)
        while loop.time() < moved_at + STILL_S and link.wire.ended is None:
            before = unsent(link)
            if before < ENOUGH_BYTES:
                number += 1
                data = encode({"t": "batch", "epoch": link.peer.epoch, "no": number, "clock": {}, "events": events})
                offered += len(link.show(data))
            elif before != unsent(link):
                moved_at = loop.time()
            await asyncio.sleep(0.01)
            moved_at = loop.time() if unsent(link) < before else moved_at
    return offered, offered - unsent(link)


async def test_what_is_sent_at_a_writer_that_stands_still_costs_little_memory(tmp_path: Path) -> None:
    async with standing_node(tmp_path) as node:
        event = node.peer.event({"id": "large"}, {"title": TITLE})
        async with node.peer.greeted(node.port):
            pass
        before = most = memory_bytes(node.process.pid)
        await node.turn()
        offered = left = links = 0
        codes: set[int | None] = set()
        while offered < OFFERED_BYTES:
            links += 1
            with suppress(Ended):
                async with node.peer.dial(node.port) as link:
                    more = await pour(link, [event] * EVENTS)
                    offered, left = offered + more[0], left + more[1]
                    codes.add(link.wire.ended.error_code if link.wire.ended else None)
            most = max(most, memory_bytes(node.process.pid))
        grown = (most - before) / 2**20
        print(f"{offered >> 20} MiB offered on {links} links, {left >> 20} left: {grown:.1f} MiB more in memory")
        assert most - before < GROWTH_BYTES
        assert codes == {None, CloseCode.LIMIT}, "a peer that only comes back holds no more than a few links' memory"
        await node.turn()
        assert await goes_on(node, event), "what was held back is taken in when the writer goes on"


async def goes_on(node: Standing, event: bytes) -> bool:
    """Whether an event is acknowledged, once the work of the links before has ended."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(Ended):
                async with node.peer.greeted(node.port) as link:
                    link.open(epoch=os.urandom(8), at=1)
                    return (await link.offered(event))["rejected"] == []


async def test_a_peer_that_never_acknowledges_costs_its_window_and_no_more(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        for number in range(WINDOW_FRAMES):
            await here.put(f"k{number}", "x" * 200_000)
        peer = await here.member()
        async with peer.greeted(here.port) as link:
            frames = [await link.got() for _ in range(WINDOW_FRAMES)]
            for number in range(3 * WINDOW_FRAMES):
                await here.put(f"later{number}", "x" * 200_000)
            link.open()
            await link.offered(peer.event({"id": "barrier"}, {"title": "x"}))
            await link.wire.ping()
            assert link.wire.frame(link._in) is None
            count, size = await here.node.storage.read(
                lambda tx: tx.execute("SELECT count(*), sum(length(frame)) FROM meshnode_staged").fetchone()
            )
            assert count == len(frames)
            assert size <= WINDOW_FRAMES * (BATCH_BYTES + EVENT_BYTES)
            assert here.node._network is not None
            (driver,) = here.node._network._drivers.values()
            assert driver.session.in_flight == WINDOW_FRAMES
            assert driver.link.buffered == 0, "nothing waits in memory to be sent"


@asynccontextmanager
async def standing_writer(here: Here) -> AsyncIterator[None]:
    """The writer of a node in this process stands still within the block."""
    go = threading.Event()
    standing = asyncio.create_task(here.node.storage.write(lambda _engine: go.wait()))
    await asyncio.sleep(0)  # it is queued before whatever comes now
    try:
        yield
    finally:
        go.set()
        await standing


async def test_what_is_not_on_disk_keeps_the_window_of_its_link_shut(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        peer = await here.member()
        event = peer.event({"id": "large"}, {"title": TITLE})
        async with peer.greeted(here.port) as link:
            await link.took_until("records")
            assert here.node._network is not None
            (driver,) = here.node._network._drivers.values()
            async with standing_writer(here):
                link.open(epoch=os.urandom(8), at=1)
                sent = [link.offer(events=[event] * EVENTS) for _ in range(WINDOW_FRAMES)]
                before = -1
                while before < gone(link):  # until no further byte leaves
                    before = gone(link)
                    await link.wire.ping()
                held = driver.session.uncommitted_bytes
            assert UNCOMMITTED_BYTES < held <= UNCOMMITTED_BYTES + LINK_WINDOW_BYTES + FRAME_BYTES
            for frame in sent:
                await link.acked(frame)
            assert driver.session.uncommitted_bytes == 0

"""A mesh for the scenario tests on a LAN: homes made once and copied, and their nodes as processes in its hosts."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path

from meshnode import Node, join
from meshnode.node.api import Operations
from support.lan import Lan
from support.nodes import PATIENCE_S, TABLE, Process, add_notes, loopback

PORT = 4747
LOOK_S = 0.02  # seconds between two looks at another process
TUNED = Path(__file__).with_name("tuned.py")
# A link that went silent is missed after 3 s in place of 45.
IMPATIENT = {"KEEP_ALIVE_S": 1.0, "SILENCE_S": 3.0}


async def make_homes(folder: Path, count: int) -> list[Path]:
    """The homes of one mesh, each with the table; no node runs, and none remembers where another was."""
    homes = [folder / f"n{number}" for number in range(count)]
    async with Node(homes[0], config=loopback(name="n0")) as founder:
        await add_notes(founder)
        for home in homes[1:]:
            await join(home, (await founder.invite()).invite, name=home.name)
            async with Node(home, config=loopback(name=home.name)) as node:
                await add_notes(node)
    for home in homes:
        with closing(sqlite3.connect(home / "meshnode.db")) as database, database:
            database.execute("DELETE FROM meshnode_addresses")
    return homes


class LanMesh:
    """Nodes of one mesh on a LAN, the one of `homes[i]` in host i."""

    def __init__(self, lan: Lan, homes: Sequence[Path], folder: Path) -> None:
        self.lan = lan
        self.homes = [Path(shutil.copytree(home, folder / home.name)) for home in homes]

    def node(self, host: int, *arguments: str, limits: dict[str, float] | None = None) -> Process:
        """The node of a host, not started; `limits` are those that it has in place of its own."""
        program = ["-m", "meshnode"] if limits is None else [str(TUNED), json.dumps(limits)]
        at = ["--port", str(PORT)]
        return Process(self.homes[host], *at, *arguments, before=self.lan.enter(host), program=program)

    @asynccontextmanager
    async def running(self, *hosts: int, limits: dict[str, float] | None = None) -> AsyncIterator[list[Process]]:
        """The nodes of these hosts, started together; they end with the block."""
        async with started([self.node(host, limits=limits) for host in hosts]) as nodes:
            yield nodes


@asynccontextmanager
async def started(nodes: list[Process]) -> AsyncIterator[list[Process]]:
    """These nodes, started together; they end with the block."""
    async with AsyncExitStack() as stack:
        for node in nodes:
            stack.push_async_exit(node)
        async with asyncio.TaskGroup() as starting:
            for node in nodes:
                starting.create_task(node.start())
        yield nodes


async def eventually(holds: Callable[[], Awaitable[bool]], seconds: float = PATIENCE_S) -> float:
    """Wait until it holds, in other processes; returns after how many seconds it did."""
    started = time.monotonic()
    async with asyncio.timeout(seconds):
        while not await holds():  # noqa: ASYNC110 - another process has no event to wait for
            await asyncio.sleep(LOOK_S)
    return time.monotonic() - started


async def links_to(node: Operations, *names: str, seconds: float = PATIENCE_S) -> float:
    """Wait until exactly these members are linked to the node."""

    async def holds() -> bool:
        return {peer.name for peer in await node.peers() if peer.linked} == set(names)

    return await eventually(holds, seconds)


async def row_at(node: Operations, key: str, *, seconds: float = PATIENCE_S) -> float:
    """Wait until the row with this id is at the node."""

    async def holds() -> bool:
        return await node.get(TABLE, {"id": key}) is not None

    return await eventually(holds, seconds)

"""Whole nodes for tests: in this process on loopback, or as `python -m meshnode` in processes that can be killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Self

from meshnode import Config, Node, RowChange, join
from meshnode.control.client import ControlClient
from meshnode.node.api import Operations
from meshnode.node.bell import Bell
from meshnode.node.home import Home
from meshnode.node.views import ChangeView
from support.forks import DEVNULL, PIPE, Running, fork

PATIENCE_S = 60.0  # seconds until a test that waits has failed
LOOK_S = 1.0  # seconds between two looks that no bell asked for
TABLE = "notes"
KEY, COLUMNS = {"id": "TEXT"}, {"title": "TEXT", "done": "INTEGER"}


def free_port() -> int:
    """A UDP port on loopback that nobody uses now."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def loopback(*peers: int, port: int = 0, name: str = "") -> Config:
    """Settings of a node that hears and says nothing beyond this machine's loopback."""
    return Config(
        name=name,
        listen="127.0.0.1",
        port=port or free_port(),
        mdns_enabled=False,
        peers=[f"127.0.0.1:{peer}" for peer in peers],
    )


def note(number: int, title: str = "") -> RowChange:
    """A row of the table that the tests share."""
    return RowChange(key={"id": f"n{number:06}"}, columns={"title": title or f"title {number}", "done": number % 2})


async def add_notes(*nodes: Operations) -> None:
    """The table, at every one of them."""
    for node in nodes:
        await node.add_table(TABLE, KEY, COLUMNS)


async def until(node: Node, holds: Callable[[], Awaitable[bool]], seconds: float = PATIENCE_S) -> None:
    """Wait until it holds; looks whenever something changed at this node."""
    async with asyncio.timeout(seconds):
        while True:
            rung = node.storage.changed.listen()
            if await holds():
                return
            await Bell.wait(rung, LOOK_S)


async def linked(node: Node, *others: Node) -> None:
    """Wait until this node has a link to each of the others."""
    wanted = {(await other.status()).site for other in others}

    async def holds() -> bool:
        return wanted <= {peer.site for peer in await node.peers() if peer.linked}

    await until(node, holds)


async def take(changes: AsyncIterator[ChangeView], count: int) -> list[ChangeView]:
    """The next so many changes."""
    async with asyncio.timeout(PATIENCE_S):
        return [await anext(changes) for _ in range(count)]


async def changes_until(node: Operations, key: str, *, since: int = 0) -> list[ChangeView]:
    """Every change beyond `since`, up to the one of the row with this id."""
    seen: list[ChangeView] = []
    async with asyncio.timeout(PATIENCE_S):
        async for change in node.changes(since=since):
            seen.append(change)
            if change.key == {"id": key}:
                return seen
    raise AssertionError(f"the changes ended before {key}")


async def pair_of_homes(folder: Path, ports: Sequence[int]) -> tuple[Path, Path]:
    """Homes `a`, the founder, and `b`, joined, with the shared table; neither node runs, each dials the other."""
    homes = folder / "a", folder / "b"
    async with Node(homes[0], config=loopback(port=ports[0], name="a")) as a:
        await add_notes(a)
        await join(homes[1], (await a.invite()).invite, name="b")
        async with Node(homes[1], config=loopback(ports[0], port=ports[1], name="b")) as b:
            await add_notes(b)
    return homes


class Process:
    """One `meshnode up` in a process of its own; `client` reaches it while it runs.

    It is forked, unless a command is to start it (`before`), another program than meshnode's own is the node, or a new
    interpreter is asked for (`afresh`), as where memory counts.
    """

    def __init__(
        self,
        home: Path,
        *arguments: str,
        before: Sequence[str] = (),
        program: Sequence[str] = ("-m", "meshnode"),
        afresh: bool = False,
    ) -> None:
        self.home = home
        self.client: ControlClient
        self.said: list[str] = []
        self.pid = 0  # of the node itself, whatever program started it
        self._arguments = ["--home", str(home), "up", *arguments]
        self._before, self._program = before, program
        self._afresh = afresh or bool(before) or tuple(program) != ("-m", "meshnode")
        self._process: Running | asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    def on_loopback(
        cls, home: Path, port: int, *peers: int, before: Sequence[str] = (), afresh: bool = False
    ) -> Process:
        """A node that hears and says nothing beyond this machine's loopback."""
        dialed = [text for peer in peers for text in ("--peer", f"127.0.0.1:{peer}")]
        where = ("--no-mdns", "--listen", "127.0.0.1", "--port", str(port))
        return cls(home, *where, *dialed, before=before, afresh=afresh)

    async def start(self) -> None:
        """Returns once it answers."""
        self._process = await self._started()
        self.pid = 0
        assert self._process.stderr is not None
        line = b""  # what it said before it was killed counts for nothing
        async with asyncio.timeout(PATIENCE_S):
            while b"is up on" not in line and b'"node-up"' not in line:
                line = await self._process.stderr.readline()
                assert line, f"the node ended while it was starting: {self.said}"
                self.said.append(line.decode().strip())
        self._reading = asyncio.create_task(self._read(self._process.stderr))
        client = await ControlClient.connect(Home(self.home))
        assert client is not None
        self.client = client
        self.pid = (await client.status()).pid or self._process.pid

    async def _started(self) -> Running | asyncio.subprocess.Process:
        environment = {name: value for name, value in os.environ.items() if name != "MESHNODE_HOME"}
        if not self._afresh:
            return await fork(self._arguments, environment, stdin=DEVNULL, stdout=DEVNULL)
        return await asyncio.create_subprocess_exec(
            *(*self._before, sys.executable, *self._program, *self._arguments),
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=PIPE,
            env={**environment, "MALLOC_ARENA_MAX": "1"},
        )

    async def kill(self) -> None:
        """SIGKILL: no goodbye, nothing flushed."""
        assert await self._ended(signal.SIGKILL) == -signal.SIGKILL

    async def stop(self) -> None:
        """Ask it to end; it has to do so well."""
        assert await self._ended(signal.SIGTERM) == 0, self.said

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process is not None and self._process.returncode is None:
            await self._ended(signal.SIGKILL)

    async def _ended(self, number: signal.Signals) -> int:
        assert self._process is not None
        os.kill(self.pid or self._process.pid, number)
        async with asyncio.timeout(PATIENCE_S):
            code = await self._process.wait()
            if self._reading is not None:
                await self._reading
        if isinstance(self._process, Running):
            self._process.close()
        else:
            self._process._transport.close()  # type: ignore[attr-defined]
        return code

    async def _read(self, stream: asyncio.StreamReader) -> None:
        async for line in stream:
            self.said.append(line.decode().strip())


class Load:
    """Writes batches of rows at a node until it is told to stop or the node is gone; knows what was acknowledged."""

    def __init__(self, node: Operations, *, batch: int = 250) -> None:
        self.written = 0  # rows up to here are acknowledged
        self._node = node
        self._batch = batch
        self._stopping = False

    async def run(self) -> None:
        """Goes on until `stop`, or raises what ended it."""
        while not self._stopping:
            await self._node.import_rows(TABLE, [note(self.written + each) for each in range(self._batch)])
            self.written += self._batch

    def stop(self) -> None:
        """After the batch under way."""
        self._stopping = True


def ids(changes: Iterable[ChangeView]) -> list[str]:
    """The row ids of some changes, in order."""
    return [str(change.key["id"]) for change in changes]

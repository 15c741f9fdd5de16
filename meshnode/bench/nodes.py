"""The nodes of a scenario: each a `meshnode up` in a process of its own, on loopback, and ended with the scenario."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, Self

from meshnode.bench.homes import looking_at
from meshnode.bench.process import memory_mb
from meshnode.control.client import ControlClient
from meshnode.errors import MeshError, StoreError
from meshnode.node.home import Home

PATIENCE_S: Final = 60.0  # until what a scenario waits for has failed
LOOK_S: Final = 0.005  # between two looks at something that no bell tells of
LOOPBACK: Final = "127.0.0.1"


@asynccontextmanager
async def patience(seconds: float, what: str) -> AsyncIterator[None]:
    """StoreError that says what did not happen, where the block takes longer."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise StoreError(f"{what} within {seconds:.0f} s: this machine is too busy to be measured") from error


def free_port() -> int:
    """A UDP port on loopback that nobody uses now."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def environment() -> dict[str, str]:
    """What a child is started with: compiled modules are kept, as an installed program has them."""
    left_out = ("MESHNODE_HOME", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if name not in left_out}


@dataclass(slots=True)
class NodeProcess:
    """One node; `client` reaches it while it runs."""

    home: Home
    port: int
    peers: tuple[int, ...] = ()
    started: float = 0.0  # when it was asked to start
    _process: asyncio.subprocess.Process | None = None
    _client: ControlClient | None = None

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()  # nobody else would end what was begun
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def client(self) -> ControlClient:
        """Operations of the running node."""
        assert self._client is not None, "the node was not started"
        return self._client

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._process is not None, "the node was not started"
        return self._process.pid

    @property
    def begun(self) -> bool:
        """Whether there ever was a process."""
        return self._process is not None

    @property
    def runs(self) -> bool:
        """Whether there is one now."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Returns once it answers. StoreError where it ends instead, or does not answer."""
        where = ("--no-mdns", "--listen", LOOPBACK, "--port", str(self.port), "--log-level", "error")
        dialed = [text for peer in self.peers for text in ("--peer", f"{LOOPBACK}:{peer}")]
        command = (sys.executable, "-m", "meshnode", "--home", str(self.home.path), "up", *where, *dialed)
        self.started = time.perf_counter()
        self._process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment(),
            start_new_session=True,
        )
        end = self.started + PATIENCE_S
        while not await self._answers():
            if self._process.returncode is not None or time.perf_counter() > end:
                raise StoreError(f"the node in {self.home.path} did not start: try `meshnode --home … up` by hand")
            await asyncio.sleep(LOOK_S)

    async def stop(self) -> None:
        """Ask it to end, and make sure."""
        process, self._client = self._process, None
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await process.wait()
        except (TimeoutError, asyncio.CancelledError):
            process.kill()
            await process.wait()
            raise

    async def linked(self, count: int) -> None:
        """Wait until it has so many links. StoreError where it does not get them."""
        end = time.perf_counter() + PATIENCE_S
        while sum(peer.linked for peer in await self.client.peers()) < count:
            if time.perf_counter() > end:
                raise StoreError(f"no {count} nodes linked to each other on this machine: see `meshnode doctor`")
            await asyncio.sleep(LOOK_S)

    async def commits(self) -> int:
        """How many transactions it committed."""
        metrics = {metric.name: metric for metric in await self.client.metrics()}
        samples = metrics["meshnode_commit_seconds"].samples
        return int(next(each.value for each in samples if each.suffix == "_count"))

    def peak_mb(self) -> float:
        """The most that it ever had in memory."""
        return memory_mb(self.pid, peak=True)

    async def has(self, sql: str, *values: object) -> float:
        """When its database first answers this query with a row, by `time.perf_counter`; StoreError if it does not."""
        with looking_at(self.home.database_path) as database:
            end = time.perf_counter() + PATIENCE_S
            while database.execute(sql, values).fetchone() is None:
                if time.perf_counter() > end:
                    raise StoreError(f"what was written at one node did not reach the other within {PATIENCE_S:g} s")
                await asyncio.sleep(LOOK_S / 2)
        return time.perf_counter()

    async def _answers(self) -> bool:
        with suppress(MeshError):
            self._client = await ControlClient.connect(self.home)
        return self._client is not None

"""The demo's actors: node processes, each with a home of its own, driven with the ordinary verbs and control socket."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from meshnode.control.client import ControlClient
from meshnode.errors import MeshError, StoreError
from meshnode.node.home import Home
from meshnode.node.views import Status

START_S = 20.0  # seconds a node process has to answer on its control socket
LOOK_S = 0.05  # seconds between looks at a starting process


@dataclass(slots=True)
class Actor:
    """One device of the story: its name, its home, and its running process, if any."""

    name: str
    home: Path
    extra: Sequence[str] = ()
    process: asyncio.subprocess.Process | None = None
    log: Path = field(init=False)
    _node: ControlClient | None = None

    def __post_init__(self) -> None:
        self.log = self.home.with_name(f"{self.name}.log")

    @property
    def node(self) -> ControlClient:
        """Operations of the running node."""
        assert self._node is not None, f"{self.name} was not started"
        return self._node

    async def verb(self, *arguments: str, stdin: str = "") -> str:
        """Run one verb to its end and return what it printed; raises StoreError with its error line."""
        process = await asyncio.create_subprocess_exec(
            *self._command(*arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate(stdin.encode())
        if process.returncode:
            raise StoreError(f"`meshnode {arguments[0]}` failed on {self.name}: {err.decode(errors='replace').strip()}")
        return out.decode()

    async def verb_json(self, *arguments: str, stdin: str = "") -> object:
        """Run one verb with `--output json` and return its value."""
        return json.loads(await self.verb(*arguments, "--output", "json", stdin=stdin))

    async def start(self) -> None:
        """Run `meshnode up` and return once it answers."""
        self._node = None  # a new control socket is a new address
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self._command("up", *self.extra), stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            async with asyncio.timeout(START_S):
                while not await self._answers():
                    if self.process.returncode is not None:
                        raise StoreError(f"the node {self.name} ended while starting: {self._last_words()}")
                    await asyncio.sleep(LOOK_S)
        except TimeoutError as error:
            raise StoreError(f"the node {self.name} did not answer within {START_S:g} s: see {self.log}") from error

    async def kill(self) -> int:
        """SIGKILL: no goodbye, nothing flushed. Returns the process id."""
        assert self.process is not None
        self.process.kill()
        await self.process.wait()
        return self.process.pid

    async def stop(self) -> None:
        """Ask a running node to end, and make sure."""
        if self.process is None or self.process.returncode is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(START_S):
                await self.process.wait()
        except TimeoutError:
            await self.kill()

    @property
    def running(self) -> bool:
        """Whether its process lives."""
        return self.process is not None and self.process.returncode is None

    async def status(self) -> Status | None:
        """How it is; None while it does not answer."""
        if self._node is None or not self.running:
            return None
        try:
            return await self._node.status()
        except MeshError:
            return None

    async def _answers(self) -> bool:
        try:
            self._node = await ControlClient.connect(Home(self.home))
        except MeshError:
            return False
        return self._node is not None

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "meshnode", "--home", os.fspath(self.home), *arguments]

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

"""Runs an HTTP application on a socket that listens already, inside the event loop of the node."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import uvicorn
from starlette.types import ASGIApp

from meshnode.control.connection import Connection
from meshnode.errors import ConfigError

SHUTDOWN_S = 2  # seconds that requests get to finish when the node stops
BACKLOG = 64  # connections waiting to be accepted
TICK_S = 1.0  # seconds between two ticks of the server: the `Date` of its answers is one of seconds


@asynccontextmanager
async def serving(app: ASGIApp, listener: socket.socket, stopping: asyncio.Event) -> AsyncIterator[None]:
    """While it is entered requests are answered; `stopping` is set when it is left, for answers that take long."""
    config = uvicorn.Config(
        app,
        interface="asgi3",
        loop="none",
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    started = asyncio.ensure_future(server.ready.wait())
    await asyncio.wait({task, started}, return_when=asyncio.FIRST_COMPLETED)
    if not started.done():
        started.cancel()
        await task  # raises what went wrong
        raise ConfigError("a server ended while it was starting")
    try:
        yield
    finally:
        stopping.set()
        server.leave()
        await task


def loopback_listener(port: int = 0, setting: str = "") -> socket.socket:
    """A TCP socket that this machine alone reaches, on any port with 0; ConfigError where it cannot be had.

    `setting` is what names the port.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # elsewhere it would let another program take the port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        listener.close()
        where = f"TCP port {port}" if port else "TCP"
        why = f"cannot listen on {where} of the loopback interface: {error.strerror or error}"
        if setting:
            why += f"; stop the program that has it, or choose another: `meshnode config set {setting} N`"
        raise ConfigError(f"{setting}: {why}" if setting else why) from error
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


class _Server(uvicorn.Server):
    """Leaves the process's signals to whoever runs the node, and says when it is ready.

    uvicorn itself looks ten times a second whether it is to end, which was a third of what an idle node did.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self._leaving = asyncio.Event()

    def leave(self) -> None:
        """End, at once."""
        self.should_exit = True
        self._leaving.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # each tick says what time it is
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._leaving.wait()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what was asked, for SHUTDOWN_S, and hang up on the rest.

        Uvicorn's own cancels what is left without an answer, and logs each as a fault.
        """
        for server in self.servers:
            server.close()
        for listener in sockets or ():
            listener.close()
        state = self.server_state
        connections = [each for each in state.connections if isinstance(each, Connection)]
        for each in connections:
            each.shutdown()
        left = {asyncio.ensure_future(each.lost.wait()) for each in connections} | state.tasks
        if left:
            _, left = await asyncio.wait(left, timeout=SHUTDOWN_S)
        for each in [each for each in connections if each in state.connections]:
            each.give_up()
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=SHUTDOWN_S)

"""Serves the control API on a Unix socket of mode 0600, or on loopback TCP with a token where there is none."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

import uvicorn

from meshnode.control.address import unix_socket_usable
from meshnode.control.app import control_app
from meshnode.errors import ConfigError
from meshnode.node.api import Operations
from meshnode.node.home import Home
from meshnode.node.private import write_private

SHUTDOWN_S = 2  # seconds that requests get to finish when the node stops
_BACKLOG = 64  # connections waiting to be accepted


class ControlServer:
    """An async context manager: while it is entered, other processes of the same user reach the node.

    Whoever enters it holds the home's lock, so what an earlier process left behind may be replaced.
    """

    def __init__(self, operations: Operations, home: Home) -> None:
        self._operations = operations
        self._home = home
        self._stopping = asyncio.Event()
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> ControlServer:
        token = None if unix_socket_usable(self._home.socket_path) else secrets.token_urlsafe(32)
        listener = _unix_listener(self._home.socket_path) if token is None else _tcp_listener()
        app = control_app(self._operations, token=token, stopping=self._stopping)
        config = uvicorn.Config(
            app,
            loop="none",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_S,
        )
        self._server = _Server(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]))
        started = asyncio.ensure_future(self._server.ready.wait())
        await asyncio.wait({self._task, started}, return_when=asyncio.FIRST_COMPLETED)
        if not started.done():
            started.cancel()
            await self._task  # raises what went wrong
            raise ConfigError("the control server ended while it was starting")
        if token is not None:
            address = {"port": listener.getsockname()[1], "token": token}
            write_private(self._home.token_path, json.dumps(address).encode())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._stopping.set()
        for path in (self._home.socket_path, self._home.token_path):
            with suppress(OSError):
                path.unlink(missing_ok=True)
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await self._task


class _Server(uvicorn.Server):
    """Leaves the process's signals to whoever runs the node, and says when it is ready."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


def _unix_listener(path: Path) -> socket.socket:
    """Bound under another name, made private, and only then listening: at no moment can others connect."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        draft.unlink(missing_ok=True)
        listener.bind(str(draft))
        draft.chmod(0o600)
        listener.listen(_BACKLOG)
        draft.replace(path)
    except OSError as error:
        listener.close()
        draft.unlink(missing_ok=True)
        raise ConfigError(f"cannot make the control socket {path}: {error}") from error
    listener.setblocking(False)
    return listener


def _tcp_listener() -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind(("127.0.0.1", 0))
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen on the loopback interface: {error}") from error
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener

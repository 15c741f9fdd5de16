"""Serves the control API on a Unix socket of mode 0600, or on loopback TCP with a token where there is none."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import TracebackType

from meshnode.control.address import control_address, unix_socket_usable
from meshnode.control.app import Answer, control_app
from meshnode.control.dashboard_port import DashboardPort
from meshnode.control.dashboardview import way_in
from meshnode.control.http import Exchange
from meshnode.control.operations.node import OPEN_DASHBOARD, PING
from meshnode.control.serving import BACKLOG, loopback_listener, serving
from meshnode.errors import BusyError, ConfigError, MeshError
from meshnode.node.api import Operations
from meshnode.node.home import Home
from meshnode.node.private import write_private

ANSWER_S = 2.0  # seconds that whoever may serve this home already has to answer


class ControlServer:
    """An async context manager: while it is entered, other processes of the same user reach the node.

    Whoever enters it holds the home's lock, so what an earlier process left behind may be replaced.
    """

    def __init__(self, operations: Operations, home: Home, *, dashboard_port: int = 0) -> None:
        self._operations = operations
        self._dashboard = DashboardPort(operations, dashboard_port, way_in(home.path), home.dashboard_port_path)
        self._home = home
        self._stopping = asyncio.Event()
        self._entered = AsyncExitStack()

    async def __aenter__(self) -> ControlServer:
        await self._refuse_second()
        token = None if unix_socket_usable(self._home.socket_path) else secrets.token_urlsafe(32)
        listener = _unix_listener(self._home.socket_path) if token is None else loopback_listener()
        answers: dict[str, Answer] = {OPEN_DASHBOARD.name: lambda _node, _arguments: self._dashboard.open()}
        app = control_app(self._operations, token=token, stopping=self._stopping, answers=answers)
        self._dashboard.clear()
        self._entered.push_async_callback(self._dashboard.close)
        await self._entered.enter_async_context(serving(app, listener, self._stopping))
        if token is not None:
            address = {"port": listener.getsockname()[1], "token": token}
            write_private(self._home.token_path, json.dumps(address).encode())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for path in (self._home.socket_path, self._home.token_path):
            with suppress(OSError):
                path.unlink(missing_ok=True)
        await self._entered.aclose()

    async def _refuse_second(self) -> None:
        """BusyError where another one answers for this home: its socket is not to be taken away from it.

        What a killed node left behind is nobody's, and a port that it had may be another program's by now.
        """
        address = control_address(self._home)
        exchange = await Exchange.open(address) if address is not None else None
        if exchange is None:
            return
        try:
            async with asyncio.timeout(ANSWER_S):
                answers = address is None or address.path is not None or await exchange.ask(PING.path, b"") == 200
        except (MeshError, TimeoutError):
            answers = False
        finally:
            await exchange.close()
        if answers:
            raise BusyError(f"the node in {self._home.path} is served already: stop the other one first")


def _unix_listener(path: Path) -> socket.socket:
    """Bound under another name, made private, and only then listening: at no moment can others connect."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        draft.unlink(missing_ok=True)
        listener.bind(str(draft))
        draft.chmod(0o600)
        listener.listen(BACKLOG)
        draft.replace(path)
    except OSError as error:
        listener.close()
        draft.unlink(missing_ok=True)
        raise ConfigError(f"cannot make the control socket {path}: {error}") from error
    listener.setblocking(False)
    return listener

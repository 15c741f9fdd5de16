"""How many connections an HTTP server of the node holds, and how long each may take to say what it wants.

Every program of this machine can open connections to a TCP port of loopback, and each takes a descriptor that the node
needs for its database, its settings and its links.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS: Final = 128  # of one server; against a program that opens them without end
REQUEST_S: Final = 10.0  # seconds until a connection has brought the head of a request; against one that never does


class BoundedProtocol(H11Protocol):
    """One connection: the oldest that asks for nothing makes room, and where all ask for something there is none."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._since = 0.0
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request, or make room for one that waits for less long."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > CONNECTIONS:
            idle = [each for each in self.connections if isinstance(each, BoundedProtocol) and each._patience]
            min(idle, key=lambda each: each._since)._refuse()

    def data_received(self, data: bytes) -> None:
        """Some more of a request."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._wait()
        super().on_response_complete()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing to wait for any more."""
        self._rest()
        super().connection_lost(exc)

    def _look(self) -> None:
        """A request that is under way, as one that follows changes is, may take its time."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._rest()

    def _wait(self) -> None:
        self._rest()
        self._since = self.loop.time()
        self._patience = self.loop.call_later(REQUEST_S, self._refuse)

    def _rest(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _refuse(self) -> None:
        self._rest()
        self.connections.discard(self)  # it counts no more, whenever its end is noticed
        self.transport.abort()

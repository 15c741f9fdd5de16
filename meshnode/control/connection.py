"""One HTTP connection of this machine: uvicorn's, with bounds on how many there are and how long one says nothing.

What it answers by itself, before there is a request, is an error as of any operation. The bounds are against a mistaken
program of the same user, or of any where it is a port: file descriptors that it takes are missing to the links and the
database.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from meshnode.control.answering import JSON_TYPE, STOPPED
from meshnode.control.failures import failure_of
from meshnode.errors import BusyError, MeshError, TransportError, UsageError
from meshnode.model.logevent import LogEvent, log_event
from meshnode.node.jsonvalues import to_json

LOG = logging.getLogger("meshnode.control")

CONNECTIONS: Final = 64  # at a time, streams among them; against a program that opens them and never ends
HEAD_S: Final = 10.0  # seconds in which the head of a request has to be here, from when nothing else is under way
KNOWN: Final = "meshnode.known"  # in a request's scope, where some are strangers: whether this one is not
STALLED_S: Final = 60.0  # seconds for which an answer was not read, from which its connection makes room for others


class Heard(logging.Logger):
    """What uvicorn has to say of a connection: what strangers send is answered and no line, a fault of ours is one.

    It is no logger that another part of the program could have, or silence: uvicorn's own may be in use beside us.
    """

    def handle(self, record: logging.LogRecord) -> None:
        """Say it as an event."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, asyncio.CancelledError):
            return  # the node stops
        log_event(LOG, logging.ERROR, LogEvent.FAULT, trace=error or False, work="an answer over HTTP")


class Connection(H11Protocol):
    """Counts, and keeps time."""

    _late: asyncio.TimerHandle | None = None
    _since = 0.0  # when it began to wait for a request
    _stalled_from: float | None = None

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.logger = Heard("meshnode.control", logging.ERROR)
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS and not self._make_room():
            self._turn_away(503, BusyError(f"{CONNECTIONS} connections are open already: end some, or try again"))
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_waiting()
        self.lost.set()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        self._await_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._await_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled_from = self.loop.time()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stalled_from = None

    def shutdown(self) -> None:
        """The node stops: what was not asked to its end is not begun any more, what was is answered."""
        if self.cycle is None or self.cycle.response_complete:
            self._stop_waiting()
            self.transport.close()
        elif self.cycle.more_body:
            self._turn_away(503, TransportError(STOPPED))
        else:
            self.cycle.keep_alive = False

    def give_up(self) -> None:
        """It took too long: say so where nothing was said yet, and hang up whoever reads."""
        self._turn_away(503, TransportError(STOPPED))
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """What came is no HTTP."""
        self._turn_away(400, UsageError("this is no HTTP request, or its head is too large"))

    def _await_head(self) -> None:
        """The time runs while no request is under way; bytes that come do not lengthen it."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()
        elif self._late is None and not self.transport.is_closing():
            late = UsageError(f"no request was here within {HEAD_S:.0f} seconds")
            self._since = self.loop.time()
            self._late = self.loop.call_later(HEAD_S, self._turn_away, 408, late)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _patience_s(self) -> float:
        """For how long it may leave an answer unread that others wait for: a stranger's is small, and kept by none."""
        return STALLED_S if self.scope is None or self.scope.get(KNOWN, True) else 0.0

    def _make_room(self) -> bool:
        """End who asks for nothing for longest, else who has not read for longest, if that is long."""
        idle = [each for each in self.connections if isinstance(each, Connection) and each._late is not None]
        if idle:
            oldest = min(idle, key=lambda each: each._since)
            oldest._stop_waiting()
            self.connections.discard(oldest)  # it counts no more, whenever its end is noticed
            oldest.transport.abort()
            return True
        stalled = [(each._stalled_from, each) for each in self.connections if isinstance(each, Connection)]
        since = [(at, each) for at, each in stalled if at is not None and self.loop.time() - at >= each._patience_s()]
        if not since:
            return False
        min(since, key=lambda pair: pair[0])[1].transport.abort()
        return True

    def _turn_away(self, status: int, error: MeshError) -> None:
        """Say why, where nothing was said yet, and hang up."""
        self._stop_waiting()
        if self.transport.is_closing():
            return
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = to_json(failure_of(error)).encode() + b"\n"
            headers = [("Content-Type", JSON_TYPE), ("Content-Length", str(len(body))), ("Connection", "close")]
            for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

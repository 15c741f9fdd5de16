"""Signs of life of one connection: PINGs with an answer, and the keep-alive of a silent one (profile §7)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

from meshnode.net.aioquic_private import MutualConnection

_NOBODY_WAITS = 0


class Pulse:
    """Sends PINGs; `wake` asks for them to be transmitted."""

    def __init__(self, quic: MutualConnection, wake: Callable[[], None], interval_s: float) -> None:
        self._quic = quic
        self._wake = wake
        self._interval_s = interval_s
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: dict[int, asyncio.Future[bool]] = {}
        self._numbers = count(_NOBODY_WAITS + 1)
        self._stopped = False

    def heard(self) -> None:
        """A datagram came."""
        self._heard_at = self._loop.time()

    def start(self) -> None:
        """Keep the connection alive from now on."""
        self._timer = self._loop.call_later(self._interval_s, self._beat)

    def stop(self) -> None:
        """The connection is over: every PING goes unanswered."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_result(False)
        self._waiting.clear()

    def answered(self, number: int) -> None:
        """The peer acknowledged the PING of that number."""
        answer = self._waiting.pop(number, None)
        if answer is not None and not answer.done():
            answer.set_result(True)

    def nudge(self) -> None:
        """A PING whose answer is only a sign of life."""
        self._quic.send_ping(_NOBODY_WAITS)
        self._wake()

    @property
    def unanswered_s(self) -> float:
        """For how long the peer has acknowledged nothing though it was to: data in flight asks as a PING does."""
        since = self._quic.unanswered_since
        return 0.0 if since is None else self._loop.time() - since

    async def ping(self, seconds: float) -> bool:
        """Whether the peer acknowledges a PING within that time."""
        if self._stopped:
            return False
        number = next(self._numbers)
        answer: asyncio.Future[bool] = self._loop.create_future()
        self._waiting[number] = answer
        self._quic.send_ping(number)
        self._wake()
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            return False
        finally:
            self._waiting.pop(number, None)

    def _beat(self) -> None:
        wait = self._interval_s - (self._loop.time() - self._heard_at)
        if wait <= 0:
            self.nudge()
            wait = self._interval_s
        self._timer = self._loop.call_later(wait, self._beat)

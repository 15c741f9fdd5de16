"""Two connections on a path without sockets, in virtual time: a test says what it carries, loses and delays."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from aioquic.quic.events import QuicEvent, StreamDataReceived

from meshnode.limits import DATAGRAM_SIZES
from meshnode.net.aioquic_private import MutualConnection, configuration
from support.quic import ALICE, BOB, identity

CLIENT, SERVER = ("192.0.2.1", 1), ("192.0.2.2", 2)
_STREAM = 0


class Side:
    """One end, its address, and what came to it."""

    def __init__(self, quic: MutualConnection, address: tuple[str, int]) -> None:
        self.quic = quic
        self.address = address
        self.events: list[QuicEvent] = []
        self.received = 0  # bytes of the stream


class Wire:
    """`carries` says which datagrams arrive (size, time), `takes` what the interface lets out; 10 ms each way."""

    def __init__(
        self, carries: Callable[[int, float], bool] = lambda size, now: True, *, delay_s: float = 0.01
    ) -> None:
        self.now = 1000.0
        self.carries = carries
        self.takes: Callable[[int], bool] = lambda size: True
        self.sent: list[int] = []  # sizes, by either side
        self.handshake: list[int] = []  # those of them with a long header
        self._delay_s = delay_s
        self._numbers = count()
        self._flying: list[tuple[float, int, Side, bytes]] = []
        self.client = Side(self._connection(is_client=True), CLIENT)
        self.server = Side(
            self._connection(is_client=False, original=self.client.quic.original_destination_connection_id), SERVER
        )
        self.client.quic.connect(SERVER, now=self.now)
        self._transmit(self.client)
        self.until(lambda: self.client.quic.confirmed and self.server.quic.confirmed)

    def _connection(self, *, is_client: bool, original: bytes | None = None) -> MutualConnection:
        key = ALICE if is_client else BOB
        alpns = ["ssp/1"]
        settings = configuration(identity(key), is_client=is_client, alpns=alpns, idle_s=30, window=2**21)
        return MutualConnection(
            configuration=settings, datagram_sizes=DATAGRAM_SIZES, original_destination_connection_id=original
        )

    # --- what a test does

    def send(self, side: Side, size: int) -> None:
        """Bytes on the client's first stream."""
        side.quic.send_stream_data(_STREAM, bytes(size))
        self._transmit(side)

    def ping(self, side: Side) -> None:
        side.quic.send_ping(1)
        self._transmit(side)

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        end = self.now + seconds
        while (at := self._next()) is not None and at <= end:
            self._step(at)
        self.now = end

    def until(self, condition: Callable[[], bool], within_s: float = 60.0) -> float:
        """Let time pass until it holds, and say how much that was."""
        begun = self.now
        while not condition():
            at = self._next()
            assert at is not None, "nothing will ever happen any more"
            assert at <= begun + within_s, f"not within {within_s} s"
            self._step(at)
        return self.now - begun

    # --- how it works

    def _next(self) -> float | None:
        timers = [at for side in (self.client, self.server) if (at := side.quic.get_timer()) is not None]
        return min([*timers, *(self._flying[0][:1])] if self._flying else timers, default=None)

    def _step(self, at: float) -> None:
        self.now = max(self.now, at)
        while self._flying and self._flying[0][0] <= self.now:
            _, _, side, data = heapq.heappop(self._flying)
            other = self.server if side is self.client else self.client
            side.quic.receive_datagram(data, other.address, now=self.now)
            self._transmit(side)
        for side in (self.client, self.server):
            timer = side.quic.get_timer()
            if timer is not None and timer <= self.now:
                side.quic.handle_timer(now=self.now)
                self._transmit(side)

    def _transmit(self, side: Side) -> None:
        while (event := side.quic.next_event()) is not None:
            side.events.append(event)
            side.received += len(event.data) if isinstance(event, StreamDataReceived) else 0
        other = self.server if side is self.client else self.client
        for data, address in side.quic.datagrams_to_send(now=self.now):
            self.sent.append(len(data))
            if data[0] & 0x80:
                self.handshake.append(len(data))
            if not self.takes(len(data)):
                side.quic.refused(len(data), self.now)
            elif self.carries(len(data), self.now) and address == other.address:
                heapq.heappush(self._flying, (self.now + self._delay_s, next(self._numbers), other, data))

"""A relay of UDP datagrams in user space that loses, delays and changes its port, all from one seed.

netem is not in every kernel; this is where a test's weather comes from. Whoever dials its address reaches `target`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

Address = tuple[str, int]
HOST = "127.0.0.1"


@dataclass
class Weather:
    """May be changed while it runs."""

    loss: float = 0.0  # of datagrams, each way
    delay_s: float = 0.0  # each way
    carries: int = 65_535  # bytes of a datagram


class Relay:
    """One dialer on one side, `target` on the other."""

    def __init__(self, target: Address, weather: Weather, seed: int) -> None:
        self.weather = weather
        self.lost = 0
        self.carried = 0
        self._target = target
        self._source = random.Random(seed)
        self._dialer: Address | None = None
        self._front: asyncio.DatagramTransport
        self._back: asyncio.DatagramTransport
        self._closed = False

    @property
    def port(self) -> int:
        """Where it is dialed."""
        return int(self._front.get_extra_info("sockname")[1])

    @property
    def back_port(self) -> int:
        """Where the target sees the dialer."""
        return int(self._back.get_extra_info("sockname")[1])

    async def open(self) -> None:
        self._front = await self._bind(self._from_dialer)
        self._back = await self._bind(self._from_target)

    async def rebind(self) -> None:
        """As a NAT that forgot its mapping: another port from here on, and whatever comes to the old one is lost."""
        old, self._back = self._back, await self._bind(self._from_target)
        old.close()

    def close(self) -> None:
        self._closed = True
        self._front.close()
        self._back.close()

    async def _bind(self, received: Callable[[bytes, Address], None]) -> asyncio.DatagramTransport:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: _Protocol(received), local_addr=(HOST, 0))
        return transport

    def _from_dialer(self, data: bytes, address: Address) -> None:
        self._dialer = address
        self._carry(data, to_target=True)

    def _from_target(self, data: bytes, address: Address) -> None:
        self._carry(data, to_target=False)

    def _carry(self, data: bytes, *, to_target: bool) -> None:
        if len(data) > self.weather.carries or self._source.random() < self.weather.loss:
            self.lost += 1
            return
        self.carried += 1
        asyncio.get_running_loop().call_later(self.weather.delay_s, self._deliver, data, to_target)

    def _deliver(self, data: bytes, to_target: bool) -> None:
        if self._closed:
            return
        if to_target:
            self._back.sendto(data, self._target)
        elif self._dialer is not None:
            self._front.sendto(data, self._dialer)


class _Protocol(asyncio.DatagramProtocol):
    def __init__(self, received: Callable[[bytes, Address], None]) -> None:
        self._received = received

    def datagram_received(self, data: bytes, address: Address) -> None:
        self._received(data, address)


@asynccontextmanager
async def relay(port: int, weather: Weather | None = None, *, seed: int = 1) -> AsyncIterator[Relay]:
    """One in front of a port on loopback."""
    opened = Relay((HOST, port), weather or Weather(), seed)
    await opened.open()
    try:
        yield opened
    finally:
        opened.close()

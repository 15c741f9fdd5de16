"""How much work mDNS datagrams may make: a part of one core, and of that a part for each host (profile §11, §12).

A datagram costs its reader far more than its sender. What is beyond the budget is dropped unread, as a full socket
would drop it: mDNS repeats itself, and a host that floods the network loses its own words and nobody else's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

CORE: Final = 0.4  # seconds of work per second, for all hosts; against floods from many addresses
HOST: Final = 0.2  # the same for one address
BURST_S: Final = 0.5  # seconds of work that may be done at once by whoever was silent
HOSTS: Final = 256  # addresses told apart; the others share one account

_OTHERS: Final = ""


@dataclass(slots=True)
class _Account:
    left_s: float
    at: float


class Budget:
    """Seconds of work that are left, for all and for each host. Time is an argument."""

    def __init__(self) -> None:
        self._all = _Account(BURST_S, 0.0)
        self._hosts: dict[str, _Account] = {}

    def admits(self, host: str, now: float) -> bool:
        """Whether a datagram of this host is to be read."""
        return _refilled(self._all, CORE, now).left_s > 0 and self._account(host, now).left_s > 0

    def spent(self, host: str, seconds: float, now: float) -> None:
        """Reading it took so long."""
        for account in (self._all, self._account(host, now)):
            account.left_s -= seconds

    def _account(self, host: str, now: float) -> _Account:
        known = self._hosts.get(host)
        if known is None:
            if len(self._hosts) >= HOSTS:
                self._forget_silent(now)
            if len(self._hosts) >= HOSTS:
                host = _OTHERS
            known = self._hosts.setdefault(host, _Account(BURST_S, now))
        return _refilled(known, HOST, now)

    def _forget_silent(self, now: float) -> None:
        """Whoever has a full account again is as one who never said anything."""
        for host, account in list(self._hosts.items()):
            if _refilled(account, HOST, now).left_s >= BURST_S:
                del self._hosts[host]


def _refilled(account: _Account, share: float, now: float) -> _Account:
    account.left_s = min(BURST_S, account.left_s + share * max(0.0, now - account.at))
    account.at = now
    return account


class Paced(asyncio.DatagramProtocol):
    """Stands between a socket and the library that reads from it."""

    def __init__(self, reader: Any, budget: Budget, clock: Callable[[], float]) -> None:
        self._reader = reader
        self._budget = budget
        self._clock = clock

    def datagram_received(self, data: bytes, addr: Any) -> None:
        """Read it, if there is work left for its host."""
        host, begun = str(addr[0]), self._clock()
        if self._budget.admits(host, begun):
            try:
                self._reader.datagram_received(data, addr)
            finally:
                ended = self._clock()
                self._budget.spent(host, ended - begun, ended)

    def error_received(self, exc: Exception) -> None:
        self._reader.error_received(exc)

    def connection_lost(self, exc: Exception | None) -> None:
        self._reader.connection_lost(exc)

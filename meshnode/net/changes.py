"""Notices that this machine's network is another one, or that it slept: both end paths without a word (profile §11)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from meshnode.net.interfaces import Interface

T = TypeVar("T")

LOOK_S = 1.0  # seconds between two looks
TRUSTED_S = 30.0  # seconds for which a look holds where the kernel would tell of a change
SETTLE_S = 0.05  # seconds after a change until the look at it: an address often goes and another one comes
SLEPT_S = 5.0  # seconds later than due from which a look means that the machine, or this process, stood still


@dataclass(frozen=True, slots=True)
class Look:
    """What one look saw. The wall clock goes on while a machine sleeps, the monotonic one of Linux does not."""

    monotonic_s: float
    wall_s: float
    interfaces: tuple[Interface, ...]


def changed(before: Look, after: Look) -> bool:
    """Whether paths may have ended in between; a clock that was set looks like sleep, and costs a PING per link."""
    late = max(after.monotonic_s - before.monotonic_s, after.wall_s - before.wall_s) - LOOK_S
    return before.interfaces != after.interfaces or late >= SLEPT_S


class Remembered(Generic[T]):
    """What a look at this machine's interfaces found, for as long as the kernel does not say that it changed.

    A look costs milliseconds, reads many files of sysfs, and is wanted every second. Where the kernel tells nothing
    each one is made; where it does, one is made all the same now and then, as a message that was lost is told by none.
    """

    def __init__(self, look: Callable[[], T], now: Callable[[], float]) -> None:
        self.trusted = False  # the kernel tells of changes
        self._look, self._now = look, now
        self._found: T | None = None
        self._until = 0.0

    def look(self) -> T:
        """What there is; what the look raises, and the next one looks again."""
        if self._found is not None and self.trusted and self._now() < self._until:
            return self._found
        self._found = None
        found = self._look()
        self._found, self._until = found, self._now() + TRUSTED_S
        return found

    def forget(self) -> None:
        """It may be otherwise by now."""
        self._found = None


class KernelNews:
    """Linux says when a link or an address changes, so that nobody has to wait for a look; elsewhere looks are all."""

    _GROUPS = 0x1 | 0x10 | 0x100  # RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR

    def __init__(self, heard: Callable[[], None]) -> None:
        self._heard = heard
        self._loop = asyncio.get_running_loop()
        self._sock: socket.socket | None = None
        if sys.platform == "linux":
            with contextlib.suppress(OSError):
                self._sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
                self._sock.setblocking(False)
                self._sock.bind((0, self._GROUPS))
                self._loop.add_reader(self._sock, self._read)

    @property
    def listening(self) -> bool:
        """Whether the kernel tells; elsewhere nothing is known of what nobody looked at."""
        return self._sock is not None

    def close(self) -> None:
        """Listen no more."""
        if self._sock is not None:
            self._loop.remove_reader(self._sock)
            self._sock.close()
            self._sock = None

    def _read(self) -> None:
        """What it says is not looked at: the interfaces are."""
        with contextlib.suppress(OSError):  # there is no more, or more than there was room for
            while self._sock is not None:
                self._sock.recv(65_536)
        self._heard()

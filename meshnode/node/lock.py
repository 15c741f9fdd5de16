"""The home's lock: one writer per node, and a name for whoever holds it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import msgspec

from meshnode.errors import BusyError, ConfigError, reason_of

LOCK_WAIT_S = 10.0  # seconds that a writing verb waits for the lock
LOCK_POLL_S = 0.05  # seconds between two looks: flock cannot be waited for on an event loop
_HOLDER_BYTES = 4096  # what is read of a lock file, whoever wrote it
_WINDOWS_OFFSET = 1 << 30  # the byte locked on Windows, beyond the text so that others can read it

T = TypeVar("T")


class Holder(msgspec.Struct, frozen=True):
    """Who holds the lock: written into it after taking it."""

    pid: int
    verb: str
    since_ms: int


class HomeLock:
    """A lock that is held until `release`, or until the process ends in whatever way."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Let the next one in. The file stays: removing it would let two processes lock two files."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> HomeLock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


def try_lock(path: Path, verb: str) -> HomeLock | None:
    """Take the lock now, or return None because somebody has it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot open the lock {path}: {reason_of(error)}") from error
    try:
        _lock_descriptor(descriptor)
    except OSError:
        os.close(descriptor)
        return None
    holder = Holder(pid=os.getpid(), verb=verb, since_ms=time.time_ns() // 1_000_000)
    with suppress(OSError):  # a full disk: the lock holds all the same, only without a name
        os.ftruncate(descriptor, 0)
        os.write(descriptor, msgspec.json.encode(holder))
    return HomeLock(descriptor)


def holder_of(path: Path) -> Holder | None:
    """Who says in the lock file that it holds it; None where it says nothing."""
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(_HOLDER_BYTES), type=Holder)
    except (OSError, msgspec.MsgspecError):
        return None


async def lock_or(
    path: Path, verb: str, instead: Callable[[], Awaitable[T | None]], *, wait_s: float = LOCK_WAIT_S
) -> HomeLock | T:
    """The lock, or what `instead` finds meanwhile (a running node's control socket); after `wait_s`, BusyError."""
    loop = asyncio.get_running_loop()
    end = loop.time() + wait_s
    while True:
        found = await instead()
        if found is not None:
            return found
        lock = try_lock(path, verb)
        if lock is not None:
            return lock
        if loop.time() >= end:
            raise BusyError(busy_text(path))
        await asyncio.sleep(LOCK_POLL_S)


async def lock_alone(path: Path, verb: str, *, wait_s: float = LOCK_WAIT_S) -> HomeLock:
    """The lock; after `wait_s`, BusyError that names who holds it."""

    async def nothing() -> None:
        return None

    lock: HomeLock | None = await lock_or(path, verb, nothing, wait_s=wait_s)
    assert lock is not None
    return lock


def busy_text(path: Path) -> str:
    """What to tell a person whose verb could not get the lock."""
    holder = holder_of(path)
    who = f"process {holder.pid} ({_named(holder.verb)})" if holder else "another process"
    return f"{who} holds the node in {path.parent}: wait for it to finish, or stop it"


def _named(verb: str) -> str:
    return verb if verb.startswith("an ") else f"`meshnode {verb}`"


def _lock_descriptor(descriptor: int) -> None:
    """Lock or raise OSError at once."""
    if os.name == "posix":
        import fcntl  # absent on Windows

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        import msvcrt  # present on Windows only

        os.lseek(descriptor, _WINDOWS_OFFSET, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        os.lseek(descriptor, 0, os.SEEK_SET)

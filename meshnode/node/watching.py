"""Noticing that a file was saved: it is looked at now and then, and taken once two looks found the same."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3

from meshnode.limits import CONFIG_BYTES
from meshnode.node.private import open_file

LOOK_S = 2.0  # seconds between two looks


@dataclass(frozen=True, slots=True)
class Stamp:
    """What tells a file from what it was: a save in place, one by rename, and one within the same tick of the clock."""

    device: int
    inode: int
    size: int
    digest: bytes


class Settling:
    """Says once of every state of a file that it may be read: a save that is under way is left to end."""

    __slots__ = ("_before", "_taken")

    def __init__(self) -> None:
        self._taken: Stamp | str = "never"
        self._before: Stamp | str = "never"

    def look(self, stamp: Stamp | str) -> bool:
        """Whether the file is another than was said last, and was so the last time as well."""
        settled, self._before = stamp == self._before, stamp
        if not settled or stamp == self._taken:
            return False
        self._taken = stamp
        return True

    def again(self) -> None:
        """What was said last could not be acted on."""
        self._taken = "never"


def stamp_of(path: Path) -> Stamp | str:
    """The file now, or why it cannot be read."""
    try:
        with open_file(path) as file:
            status = os.fstat(file.fileno())
            return Stamp(status.st_dev, status.st_ino, status.st_size, blake3(file.read(CONFIG_BYTES + 1)).digest())
    except OSError as error:
        return str(error)


async def watch_file(path: Path, settled: Callable[[], Awaitable[bool]], *, look_s: float = LOOK_S) -> None:
    """Until it is cancelled: call `settled` once at first and after every save; again later where it is not done.

    A disk that does not answer holds nothing else up.
    """
    settling = Settling()
    while True:
        if settling.look(await asyncio.to_thread(stamp_of, path)) and not await settled():
            settling.again()
        await asyncio.sleep(look_s)

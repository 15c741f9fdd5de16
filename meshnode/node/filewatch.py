"""Whether a file was written, told at once and at no cost where the kernel says so (inotify), else by looking at it."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from meshnode.limits import CAPTURE_LOOK_S

_MODIFY: Final = 0x2  # IN_MODIFY of <sys/inotify.h>
_FLAGS: Final = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)  # IN_NONBLOCK, IN_CLOEXEC
_READ_BYTES: Final = 64 * 1024


class FileWatch:
    """One file, which is there and stays the same one. For one event loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = asyncio.Event()
        self._stamp: tuple[int, int] | None = None
        self._descriptor = -1

    def __enter__(self) -> Self:
        self._descriptor = _inotify(self._path)
        if self._descriptor >= 0:
            asyncio.get_running_loop().add_reader(self._descriptor, self._read)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)

    async def written(self, seconds: float) -> bool:
        """Whether it was written since the last call, as soon as it is, within so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                if self._descriptor < 0:
                    await self._look()
                await self._written.wait()
        except TimeoutError:
            return False
        self._written.clear()
        return True

    def _read(self) -> None:
        os.read(self._descriptor, _READ_BYTES)
        self._written.set()

    async def _look(self) -> None:
        while True:
            try:
                found = os.stat(self._path)
                stamp = (found.st_size, found.st_mtime_ns)
            except OSError:
                stamp = (0, 0)
            if stamp != self._stamp:
                self._stamp = stamp
                self._written.set()
                return
            await asyncio.sleep(CAPTURE_LOOK_S)


def _inotify(path: Path) -> int:
    """A descriptor that can be read once the file is written; -1 where there is no such thing, or no such file."""
    if sys.platform != "linux":
        return -1
    library = ctypes.CDLL(None, use_errno=True)
    descriptor = int(library.inotify_init1(_FLAGS))
    if descriptor >= 0 and library.inotify_add_watch(descriptor, os.fsencode(path), _MODIFY) < 0:
        os.close(descriptor)
        return -1
    return descriptor

"""Files that are written beside their place, and taken away again where their process was killed or the disk was full.

A draft is locked as long as somebody writes it, so one that nobody holds was left behind: the next one in the same
folder takes it away. A file system that knows no locks (some network shares) keeps what was left.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

_PREFIX: Final = ".meshnode-draft."
_DRAFT: Final = re.compile(r"\.meshnode-draft\.[0-9a-f]{16}")
_TRIES: Final = 8  # another one may take a draft for left behind between its making and its lock


class Draft:
    """A new file in `folder` that nobody else reads; OSError where there can be none."""

    def __init__(self, folder: Path) -> None:
        _sweep(folder)
        for _ in range(_TRIES):
            self.path = folder / f"{_PREFIX}{os.urandom(8).hex()}"
            self.file = os.fdopen(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
            _lock(self.file.fileno(), wait=True)  # for who is about to take it away
            if self.path.exists():
                return
            self.file.close()
        raise OSError(None, "other programs take its draft away")

    def discard(self) -> None:
        """Close it, and take away what was not put in place."""
        with suppress(OSError):  # a full disk refuses what is still buffered
            self.file.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


def _sweep(folder: Path) -> None:
    """Take away what others left behind."""
    with suppress(OSError):
        for entry in os.scandir(folder):
            if _DRAFT.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                _take_away(Path(entry.path))


def _take_away(path: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY)
        try:
            if _lock(descriptor, wait=False):
                path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)


def _lock(descriptor: int, *, wait: bool) -> bool:
    """Hold the file until it is closed; False where somebody else does, or there are no locks."""
    try:
        import fcntl  # absent on Windows
    except ImportError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True

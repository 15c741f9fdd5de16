"""One node's disk: files that outlive its processes, and what a crash leaves of what was not yet on them.

The files lie in memory where the platform has such a folder; nothing is really synced. What SQLite would have synced is
kept account of: at each `BEGIN` all before is safe, so a crash may take, in any part, what the WAL grew by since.
"""

from __future__ import annotations

import os
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path

from sim.chance import Chance

_HEADER = 32
_FRAME_HEADER = 24
_INDEX_HEADER = struct.Struct("=IIIBBHIIII8s")  # the head of SQLite's WAL index, up to the salts


@dataclass(frozen=True, slots=True)
class WalMark:
    """How far the WAL is safe: frames of the log with these salts."""

    salts: bytes
    frames: int
    page_bytes: int

    @property
    def end(self) -> int:
        """Length of the file up to there."""
        return _HEADER + self.frames * (_FRAME_HEADER + self.page_bytes)


@dataclass(frozen=True, slots=True)
class Copy:
    """A backup of the database, taken while nothing was written."""

    database: bytes
    wal: bytes


class Disk:
    """The folder of one node; each process works on a path of its own, so that the one before can be let go."""

    def __init__(self, folder: Path, database: bytes) -> None:
        self._folder = folder
        self._generation = 0
        self._index: int | None = None
        self._safe: WalMark | None = None
        folder.mkdir(parents=True)
        self._place(Copy(database, b""))

    @property
    def path(self) -> Path:
        """The database."""
        return self._folder / f"{self._generation}" / "node.db"

    def opened(self) -> None:
        """A process has the database open."""
        self._index = os.open(f"{self.path}-shm", os.O_RDONLY)
        self._safe = self._mark()

    def begin(self) -> None:
        """A transaction begins: all before it is on the disk."""
        self._safe = self._mark()

    def copy(self) -> Copy:
        """What is there now; no transaction may be open."""
        wal = self.path.with_name("node.db-wal")
        return Copy(self.path.read_bytes(), wal.read_bytes() if wal.exists() else b"")

    def settled(self) -> Copy:
        """The same without what is behind the last commit of the WAL."""
        copy, mark = self.copy(), self._mark()
        return Copy(copy.database, copy.wal[: mark.end] if mark.frames else b"")

    def crash(self, chance: Chance, *, unsure: bool) -> str:
        """The process dies; `unsure`: the last commit was not waited for. Returns what became of it."""
        copy, safe, now = self.settled(), self._safe, self._mark()
        assert safe is not None
        wal, fate = copy.wal, "kept"
        if unsure and wal:
            start = safe.end if safe.salts == now.salts else _HEADER
            wal, fate = _torn(wal, start, chance)
        if chance.hit(0.3):  # the next frames were on their way and never became a commit
            wal += chance.data(chance.between(1, 200)) if wal else b""
        self._release()
        self._place(Copy(copy.database, wal))
        return fate

    def close(self) -> None:
        """Let go of the files."""
        self._release()

    def replace(self, copy: Copy) -> None:
        """Another copy of the database is put in place of this one; no process may have it open."""
        self._release()
        self._place(copy)

    def _mark(self) -> WalMark:
        assert self._index is not None
        head = _INDEX_HEADER.unpack(os.pread(self._index, _INDEX_HEADER.size, 0))
        return WalMark(head[-1], head[6], 65536 if head[5] == 1 else head[5])

    def _release(self) -> None:
        if self._index is not None:
            os.close(self._index)
        self._index = self._safe = None

    def _place(self, copy: Copy) -> None:
        before = self.path.parent
        self._generation += 1
        self.path.parent.mkdir()
        self.path.write_bytes(copy.database)
        if copy.wal:
            self.path.with_name("node.db-wal").write_bytes(copy.wal)
        shutil.rmtree(before, ignore_errors=True)


def _torn(wal: bytes, start: int, chance: Chance) -> tuple[bytes, str]:
    """Cut or scribble over what follows `start`: what is before it was synced."""
    if start >= len(wal) or chance.hit(0.3):
        return wal, "kept"
    at = chance.between(start, len(wal) - 1)
    if chance.hit(0.5):
        return wal[:at], "cut"
    length = min(chance.between(1, 64), len(wal) - at)
    noise = bytes(byte ^ 0xA5 for byte in wal[at : at + length])
    return wal[:at] + noise + wal[at + length :], "scribbled"

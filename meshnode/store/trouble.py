"""What an error of SQLite means to the person whose database it is: a full disk, no right to write, damage, or neither.

By SQLite's result code (sqlite.org/rescode.html), and by its text where a DB-API module tells no code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from meshnode.errors import DamagedError, NoRoomError, NotAllowedError, StoreError

FULL_BYTES: Final = (
    128 * 1024
)  # free bytes under which an I/O error is a full disk: one chunk of the WAL's index, twice

_KINDS: Final[tuple[tuple[type[StoreError], str, tuple[int, ...], tuple[str, ...]], ...]] = (
    (
        NoRoomError,
        "its disk is full: make room and try again, nothing that was written before is lost "
        "(`meshnode doctor disk` says how much is free)",
        (13,),
        ("is full",),
    ),
    (
        NotAllowedError,
        "this user may not write it, or the folder that it is in: `meshnode doctor home disk` says who may",
        (3, 8, 14),
        ("readonly", "unable to open", "access permission denied"),
    ),
    (
        DamagedError,
        "it is damaged: `meshnode doctor` says what can be done",
        (11, 26),
        ("malformed", "not a database"),
    ),
)
_FULL: Final = 13
_PERHAPS_FULL: Final = ((10, "disk I/O error"), (14, "unable to open"))  # what a full disk looks like beside the file
_DATABASE_MOVED: Final = 8 | 4 << 8  # SQLITE_READONLY_DBMOVED: it is another file now, whoever may write it


def trouble(path: Path, what: str, error: Exception) -> StoreError:
    """`what` happened to the database at `path`, as the error that says what to do about it."""
    text, extended = str(error), getattr(error, "sqlite_errorcode", 0)
    if extended == _DATABASE_MOVED:
        return StoreError(f"{what}: {text}; the file was moved or replaced meanwhile")
    code = extended & 0xFF
    if any(code == each or (not code and words in text) for each, words in _PERHAPS_FULL) and _is_full(path):
        code = _FULL
    for kind, todo, codes, words in _KINDS:
        if code in codes or (not code and any(word in text for word in words)):
            return kind(f"{what}: {text}; {todo}")
    return StoreError(f"{what}: {text}")


def _is_full(path: Path) -> bool:
    from shutil import disk_usage  # of no use to who meets no error

    try:
        return disk_usage(path.parent).free < FULL_BYTES
    except OSError:
        return False

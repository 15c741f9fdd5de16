"""Files and folders that are their owner's alone: written whole or not at all, refused where others can get at them."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from meshnode.errors import ConfigError, IdentityError, NotFoundError, reason_of

_OTHERS = 0o077  # what a mode allows to group and others


def write_private(path: Path, data: bytes, *, ready: Callable[[], None] = lambda: None) -> None:
    """Put a whole file of mode 0600 in place: it has all of its content, on disk, or is not there.

    `ready` is called at the last moment: what it raises leaves everything as it was.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        ready()
        draft.replace(path)
        sync_folder(path.parent)
    except BaseException as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise ConfigError(f"cannot write {path}: {reason_of(error)}") from error
        raise


def drafts_of(path: Path) -> list[Path]:
    """What `write_private` left behind where its process was killed."""
    return list(path.parent.glob(f".{path.name}.[0-9]*"))


def open_file(path: Path) -> BinaryIO:
    """A file to read; OSError also where it is something else: a pipe would keep whoever opens it waiting for ever."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "it is a pipe or a device, and no file", str(path))


def read_private(path: Path, limit: int) -> bytes:
    """At most `limit` bytes of a file that nobody else can read; NotFoundError, IdentityError."""
    try:
        with open_file(path) as file:
            if os.name == "posix" and os.fstat(file.fileno()).st_mode & _OTHERS:
                raise _readable(path)
            return file.read(limit)
    except FileNotFoundError as error:
        raise NotFoundError(f"{path} is missing") from error
    except OSError as error:
        raise IdentityError(f"cannot read the key file {path}: {reason_of(error)}") from error


def refuse_open_file(path: Path) -> None:
    """IdentityError where others can read a file that is there."""
    if os.name == "posix" and path.exists() and path.stat().st_mode & _OTHERS:
        raise _readable(path)


def refuse_open_folder(folder: Path) -> None:
    """IdentityError where others can get into the folder of a key: who can write there can put another in its place."""
    if os.name == "posix" and folder.exists() and folder.stat().st_mode & _OTHERS:
        raise IdentityError(
            f"the folder {folder} is open to others, and a node keeps its keys there: `chmod 700 {folder}`, "
            "or choose another --home"
        )


def _readable(path: Path) -> IdentityError:
    return IdentityError(f"{path} can be read by others: `chmod 600 {path}`, and think of who saw it")


def sync_folder(folder: Path) -> None:
    """The names in a folder are on disk when this returns."""
    if os.name != "posix":
        return  # a folder cannot be opened there, and its entries are journalled
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

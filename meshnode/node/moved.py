"""The mark of a home whose device was moved elsewhere: nothing is written or sent from it until its owner chose anew.

It is on disk before the file that the device goes on from has its name. A crash between the two leaves the draft of
that file and no file: the device was not moved, and the next start takes draft and mark away.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from meshnode.errors import IdentityError
from meshnode.node.home import Home
from meshnode.node.private import sync_folder, write_private

COPY = ".moving.database."  # how the name of a copy begins that goes into the file, or came out of it


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What the mark says."""

    file: str
    draft: str
    day: str  # as a person writes it


def moved(home: Home) -> Mark | None:
    """Where this home's device was moved to; None where it lives here."""
    mark = _read(home)
    return mark if mark is not None and not _cut_short(mark) else None


def moved_text(mark: Mark) -> str:
    """What a person has to know of it."""
    return (
        f"this device was moved on {mark.day or 'an unknown day'}: its keys and rows went into {mark.file}, and it "
        "goes on where that is imported. If that has never run and never will, `meshnode identity resume` takes the "
        "device back; `meshnode identity renew INVITE` makes this copy another device of the mesh"
    )


def refuse_moved(home: Home) -> None:
    """Raise IdentityError where the device lives elsewhere; the home is locked."""
    for copy in home.path.glob(f"{COPY}*"):  # of a moving that was cut short
        copy.unlink(missing_ok=True)
    mark = _read(home)
    if mark is None:
        return
    if not _cut_short(mark):
        raise IdentityError(moved_text(mark))
    take_back(home)  # first: without its draft the mark would count
    Path(mark.draft).unlink(missing_ok=True)


def mark_moved(home: Home, mark: Mark) -> None:
    """From here on the device lives where the file is imported."""
    write_private(home.moved_path, msgspec.json.encode(mark))


def take_back(home: Home) -> None:
    """The device lives here."""
    if home.moved_path.exists():
        home.moved_path.unlink()
        sync_folder(home.path)


def _read(home: Home) -> Mark | None:
    try:
        return msgspec.json.decode(home.moved_path.read_bytes(), type=Mark)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError):  # it is there: what it said does not matter for whether to stop
        return Mark(file="a file", draft="", day="")


def _cut_short(mark: Mark) -> bool:
    """Whether the file never got its name."""
    return bool(mark.draft) and Path(mark.draft).exists() and not Path(mark.file).exists()

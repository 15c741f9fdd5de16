"""What became of a bundle that was written or taken in, and how far it has come meanwhile."""

from __future__ import annotations

import msgspec

from meshnode.node.views import View


class ExportView(View, frozen=True, kw_only=True):
    """A bundle that is being written; `done` once it is sealed, on disk and in its place."""

    file: str
    done: bool = False
    site: str = ""  # for whom; empty: for any member
    name: str = ""
    start: int = 0  # log position up to which the receiver is known to hold everything; 0: all from the beginning
    events: int = 0
    records: int = 0
    answered: int = 0  # requests that it answers
    frames: int = 0
    bytes: int = 0
    position: int = 0  # log position up to which it carries everything
    last: int = 0  # and will


class IntakeView(View, frozen=True, kw_only=True):
    """A bundle that is being taken in; `done` once all of it was."""

    file: str
    done: bool = False
    site: str  # who wrote it
    short: str
    name: str
    events: int = 0
    verdicts: dict[str, int] = msgspec.field(default_factory=dict)  # of these events, as notices spell them
    records: int = 0  # that were not here
    records_dropped: int = 0
    records_rejected: int = 0
    frames: int = 0
    repeated: int = 0  # of them, those that had been taken in before
    settled: bool = True  # nothing of it has to come once more: the next bundle of this device acknowledges all of it
    gap: bool = False  # it goes on from what is not here: that was asked for
    bytes: int = 0  # read so far
    size: int = 0

"""What a peer's acks tell of our own events: by which time of its own clock it had them (profile §8, `ack.hlc`), pure.

An ack that settles a frame carries the peer's clock right after the commit. A later event of the peer is above it, so
its author had seen what the frame brought. An event at or below it was written before the commit; that its author had
not seen ours follows only where the frame was the first that can have brought ours to anybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from meshnode.model.hlc import Hlc

# How a range came to be.
ORDERED: Final = 0  # one frame in the order of the log; ranges of this kind and the next follow one another
MERGED: Final = 1  # several such frames: all of it was there by the last of their acks
LIVE: Final = 2  # one frame ahead of the backlog (profile §13)
AGAIN: Final = 3  # an event that was sent once more
SENT: Final = 4  # up to here events had been sent when a stream began anew; whether they were taken is not known


class Taken(NamedTuple):
    """Own events at positions `first` to `last` were in the peer's hands by `hlc`; None where it did not say."""

    first: int
    last: int
    hlc: Hlc | None
    kind: int


def taken_by(ranges: Sequence[Taken], position: int) -> Hlc | None:
    """A time of the peer's clock by which it had the event at `position`; None where no ack tells."""
    told = [each.hlc for each in ranges if each.hlc is not None and each.first <= position <= each.last]
    return min(told, default=None)


def first_taken(ranges: Sequence[Taken], position: int) -> Hlc | None:
    """The clock of the ack of the one frame that can first have brought the event; None where that is not known."""
    covering = [each for each in ranges if each.first <= position <= each.last]
    if not covering or any(each.hlc is None for each in covering):
        return None
    first = min(covering, key=lambda each: each.hlc or Hlc(0, 0))
    return first.hlc if first.kind in (ORDERED, LIVE) else None


def was_sent(ranges: Sequence[Taken], position: int) -> bool:
    """Whether the event at `position` was ever in a frame to the peer that is not in flight now."""
    return any(each.first <= position <= each.last for each in ranges)


def pruned(ranges: Sequence[Taken], limit: int) -> list[Taken]:
    """At most `limit` ranges. Older frames in order become one range, by the latest of their acks; others go."""
    if len(ranges) <= limit:
        return list(ranges)
    sent = [each for each in ranges if each.kind == SENT]
    tiles = sorted(each for each in ranges if each.kind in (ORDERED, MERGED))
    beside = sorted(each for each in ranges if each.kind in (LIVE, AGAIN))[-limit // 4 :]
    kept = max(limit // 4, 1)
    old, new = tiles[:-kept], tiles[-kept:]
    merged: list[Taken] = []
    for tile in old:
        before = merged[-1] if merged else None
        if before is not None and (before.hlc is None) is (tile.hlc is None):
            hlc = None if before.hlc is None or tile.hlc is None else max(before.hlc, tile.hlc)
            merged[-1] = Taken(before.first, tile.last, hlc, MERGED)
        else:
            merged.append(tile)
    return [*sent, *merged[-(limit // 4) :], *new, *beside]

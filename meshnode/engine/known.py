"""What this process remembers of a peer beside what is stored, so that it is not sent what it has (profile §14).

All of it may be forgotten at any time: with another epoch, another link, a transaction that failed, a restart. That
costs bytes and never an event, since the peer declines what it has.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping

from meshnode.limits import KNOWN_IDS, KNOWN_RANGES


class Positions:
    """A set of log positions as ranges; past the bound the lowest are forgotten."""

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    def add(self, first: int, last: int) -> None:
        """Take in every position from `first` to `last`."""
        start = bisect_left(self._ranges, (first, first))
        if start and self._ranges[start - 1][1] >= first - 1:
            start -= 1
            first = self._ranges[start][0]
        end = start
        while end < len(self._ranges) and self._ranges[end][0] <= last + 1:
            last = max(last, self._ranges[end][1])
            end += 1
        self._ranges[start:end] = [(first, last)]
        del self._ranges[:-KNOWN_RANGES]

    def __contains__(self, position: int) -> bool:
        before = bisect_left(self._ranges, (position + 1, 0))
        return before > 0 and self._ranges[before - 1][1] >= position

    def forget_up_to(self, position: int) -> None:
        """Nobody asks for these any more."""
        gone = 0
        while gone < len(self._ranges) and self._ranges[gone][1] <= position:
            gone += 1
        del self._ranges[:gone]


class Known:
    """One peer's part of it."""

    __slots__ = ("_ids", "_slots", "cursor", "filter", "holds", "linked", "looked_to", "urgent_to", "waiting")

    def __init__(self) -> None:
        self.holds = Positions()  # events that the peer sent, offered or acknowledged: it has committed them
        self._ids: dict[bytes, None] = {}  # events that it offered and that are not here yet
        self._slots: dict[bytes, int] = {}  # what the clocks of our batches told it of each site's slot
        # How far the log was looked through for events to offer, and what was found after the offer cursor.
        self.cursor = 0
        self.looked_to = 0
        self.urgent_to = 0  # the last event whose author the peer is not linked to
        self.waiting: set[int] = set()  # site numbers of the authors of those that wait
        self.linked: frozenset[bytes] | None = None  # whom the peer was linked to when they were looked at
        self.filter = ""  # what it might get then

    def holds_at(self, position: int) -> None:
        """The peer has this event of the log: it may have been waiting."""
        self.holds.add(position, position)
        self.looked_to = -1

    def offered(self, short_id: bytes) -> None:
        """The peer has an event that is not here yet."""
        self._ids[short_id] = None
        if len(self._ids) > KNOWN_IDS:
            del self._ids[next(iter(self._ids))]

    def has(self, short_id: bytes) -> bool:
        """Whether the peer offered this event, which is here by now."""
        return short_id in self._ids

    def look_again(self, cursor: int) -> None:
        """What lies behind the offer cursor has to be looked at anew."""
        self.looked_to = cursor
        self.waiting.clear()

    def news(self, clock: Mapping[bytes, int], own: bytes, heard: Collection[bytes]) -> dict[bytes, int]:
        """Our own slot, and those that rose since the peer was told and of which it does not hear from their sites."""
        told = {
            site: counter
            for site, counter in clock.items()
            if site == own or (site not in heard and counter > self._slots.get(site, 0))
        }
        self._slots.update(told)
        return told

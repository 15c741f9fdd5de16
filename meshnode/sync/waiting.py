"""When events that wait to be offered are due, said as positions of the log (profile §14, feature `offer`). Pure."""

from __future__ import annotations

from typing import Final

from meshnode.limits import OFFER_WAIT_MS

EVERYTHING: Final = 2**63 - 1
_SECOND: Final = 4  # of two neighbours one offers first; the other waits until that one's offer must have come


class Waiting:
    """Gathers: what comes in the first half of the time is due when it ends, the rest with the next round.

    So each event waits for at least half of the time, in which it is to reach the peer from its author, and at most for
    half as long again.
    """

    def __init__(self, *, first: bool) -> None:
        self.due_to = 0
        self._wait_ms = OFFER_WAIT_MS if first else _SECOND * OFFER_WAIT_MS
        self._at: int | None = None
        self._to = 0
        self._hurry = False

    @property
    def next_timer(self) -> int | None:
        """When the time of what waits is over."""
        return self._at

    def hurry(self) -> None:
        """Somebody waits for the peer to have everything: offer it now."""
        self._hurry = True
        self.due_to = EVERYTHING

    def noted(self, seen_to: int, now_ms: int, *, waiting: bool, more: bool) -> None:
        """The log was looked through up to `seen_to`, and something waits there or not."""
        if self._hurry and not more:
            self._hurry = False
            self.due_to = seen_to
        if not waiting:
            self._at = None
            return
        if self._at is None:
            self._at = now_ms + self._wait_ms
            self._to = seen_to
        elif now_ms <= self._at - self._wait_ms // 2:
            self._to = seen_to

    def is_due(self, now_ms: int) -> bool:
        """Whether the time is over; a wall clock that stepped back ends it too."""
        if self._at is None or (now_ms < self._at <= now_ms + self._wait_ms):
            return False
        self._at = None
        self.due_to = max(self.due_to, self._to)
        return True

"""How large datagrams may be on one path: the search for it, without I/O (RFC 8899, RFC 9000 §14.3; profile §7).

Every path carries 1,200 bytes. Larger sizes are tried one after the other, smallest first, by a datagram that carries
nothing anybody needs; whatever is acknowledged is used from then on. A size that worked may stop working, because a
route changed: then this falls back to 1,200 at once and searches again later.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from meshnode.limits import DATAGRAM_BYTES

TRIES = 3  # probes of one size that are lost until it counts as too large (MAX_PROBES of RFC 8899 §5.1.2)
LOSSES = 3  # losses in a row of what is larger than 1,200 bytes, and of that alone, until the path is a black hole
AGAIN_S = 60.0  # seconds after a fall until the next search
RAISE_S = 600.0  # seconds after a search until the next one (PMTU_RAISE_TIMER of RFC 8899 §5.1.1)


@dataclass(frozen=True, slots=True)
class Probe:
    """A datagram that tells whether its size passes."""

    number: int  # tells one from an earlier one of the same size, on another path perhaps
    size: int


class PathSize:
    """State of one path. Time, and what became of datagrams, are arguments; nothing here sends."""

    def __init__(self, sizes: Iterable[int]) -> None:
        self.size = DATAGRAM_BYTES  # what a datagram may have now
        self._sizes = sorted(size for size in set(sizes) if size > DATAGRAM_BYTES)
        self._due = -inf  # when the next probe may go
        self._probe: Probe | None = None  # the one under way
        self._deadline = inf  # when that counts as lost
        self._number = 0
        self._tries = 0  # lost probes of this size
        self._losses = 0  # in a row
        self._smallest_lost: float = inf  # among them

    # --- what to do

    def probe(self, now: float, patience_s: float) -> Probe | None:
        """The probe to be sent now, if any; without an answer within `patience_s` it counts as lost."""
        if self._probe is not None and now >= self._deadline:
            self.probe_lost(self._probe)
        if self._tries >= TRIES:
            self._end_search(now)
        if self._losses >= LOSSES:
            self._fall(now + AGAIN_S)
        if self._probe is not None or now < self._due:
            return None
        size = next((size for size in self._sizes if size > self.size), None)
        if size is None:
            self._due = now + RAISE_S
            return None
        self._number += 1
        self._probe, self._deadline = Probe(self._number, size), now + patience_s
        return self._probe

    def next_at(self) -> float | None:
        """When `probe` has to be asked at the latest; None: it never has anything."""
        if not self._sizes:
            return None
        return self._due if self._probe is None else self._deadline

    def moved(self, now: float) -> None:
        """Another path from here on: nothing is known of it."""
        self._fall(now)

    # --- what became of datagrams

    def probe_arrived(self, probe: Probe) -> None:
        """A probe was acknowledged; one that was given up, or of a path before, says nothing any more."""
        if probe == self._probe:
            self.size, self._probe, self._tries = probe.size, None, 0
            self._forget_losses()

    def probe_lost(self, probe: Probe) -> None:
        """A probe was lost, which says nothing about congestion (RFC 8899 §3)."""
        if probe == self._probe:
            self._probe = None
            self._tries += 1

    def arrived(self, size: int) -> None:
        """A datagram was acknowledged: if it was as large as those that were lost, their size was not why."""
        if size >= self._smallest_lost:
            self._forget_losses()

    def lost(self, smallest: int) -> None:
        """Datagrams were lost together, or not acknowledged in time; any of 1,200 bytes makes it an ordinary loss."""
        if smallest > DATAGRAM_BYTES:
            self._losses += 1
            self._smallest_lost = min(smallest, self._smallest_lost)

    def refused(self, size: int, now: float) -> None:
        """The interface does not take a datagram of this size."""
        if self._probe is not None and size == self._probe.size:
            self._probe = None
            self._end_search(now)
        elif DATAGRAM_BYTES < size <= self.size:
            self._fall(now)  # its limit was lowered, and says itself where it is

    # --- the rest

    def _end_search(self, now: float) -> None:
        """Sizes are tried in order, so nothing larger passes either."""
        self._tries, self._due = 0, now + RAISE_S

    def _fall(self, again: float) -> None:
        self.size, self._due = DATAGRAM_BYTES, again
        self._probe, self._deadline, self._tries = None, inf, 0
        self._forget_losses()

    def _forget_losses(self) -> None:
        self._losses, self._smallest_lost = 0, inf

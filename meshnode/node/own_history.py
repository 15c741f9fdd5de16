"""Whether this node waits for its own history: an old copy of it was restored (profile §8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

RECOVERY_S: Final = 30.0  # seconds at most that a restored node waits for its own history before it authors again


class OwnHistory:
    """Over one run of the network; `now_s` is any clock that only goes forward."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._claimed_by: set[bytes] = set()  # peers that said they know later events of ours
        self._asked: set[bytes] = set()
        self._until = 0.0

    @property
    def awaited(self) -> bool:
        """Whether a peer that was asked has still to answer, and there is time left."""
        return bool(self._asked) and self._now_s() < self._until

    def claimed(self, peer: bytes) -> None:
        """A peer knows later events of this device than are here.

        Once per peer and start, and for a short time: it may be lying, or leave without an answer.
        """
        if peer not in self._claimed_by:
            self._claimed_by.add(peer)
            self.ask(peer)

    def ask(self, *peers: bytes) -> None:
        """Wait for these from now on."""
        self._asked.update(peers)
        self._until = self._now_s() + RECOVERY_S

    def answered(self) -> None:
        """One of them did: that is enough."""
        self._asked.clear()

    def left(self, peer: bytes) -> None:
        """Its link ended, so nothing comes of it."""
        self._asked.discard(peer)

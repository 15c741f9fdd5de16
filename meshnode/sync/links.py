"""Whom this node is linked to, as a peer is told: at once where it changed, but at most once a second (profile §14)."""

from __future__ import annotations

from collections.abc import Iterable

from meshnode.limits import LINKED_SITES, LINKS_MS
from meshnode.model.frames import Links


class ToldLinks:
    """What one peer was told on this link."""

    __slots__ = ("_again_at", "_peer", "_sites", "_told")

    def __init__(self, peer: bytes) -> None:
        self._peer = peer
        self._sites: tuple[bytes, ...] = ()
        self._told: tuple[bytes, ...] | None = None
        self._again_at = 0

    def are(self, sites: Iterable[bytes]) -> None:
        """The links of this node, with or without the one to the peer itself."""
        self._sites = tuple(sorted(set(sites) - {self._peer})[:LINKED_SITES])

    def next_timer(self) -> int | None:
        """When a change may be told."""
        return None if self._told == self._sites else self._again_at

    def due(self, now_ms: int) -> Links | None:
        """What is to be said now."""
        if self._told == self._sites or now_ms < self._again_at <= now_ms + LINKS_MS:
            return None
        self._told, self._again_at = self._sites, now_ms + LINKS_MS
        return Links(sites=self._sites)

"""What of the watermarks is worth telling a peer again: coalesced differences (SSP/1 §14.2, profile §8). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from meshnode.model.frames import After, WatermarkEntry, Watermarks
from meshnode.model.hlc import Hlc, beyond_skew

ENTRIES_PER_MESSAGE = 4096  # the longest names fill about half a frame


class ToldWatermarks:
    """What a peer was told on this link; only what rose since is told again."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: dict[tuple[bytes, str, str], Hlc] = {}

    def messages(self, entries: Iterable[WatermarkEntry], epoch: bytes, no: int) -> Iterator[Watermarks]:
        """The messages that bring the peer up to date, none where nothing rose."""
        risen = []
        for entry in entries:
            group, hlc = entry[:3], Hlc(entry.physical, entry.logical)
            if self._told.get(group) != hlc:
                self._told[group] = hlc
                risen.append(entry)
        for start in range(0, len(risen), ENTRIES_PER_MESSAGE):
            yield Watermarks(after=After(epoch, no), entries=tuple(risen[start : start + ENTRIES_PER_MESSAGE]))


class HeardWatermarks:
    """The last watermark per group that a peer told: evidence for people, never for a cursor (SSP/1 §14.1, §14.2)."""

    __slots__ = ("entries",)

    MAX_GROUPS = 65_536  # against a peer that invents groups

    def __init__(self) -> None:
        self.entries: dict[tuple[bytes, str, str], Hlc] = {}

    def take_untrusted(self, message: Watermarks, now_ms: int) -> int:
        """Keep what rose; returns how many were beyond the skew bound, which count as absent (SSP/1 §5.1)."""
        skewed = 0
        for entry in message.entries:
            group, hlc = entry[:3], Hlc(entry.physical, entry.logical)
            if beyond_skew(hlc.physical, now_ms):
                skewed += 1
            elif group in self.entries:
                self.entries[group] = max(self.entries[group], hlc)
            elif len(self.entries) < self.MAX_GROUPS:
                self.entries[group] = hlc
        return skewed

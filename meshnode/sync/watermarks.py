"""What of the watermarks is worth telling a peer again: coalesced differences (SSP/1 §14.2, profile §8). Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice

from meshnode.limits import QUIET_WATERMARKS_MS
from meshnode.model.frames import After, WatermarkEntry, Watermarks
from meshnode.model.hlc import Hlc, beyond_skew

ENTRIES_PER_MESSAGE = 4096  # the longest names fill about half a frame


class ToldWatermarks:
    """What a peer was told on this link; only what rose since is told again."""

    __slots__ = ("_quiet_at", "_told")

    def __init__(self) -> None:
        self._told: dict[tuple[bytes, str, str], Hlc] = {}
        self._quiet_at = 0  # when those are told that wait

    def worth_telling(
        self, entries: Iterable[WatermarkEntry], heard: Collection[bytes], now_ms: int
    ) -> Iterable[WatermarkEntry]:
        """Those of sites that the peer `heard` of itself wait; the first time on a link all are told (profile §14)."""
        if now_ms < self._quiet_at <= now_ms + QUIET_WATERMARKS_MS:
            return [entry for entry in entries if entry.site not in heard]
        self._quiet_at = now_ms + QUIET_WATERMARKS_MS
        return entries

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
    """What a peer told: kept as evidence for people, and given to the store once it may count (profile §6).

    A claim counts once every frame that the peer staged before it was committed here. Claims that wait are merged under
    the latest such frame, which can only make them count later.
    """

    __slots__ = ("_after", "_own", "_waiting", "entries")

    MAX_GROUPS = 65_536  # against a peer that invents groups

    def __init__(self, own: bytes) -> None:
        self.entries: dict[tuple[bytes, str, str], Hlc] = {}
        self._own = own
        self._after: After | None = None
        self._waiting: dict[tuple[bytes, str, str], Hlc] = {}

    def take_untrusted(self, message: Watermarks, now_ms: int) -> int:
        """Keep what rose; returns how many were beyond the skew bound, which count as absent (SSP/1 §5.1)."""
        skewed = 0
        if self._after is None or self._after.epoch != message.after.epoch or self._after.no < message.after.no:
            self._after = message.after
        for entry in message.entries:
            group, hlc = entry[:3], Hlc(entry.physical, entry.logical)
            if beyond_skew(hlc.physical, now_ms):
                skewed += 1
                continue
            before = self.entries.get(group)
            if (before is None and len(self.entries) < self.MAX_GROUPS) or (before is not None and before < hlc):
                self.entries[group] = hlc
                if group[0] != self._own:  # nobody else knows what this node wrote
                    self._waiting[group] = hlc
        return skewed

    def again(self) -> None:
        """What the store did not take may count now: a request that stood against it was answered."""
        self._waiting = {group: hlc for group, hlc in self.entries.items() if group[0] != self._own}

    def due(self, epoch: bytes, next_no: int) -> tuple[WatermarkEntry, ...]:
        """The claims that count once every frame of `epoch` before `next_no` is committed: a bounded part of them."""
        if not self._waiting or self._after is None or self._after.epoch != epoch or self._after.no >= next_no:
            return ()
        groups = list(islice(self._waiting, ENTRIES_PER_MESSAGE))
        return tuple(WatermarkEntry(*group, *self._waiting.pop(group)) for group in groups)

"""What of the watermarks is worth telling a peer again: coalesced differences (SSP/1 §14.2, profile §8). Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

from meshnode.limits import IDLE_WATERMARKS_MS, QUIET_WATERMARKS_MS, TOLD_GROUPS_PER_PEER
from meshnode.model.delivery import GroupName, Told
from meshnode.model.frames import After, WatermarkEntry, Watermarks
from meshnode.model.hlc import Hlc, beyond_skew

ENTRIES_PER_MESSAGE = 4096  # the longest names fill about half a frame


class ToldWatermarks:
    """What a peer was told on this link; only what rose since is told again.

    The first message comes even without entries: that it came says that nothing was left to stage.
    """

    __slots__ = ("_any", "_at_once", "_due_at", "_latest_at", "_told")

    def __init__(self) -> None:
        self._told: dict[GroupName, Hlc] = {}
        self._any = False
        self._at_once = True  # the next telling leaves nothing out
        self._due_at: int | None = None  # when those that wait are told
        self._latest_at = 0  # until when that may be put off

    def worth_telling(
        self, entries: Sequence[WatermarkEntry], heard: Collection[bytes], now_ms: int
    ) -> Sequence[WatermarkEntry]:
        """Those of sites that the peer `heard` of itself wait until nothing is written, but not the first (§14)."""
        waits = any(entry.site in heard and self._told.get(entry[:3]) != _hlc(entry) for entry in entries)
        if self._at_once or not waits:
            self._at_once, self._due_at = False, None
            return entries
        if self._due_at is None:
            self._due_at, self._latest_at = now_ms + IDLE_WATERMARKS_MS, now_ms + QUIET_WATERMARKS_MS
        return [entry for entry in entries if entry.site not in heard]

    def written(self, now_ms: int) -> None:
        """There is something new in the log: what waits is told later, as long as it may wait."""
        if self._due_at is not None:
            self._due_at = min(now_ms + IDLE_WATERMARKS_MS, self._latest_at)

    def next_timer(self) -> int | None:
        """When those that wait are due."""
        return self._due_at

    def is_due(self, now_ms: int) -> bool:
        """Whether they are, once; a wall clock that stepped back ends the waiting too."""
        if self._due_at is None or now_ms < self._due_at <= now_ms + IDLE_WATERMARKS_MS:
            return False
        self._at_once, self._due_at = True, None
        return True

    def messages(self, entries: Iterable[WatermarkEntry], epoch: bytes, no: int) -> Iterator[Watermarks]:
        """The messages that bring the peer up to date; once one was sent, none where nothing rose."""
        risen = []
        for entry in entries:
            group, hlc = entry[:3], _hlc(entry)
            if self._told.get(group) != hlc:
                self._told[group] = hlc
                risen.append(entry)
        first, self._any = not self._any, True
        for start in range(0, max(len(risen), first), ENTRIES_PER_MESSAGE):
            yield Watermarks(after=After(epoch, no), entries=tuple(risen[start : start + ENTRIES_PER_MESSAGE]))


def _hlc(entry: WatermarkEntry) -> Hlc:
    return Hlc(entry.physical, entry.logical)


class HeardWatermarks:
    """What a peer told on this link: evidence for people, and given to the store once it may count (profile §6).

    Within a link a group only rises, whatever is told later. A claim counts once every frame that the peer staged
    before it was committed here. Claims that wait are merged under the latest such frame, which can only make them
    count later. A claim beyond the skew bound is absent until time has come near enough: its peer, which has told it,
    does not tell it again on this link.
    """

    __slots__ = ("_after", "_ahead", "_risen", "_waiting", "entries", "told")

    def __init__(self) -> None:
        self.entries: dict[GroupName, Told] = {}
        self.told = False  # whether any message came
        self._after: After | None = None
        self._ahead: dict[GroupName, Hlc] = {}  # beyond the skew bound when it was told
        self._waiting: dict[GroupName, Hlc] = {}
        self._risen: dict[GroupName, None] = {}  # since the last `take_risen`

    def take_untrusted(self, message: Watermarks, now_ms: int) -> int:
        """Keep what rose; returns how many are beyond the skew bound, which count as absent (SSP/1 §5.1)."""
        skewed, self.told = 0, True
        if self._after is None or self._after.epoch != message.after.epoch or self._after.no < message.after.no:
            self._after = message.after
        for entry in message.entries:
            group, hlc = entry[:3], Hlc(entry.physical, entry.logical)
            if beyond_skew(hlc.physical, now_ms):
                skewed += 1
                if group in self._ahead or len(self._ahead) < TOLD_GROUPS_PER_PEER:
                    self._ahead[group] = hlc
            else:
                self._take(group, hlc, now_ms)
        return skewed

    def time_passed(self, now_ms: int) -> int:
        """Take what was beyond the skew bound and is within it by now; returns how many those were."""
        near = [group for group, hlc in self._ahead.items() if not beyond_skew(hlc.physical, now_ms)]
        for group in near:
            self._take(group, self._ahead.pop(group), now_ms)
        return len(near)

    def take_risen(self) -> dict[GroupName, Told]:
        """A bounded part of what was told since the last call, for whoever keeps it."""
        risen = list(islice(self._risen, ENTRIES_PER_MESSAGE))
        for group in risen:
            del self._risen[group]
        return {group: self.entries[group] for group in risen}

    def again(self) -> None:
        """What the store did not take may count now: a request that stood against it was answered."""
        self._waiting = {group: told.hlc for group, told in self.entries.items()}

    def due(self, epoch: bytes, next_no: int) -> tuple[WatermarkEntry, ...]:
        """The claims that count once every frame of `epoch` before `next_no` is committed: a bounded part of them."""
        if not self._waiting or self._after is None or self._after.epoch != epoch or self._after.no >= next_no:
            return ()
        groups = list(islice(self._waiting, ENTRIES_PER_MESSAGE))
        return tuple(WatermarkEntry(*group, *self._waiting.pop(group)) for group in groups)

    def _take(self, group: GroupName, hlc: Hlc, now_ms: int) -> None:
        before = self.entries.get(group)
        if len(self.entries) < TOLD_GROUPS_PER_PEER if before is None else before.hlc < hlc:
            self.entries[group] = Told(hlc, now_ms)
            self._risen[group] = None
            self._waiting[group] = hlc

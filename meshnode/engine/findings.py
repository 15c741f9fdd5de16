"""What a check of the store found: every difference counted, the first ones named."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeVar

T = TypeVar("T")

DIFFERENCES_NAMED: Final = 100  # further ones are only counted
MENDED_AT_ONCE: Final = 10_000  # rows, and pieces of the log, that one `check --repair` looks after


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not what the log says."""

    table: str  # empty where no table is meant
    where: str
    what: str


@dataclass(slots=True)
class Mendable:
    """What of it can be computed again from the log, or asked of other members; each list is bounded."""

    rows: list[tuple[int, bytes]] = field(default_factory=list)  # by table and key bytes
    gaps: list[tuple[int, int]] = field(default_factory=list)  # first and last position that the log has lost
    damaged: list[int] = field(default_factory=list)  # positions whose bytes are no event, or not as signed
    mislabelled: list[int] = field(default_factory=list)  # positions whose columns are not those of the event
    watermarks: list[tuple[int, int]] = field(default_factory=list)  # by site and table: it claims too much
    last: int = 0  # the last position of the log, where the next one to give out is not beyond it
    clock: bool = False  # it is behind the log
    counted: bool = False  # what is counted of the log is not what a count finds
    metered: bool = False  # nor what is metered of held events

    def __bool__(self) -> bool:
        return any((self.rows, self.gaps, self.damaged, self.mislabelled, self.watermarks, self.last)) or (
            self.clock or self.counted or self.metered
        )

    def text(self) -> str:
        """In words, for its owner."""
        lost = len(self.damaged) + sum(last - first + 1 for first, last in self.gaps)
        parts = (
            (len(self.rows), "rows"),
            (lost, "lost events, which the other members are asked for"),
            (len(self.mislabelled), "rows of the log"),
            (len(self.watermarks), "watermarks"),
            (self.clock + bool(self.last) + self.counted + self.metered, "meters"),
        )
        return ", ".join(f"{count} {what}" for count, what in parts if count)


@dataclass(slots=True)
class Findings:
    """What a check looked at and what it found."""

    events: int = 0
    tables: int = 0
    rows: int = 0
    given: int = 0  # clocks, values and watermarks whose evidence is not kept any more
    count: int = 0  # differences, named or not
    differences: list[Difference] = field(default_factory=list)
    mendable: Mendable = field(default_factory=Mendable)

    def differ(self, table: str, where: str, what: str) -> None:
        """Note a difference."""
        self.count += 1
        if len(self.differences) < DIFFERENCES_NAMED:
            self.differences.append(Difference(table, where[:200], what[:300]))


def note(found: list[T], item: T) -> None:
    """Keep one more, within the bound."""
    if len(found) < MENDED_AT_ONCE:
        found.append(item)

"""What a check of the store found: every difference counted, the first ones named."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

DIFFERENCES_NAMED: Final = 100  # further ones are only counted


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not what the log says."""

    table: str  # empty where no table is meant
    where: str
    what: str


@dataclass(slots=True)
class Findings:
    """What a check looked at and what it found."""

    events: int = 0
    tables: int = 0
    rows: int = 0
    given: int = 0  # clocks, values and watermarks whose evidence is not kept any more
    count: int = 0  # differences, named or not
    differences: list[Difference] = field(default_factory=list)

    def differ(self, table: str, where: str, what: str) -> None:
        """Note a difference."""
        self.count += 1
        if len(self.differences) < DIFFERENCES_NAMED:
            self.differences.append(Difference(table, where[:200], what[:300]))

"""What may cross the mesh: classes of tables, the switch for raw ones, how far back they go (NEOTH).

One policy is asked at both ends: before an event is staged or sent again, and before one that arrived is applied.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from meshnode.model.scope import Scope

DAY_MS: Final = 86_400_000
NEVER: Final = 2**64  # beyond every HLC's milliseconds: nothing crosses


class TableClass(StrEnum):
    """What a table is to the mesh; each node says it for itself."""

    SHARED = "shared"
    RAW = "raw"  # crosses only while `replicate_raw_ingress` is on, and no further back than the replay budget
    PRIVATE = "private"  # never leaves this node, and is never taken from another


@dataclass(frozen=True, slots=True)
class Policy:
    """The node's settings that decide what crosses; `scope` is what it takes, and tells its peers."""

    scope: Scope = field(default_factory=Scope)
    replicate_raw_ingress: bool = False
    replay_budget_days: int = 0  # 0: no bound

    def days(self, table_class: TableClass) -> float:
        """How many days back events of such a table cross: 0 none at all, infinity every one."""
        if table_class is TableClass.SHARED:
            return math.inf
        if table_class is TableClass.PRIVATE or not self.replicate_raw_ingress:
            return 0
        return self.replay_budget_days or math.inf

    def oldest_ms(self, table_class: TableClass, now_ms: int) -> int:
        """The lowest HLC, in milliseconds, of such a table's events that cross now."""
        days = self.days(table_class)
        if days == math.inf:
            return 0
        return max(now_ms - int(days) * DAY_MS, 0) if days else NEVER

    def takes(self, schema: str, table: str, table_class: TableClass) -> bool:
        """Whether any event of this table is taken from others."""
        return self.days(table_class) > 0 and self.scope.contains(schema, table)

    def takes_whole(self, schema: str, table: str, table_class: TableClass) -> bool:
        """Whether every event of this table is, however old: only then may a watermark of it be told or believed."""
        return self.days(table_class) == math.inf and self.scope.contains(schema, table)

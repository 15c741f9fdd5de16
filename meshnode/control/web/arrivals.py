"""How many events came in between two looks at the log: a page shows the newest alone (time is an argument)."""

from __future__ import annotations

from typing import Final

LOOK_S: Final = 0.4  # seconds at least between two looks that are compared
LATELY_S: Final = 3.0  # a look that is older tells nothing of what comes in now


class Arrivals:
    """Keeps two numbers; shared by all open pages."""

    def __init__(self) -> None:
        self._looked_s = float("-inf")
        self._newest = 0
        self._came = 0

    def look(self, newest: int, now_s: float) -> int:
        """How many came in between the last two looks, the newest position being this."""
        apart_s = now_s - self._looked_s
        if apart_s >= LOOK_S:
            self._came = max(newest - self._newest, 0) if apart_s <= LATELY_S else 0
            self._looked_s, self._newest = now_s, newest
        return self._came

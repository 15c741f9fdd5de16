"""The invites that were made on this dashboard: what became of each, never what opens it (profile §10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from meshnode.node.api import Operations
from meshnode.node.pairing_views import InvitedView, InviteView

KEPT: Final = 12  # invites that pages go on telling of, the latest; of older ones their number
WAITING: Final = ("open", "asks")


@dataclass(frozen=True, slots=True)
class Made:
    """One of them. Its string is with the page that asked for it, and nowhere else."""

    id: str
    expires_ms: int
    confirm: bool


class Invites:
    """The latest of them, and what became of those that are over: the store forgets an invite some time after."""

    def __init__(self) -> None:
        self._made: dict[str, Made] = {}
        self._over: dict[str, InvitedView] = {}

    def add(self, view: InviteView) -> None:
        """One was made just now."""
        self._made[view.id] = Made(view.id, view.expires_ms, view.confirm)
        while len(self._made) > KEPT:
            oldest = next(iter(self._made))
            del self._made[oldest]
            self._over.pop(oldest, None)

    async def look(self, operations: Operations) -> list[tuple[Made, InvitedView]]:
        """What became of each, the latest first; only those that are not over are asked about."""
        found = []
        for made in reversed(tuple(self._made.values())):
            view = self._over.get(made.id) or await operations.invited(made.id)
            if view.state not in WAITING:
                self._over[made.id] = view
            found.append((made, view))
        return found

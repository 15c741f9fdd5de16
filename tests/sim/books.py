"""What was written and what each node holds, by the account of the run: what checkers compare nodes with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from meshnode.model.event import Event
from meshnode.store import log

if TYPE_CHECKING:
    from sim.node import Node


class Held:
    """The log of one node as it is on its disk."""

    def __init__(self) -> None:
        self.events: dict[bytes, int] = {}  # bytes of an event to its position
        self.positions: dict[int, bytes] = {}  # of this copy of the database, what was removed included
        self.last = 0

    def data_at(self, position: int) -> bytes | None:
        """The event at a position, None where it was removed."""
        data = self.positions.get(position)
        return data if data is not None and data in self.events else None


class Books:
    """Kept up to date by `Watch`, before any checker looks."""

    def __init__(self) -> None:
        self.held: dict[int, Held] = {}
        self.events: dict[bytes, Event] = {}  # every event that was ever on a disk
        self.authored: dict[bytes, list[Event]] = {}  # by site, what its own node wrote, in this order
        self.at_risk: set[bytes] = set()  # on a disk that was lost: nobody may have it

    def update(self, node: Node) -> list[tuple[int, Event]]:
        """Take what a node's log grew by."""
        held = self.held[node.number]
        return self._take(node, held, node.log_after(held.last))

    def reread(self, node: Node) -> None:
        """Read a whole log again: after a start, and where something may have been removed."""
        held = self.held.setdefault(node.number, Held())
        held.events.clear()
        self._take(node, held, node.log_after(0))

    def replaced(self, node: Node) -> None:
        """The node has another copy of its database: what only the one before held may be gone."""
        before = self.held.get(node.number, Held())
        self.at_risk.update(before.events)
        self.held[node.number] = Held()

    def _take(self, node: Node, held: Held, rows: Iterable[tuple[int, bytes]]) -> list[tuple[int, Event]]:
        found = []
        for position, data in rows:
            event = self.events.get(data)
            if event is None:
                event = self.events[data] = log.parse(data)
                if event.site == node.site:
                    self.authored.setdefault(event.site, []).append(event)
            held.events[data] = position
            held.positions.setdefault(position, data)
            held.last = max(held.last, position)
            found.append((position, event))
        return found

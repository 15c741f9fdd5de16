"""What was written and what each node holds, by the account of the run: what checkers compare nodes with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from meshnode.model.event import Event
from meshnode.store import log
from sim.tables import SHAPES

if TYPE_CHECKING:
    from sim.node import Node


def names_a_row(event: Event) -> bool:
    """Whether an event names a row of a table that every node has in the end: others are held or not, as they came."""
    table = SHAPES.get(event.table)
    return table is not None and table.resolves(event.key or {})


class Held:
    """The log of one node as it is on its disk."""

    def __init__(self) -> None:
        self.events: dict[bytes, int] = {}  # bytes of an event to its position
        self.positions: dict[int, bytes] = {}  # of this copy of the database, what was removed included
        self.generation = 0  # of the membership, when it was read
        self.reused: set[int] = set()
        self.last = 0

    def data_at(self, position: int) -> bytes | None:
        """The event at a position, None where it was removed."""
        data = self.positions.get(position)
        return data if data is not None and data in self.events else None

    def put(self, position: int, data: bytes) -> None:
        """An event is there."""
        self.events[data] = position
        if self.positions.setdefault(position, data) != data:
            self.reused.add(position)
        self.last = max(self.last, position)


class Books:
    """Kept up to date by `Watch`, before any checker looks."""

    def __init__(self) -> None:
        self.held: dict[int, Held] = {}
        self.events: dict[bytes, Event] = {}  # every event that was ever on a disk
        self.authored: dict[bytes, list[Event]] = {}  # by site, what its own node wrote, in this order
        self.at_risk: set[bytes] = set()  # by sites that lost a disk: nobody may have it, or some who claim more
        self.taken_out: set[bytes] = set()  # what some node compacted or took back, on record
        self.clocks_fallen: defaultdict[int, list[tuple[Event, Event]]] = defaultdict(list)

    def update(self, node: Node) -> None:
        """Take what a node's log grew by; where something may have left it, read it again."""
        held, generation = self.held[node.number], node.running.context.generation
        if generation != held.generation or node.sweeps:
            self.reread(node)
        else:
            self._take(node, held, node.log_after(held.last))

    def reread(self, node: Node) -> None:
        """Read a whole log again: after a start, and where something may have been removed."""
        held = self.held.setdefault(node.number, Held())
        held.generation = node.running.context.generation
        held.events.clear()
        self._take(node, held, node.log_after(0))
        self._note_removed(node, held)

    def replaced(self, node: Node) -> None:
        """The node has another copy of its database: what only the one before held may be gone."""
        before = self.held.get(node.number, Held())
        elsewhere = {data for number, held in self.held.items() if number != node.number for data in held.events}
        for data in before.events:
            if self.events[data].site == node.site or data not in elsewhere:
                self.at_risk.add(data)
        self.held[node.number] = Held()

    def may_lack(self, node: Node, event: Event) -> bool:
        """Whether the node has a reason, by its own scope, tables and membership, not to hold an event."""
        context = node.running.context
        if not node.scope.contains(event.schema, event.table) or (event.table in SHAPES and not names_a_row(event)):
            return True
        return context.membership.judge(event.site, event.hlc) is not None

    def _note_removed(self, node: Node, held: Held) -> None:
        """What left a log on record; a copy of the database, put in its place later, may go on without it."""
        gone = [position for position, data in held.positions.items() if data not in held.events]
        if gone:
            ranges = node.query("SELECT first, last FROM meshnode_removed")
            on_record = [each for each in gone if any(first <= each <= last for first, last in ranges)]
            self.taken_out.update(held.positions[each] for each in on_record)

    def _take(self, node: Node, held: Held, rows: Iterable[tuple[int, bytes]]) -> None:
        for position, data in rows:
            if data not in self.events:
                self._meet(node, log.parse(data))
            held.put(position, data)

    def _meet(self, node: Node, event: Event) -> None:
        self.events[event.data] = event
        if event.site == node.site:
            written = self.authored.setdefault(event.site, [])
            latest = max(written, key=lambda each: each.hlc, default=None)
            if latest is not None and event.hlc <= latest.hlc:
                self.clocks_fallen[node.number].append((event, latest))
                if node.disks > 1:  # it has not heard yet how far it had been: peers claim more already
                    self.at_risk.add(event.data)
            written.append(event)

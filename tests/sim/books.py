"""What was written and what each node holds, by the account of the run: what checkers compare nodes with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from meshnode.merge.needed import Needed
from meshnode.model.event import Event
from meshnode.model.hlc import Hlc
from meshnode.store import log
from meshnode.store.affinity import acceptance
from sim.tables import SHAPES

if TYPE_CHECKING:
    from sim.node import Node


def names_a_row(event: Event) -> bool:
    """Whether an event names a row of a table that every node has in the end: others are held or not, as they came."""
    table = SHAPES.get(event.table)
    return table is not None and table.resolves(event.key or {})


def name_of(event: Event) -> str:
    """An event in a message."""
    return f"the event of {event.site.hex()[:8]} at {tuple(event.hlc)} for {event.table} {event.key}"


def needed_of(events: Iterable[Event]) -> set[bytes]:
    """Those of these events that a row's state can still need, whatever comes (`merge.needed`, which proves it)."""
    rows: defaultdict[tuple[str, bytes], list[Event]] = defaultdict(list)
    for event in events:
        rows[(event.table, event.key_bytes)].append(event)
    found: set[bytes] = set()
    for row in rows.values():
        judge = Needed(acceptance)
        descending = sorted(row, key=lambda event: event.rank, reverse=True)
        found.update(event.data for event in descending if judge.needs(event.columns))
    return found


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
        self.at_risk: set[bytes] = set()  # was on its author's disk when that was lost
        self.lost: defaultdict[int, set[bytes]] = defaultdict(set)  # was on a disk of this node that was lost
        # By event of a site that lost a disk: what it had written before, and did not have when it wrote that one.
        self.unseen: dict[bytes, frozenset[bytes]] = {}
        self.thinned: set[str] = set()  # tables of which some node asked for no more than their rows need
        self.taken_out: defaultdict[int, set[bytes]] = defaultdict(set)  # what a node compacted or took back, on record
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
        """The node has another copy of its database: what it wrote since that copy is gone from there."""
        before = self.held.get(node.number, Held())
        self.lost[node.number] |= before.events.keys()
        self.at_risk.update(data for data in before.events if self.events[data].site == node.site)
        self.held[node.number] = Held()

    def may_lack(self, node: Node, event: Event) -> bool:
        """Whether the node has a reason, by its own scope, tables and membership, not to hold an event."""
        if not node.scope.contains(event.schema, event.table) or (event.table in SHAPES and not names_a_row(event)):
            return True
        return self.may_not_have(node, event)

    def may_not_have(self, node: Node, event: Event) -> bool:
        """Whether the node has to drop an event, by the records that it knows."""
        return node.running.context.membership.judge(event.site, event.hlc) is not None

    def superseded(self, node: Node, event: Event) -> bool:
        """Whether a node holds what makes an event one that its row does not need (feature `covering`)."""
        row = (event.table, event.key_bytes)
        held = (self.events[data] for data in self.held[node.number].events)
        return event.data not in needed_of([event, *(each for each in held if (each.table, each.key_bytes) == row)])

    def wrote_blindly(self, event: Event, claimed: Hlc) -> bool:
        """Whether the author of an event made this claim true without it: it lost its disk, and wrote on.

        A group advances with its author's own stream (profile §6), which shows what the author has. Of two events of
        its own, one written while it did not have the other, the later lets others claim past the earlier.
        """
        below = self.unseen.get(event.data, frozenset())
        return any(
            event.hlc <= other.hlc <= claimed  # equal where its clock is behind: two events under one (profile §4)
            and other.table == event.table
            and (other.data in below or event.data in self.unseen.get(other.data, ()))
            for other in self.authored[event.site]
        )

    def _note_removed(self, node: Node, held: Held) -> None:
        """What left a log on record; a copy of the database, put in its place later, may go on without it."""
        gone = [position for position, data in held.positions.items() if data not in held.events]
        if gone:
            ranges = node.query("SELECT first, last FROM meshnode_removed")
            on_record = [each for each in gone if any(first <= each <= last for first, last in ranges)]
            self.taken_out[node.number].update(held.positions[each] for each in on_record)

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
            if node.disks > 1:
                there = self.held[node.number].events
                self.unseen[event.data] = frozenset(each.data for each in written if each.data not in there)
            written.append(event)

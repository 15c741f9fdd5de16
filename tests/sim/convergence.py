"""Whether the live nodes end with the same: what has to be at each of them, and what its rows then are (profile §5)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from support.reference import Fact, identity, rows_of
from support.store_jobs import Job

from meshnode.model.event import Event
from meshnode.model.frames import WHAT_SITE
from meshnode.model.hlc import ZERO, Hlc
from meshnode.sync.effects import Answer
from sim.books import name_of, names_a_row, needed_of
from sim.network import Side
from sim.node import Node
from sim.tables import NOTES, SHAPES
from sim.watch import Checker

if TYPE_CHECKING:
    from sim.world import World

Rows = dict[str, dict[Any, tuple[Any, ...]]]


class Convergence(Checker):
    """All live nodes end with the same events, records and rows; the rows are what profile §5 makes of the events.

    Two kinds of event may be missing. Of a table that was compacted, or that a node left out and then asked for
    (feature `covering`), those that no row needs. And what a site that lost its disk had written before, unless a peer
    told it of that or of later events, or was asked while it had it: a peer tells a site of nothing but its newest
    event, in a hello or by a watermark, which says nothing to one that has written on, and sends it its own only on its
    request (profile §8). It lacks them, and with it who hears of them through it alone.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._promised: defaultdict[tuple[int, int], set[bytes]] = defaultdict(set)  # from whom, to whom
        self._greeted: dict[tuple[int, int], Hlc] = {}  # what a hello has to say of the newest event of whom it greets

    def after(self, node: Node, name: str, side: Side | None, job: Job | None, outcome: Any) -> None:
        """A hello names the newest event of whom it greets; who was asked for those of its peer brings what it has."""
        if name == "open link" and side is not None:
            self._greeted[(node.number, side.peer.number)] = self._newest(node, side.peer.site)
        if isinstance(job, Answer) and side is not None and isinstance(side.peer, Node):
            request, peer, books = job.request, side.peer, self.world.watch.books
            if (request.what, request.site) == (WHAT_SITE, peer.site):
                written = {event.data for event in books.authored.get(peer.site, ())}
                self._promised[(node.number, peer.number)] |= written & books.held[node.number].events.keys()

    def restored(self, node: Node) -> None:
        for pair in [pair for pair in self._promised if node.number in pair]:
            del self._promised[pair]

    def open_ends(self) -> list[str]:
        nodes = self.world.live()
        for node in nodes:
            self.world.watch.books.reread(node)
        return self._records(nodes) or self._events_and_rows(nodes)

    def _records(self, nodes: list[Node]) -> list[str]:
        kept = [set(node.query("SELECT record FROM meshnode_records WHERE verified = 1")) for node in nodes]
        every = set[Any]().union(*kept)
        return [
            f"node {node.number} lacks {len(every - records)} records"
            for node, records in zip(nodes, kept, strict=True)
            if every - records
        ]

    def _events_and_rows(self, nodes: list[Node]) -> list[str]:
        books = self.world.watch.books
        every = {data: books.events[data] for node in nodes for data in books.held[node.number].events}
        counting = [event for event in every.values() if names_a_row(event)]
        thinned = books.thinned | ({NOTES.name} if self.world.plan.compacts else set())
        needed = needed_of(event for event in counting if event.table in thinned)
        expected = {event.data for event in counting if event.table not in thinned or event.data in needed}
        unknown = self._unknown(nodes)
        found = []
        for node in nodes:
            missing = expected - books.held[node.number].events.keys() - unknown[node.number]
            if missing:
                first = min(map(books.events.__getitem__, missing), key=lambda event: event.rank)
                found.append(f"node {node.number} lacks {len(missing)} events, first {name_of(first)}")
        return found or list(self._rows(nodes, every, unknown))

    def _unknown(self, nodes: list[Node]) -> dict[int, set[bytes]]:
        """By node, what it cannot know of: lost by its author, whom nobody told."""
        books, unknown = self.world.watch.books, {node.number: set[bytes]() for node in nodes}
        for author in nodes:
            held = books.held[author.number].events
            written = books.authored.get(author.site, ())
            newest, told = self._newest(author, author.site), self._told_of_itself(author)
            promised = {
                data for (_, number), some in self._promised.items() if number == author.number for data in some
            }
            for event in written:
                lost = event.data in books.at_risk and event.data not in held
                if lost and not newest < event.hlc <= told and event.data not in promised:
                    holders = [node for node in nodes if event.data in books.held[node.number].events]
                    others = [node for node in nodes if node is not author]
                    reached = self.world.network.reached(others, holders, through=others)
                    for node in nodes:
                        if node.number not in reached:
                            unknown[node.number].add(event.data)
        return unknown

    def _newest(self, node: Node, site: bytes) -> Hlc:
        books = self.world.watch.books
        written = books.authored.get(site, ())
        return max((event.hlc for event in written if event.data in books.held[node.number].events), default=ZERO)

    def _told_of_itself(self, node: Node) -> Hlc:
        """The latest event of its own that a node is told of on the links that it has, by those who do not lie.

        What hellos say is known from what their senders had, watermarks from what they said.
        """
        peers = [end.peer for end in node.running.ends.values() if isinstance(end.peer, Node)]
        claims = [
            told.hlc
            for peer in peers
            for group, told in node.running.ends[peer.site].session.peer_watermarks.items()
            if group[0] == node.site
        ]
        return max([ZERO, *(self._greeted.get((peer.number, node.number), ZERO) for peer in peers), *claims])

    def _rows(self, nodes: list[Node], every: dict[bytes, Event], unknown: dict[int, set[bytes]]) -> Iterator[str]:
        expected: dict[frozenset[bytes], Rows] = {}
        for node in nodes:
            without = frozenset(unknown[node.number])
            if without not in expected:
                expected[without] = _expected_rows(event for data, event in every.items() if data not in without)
            for name, rows in expected[without].items():
                sql = f"SELECT id, {', '.join(SHAPES[name].columns)} FROM {name}"
                shown = {identity({"id": row[0]}): row[1:] for row in node.query(sql)}
                for key in sorted(shown.keys() | rows.keys()):
                    if shown.get(key) != rows.get(key):
                        wanted = f"{shown.get(key)}, not {rows.get(key)}"
                        yield f"row {key} of {name} at node {node.number} is {wanted}"


def _expected_rows(events: Iterable[Event]) -> Rows:
    """What the reference model makes of these events."""
    facts = [
        Fact(event.site, event.event_id, event.table, event.key or {}, event.columns, (*event.hlc,)) for event in events
    ]
    return {
        name: {
            key: cells for key, row in rows_of(facts, name, table).items() if (cells := row.cells(table)) is not None
        }
        for name, table in SHAPES.items()
    }

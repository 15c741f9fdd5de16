"""What must hold in every run, whatever goes wrong: one small class each, apart from what the runs do."""

from __future__ import annotations

from typing import Final

from support.reference import Fact, identity, rows_of

from meshnode.model.delivery import PATH
from meshnode.store.backlog import backlog
from sim.tables import SHAPES
from sim.watch import Checker


class Convergence(Checker):
    """All live nodes end with the same events and rows, and the rows are what profile §5 makes of the events."""

    def open_ends(self) -> list[str]:
        books, nodes = self.world.watch.books, self.world.live()
        for node in nodes:
            books.reread(node)
        every = {data for node in nodes for data in books.held[node.number].events if self._counts(data)}
        found = []
        for node in nodes:
            missing = every - books.held[node.number].events.keys()
            if missing:
                named = sorted(f"{books.events[data].site.hex()[:8]} {books.events[data].hlc}" for data in missing)
                found.append(f"node {node.number} lacks {len(missing)} events, first {named[0]}")
        return found or self._rows(every)

    def _counts(self, data: bytes) -> bool:
        return self.world.watch.books.events[data].table in SHAPES

    def _rows(self, every: set[bytes]) -> list[str]:
        facts = [
            Fact(event.site, event.event_id, event.table, event.key or {}, event.columns, (*event.hlc,))
            for event in map(self.world.watch.books.events.__getitem__, every)
        ]
        found = []
        for table, shape in SHAPES.items():
            names = sorted(shape.columns)
            expected = {
                key: [row.columns.get(name) for name in names] for key, row in rows_of(facts, table, shape).items()
            }
            for node in self.world.live():
                sql = f"SELECT id, {', '.join(names)} FROM {table}"
                shown = {identity({"id": row[0]}): list(row[1:]) for row in node.query(sql)}
                for key in sorted(shown.keys() | expected.keys()):
                    if shown.get(key) != expected.get(key):
                        wanted = f"{shown.get(key)}, not {expected.get(key)}"
                        found.append(f"row {key} of {table} at node {node.number} is {wanted}")
        return found


class Settled(Checker):
    """Once nothing fails any more, nothing stays in flight, to be offered again, or asked for."""

    def open_ends(self) -> list[str]:
        found = []
        for node in self.world.live():
            for peer in self.world.live():
                if peer is node or not node.is_linked(peer):
                    continue
                open_with = backlog(node, peer.site, PATH, lambda _schema, _table: True)
                if not open_with.settled or open_with.reoffers or open_with.requests:
                    found.append(f"node {node.number} for node {peer.number}: {open_with}")
        return found


CHECKERS: Final[tuple[type[Checker], ...]] = (Convergence, Settled)

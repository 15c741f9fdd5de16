"""The conflict ledger against what every author really had on its disk when it wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from support.store_jobs import Job

from meshnode.model.conflict import Status
from meshnode.model.event import Event
from meshnode.store import conflicts
from sim.books import Held, name_of
from sim.network import Side
from sim.node import Node
from sim.watch import Checker

if TYPE_CHECKING:
    from sim.world import World


class _Written(NamedTuple):
    """Where an event was written: on which copy of its author's database, and at which position there."""

    copy: Held
    position: int


class ConflictsTrue(Checker):
    """What is called a certain conflict is one: neither author had the other's event when it wrote."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._written: dict[bytes, _Written] = {}  # by event id, of the nodes of the run
        self._seen: dict[bytes, int] = {}  # by site, how many of its events are in there

    def after(self, node: Node, name: str, side: Side | None, job: Job | None, outcome: Any) -> None:
        self._note(node)

    def booted(self, node: Node) -> None:
        self._note(node)

    def at_rest(self) -> None:
        by_id = {event.event_id: event for event in self.world.watch.books.events.values()}
        for node in self.world.live():
            with node.running.context.transaction() as tx:
                found = [each for each in conflicts.all_of(tx) if each.certain and each.status is not Status.WITHDRAWN]
            for each in found:
                ours, theirs = by_id[each.ours.event_id], by_id[each.theirs.event_id]
                if self._had(ours, theirs) or self._had(theirs, ours):
                    self.fail(
                        f"node {node.number} calls it certain that {name_of(ours)} and {name_of(theirs)} conflict"
                    )

    def _note(self, node: Node) -> None:
        books = self.world.watch.books
        authored, held = books.authored.get(node.site, []), books.held[node.number]
        for event in authored[self._seen.get(node.site, 0) :]:
            position = held.events.get(event.data)
            if position is not None:
                self._written[event.event_id] = _Written(held, position)
        self._seen[node.site] = len(authored)

    def _had(self, event: Event, other: Event) -> bool:
        """Whether the author of an event had the other one when it wrote."""
        written = self._written.get(event.event_id)
        if written is None:
            return False  # a hostile member wrote it, who may have known anything
        return any(data == other.data for at, data in written.copy.positions.items() if at < written.position)

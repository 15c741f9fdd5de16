"""What the applications of a run do: bursts of writes to few rows, so that most of them meet others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshnode.engine.registry import TableSpec
from meshnode.engine.write import LocalChange
from sim.chance import Chance
from sim.tables import LATE, NOTES

if TYPE_CHECKING:
    from sim.node import Node
    from sim.world import World

ROWS = 5


class Workload:
    """Writes at random moments."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance: Chance = world.chance.branch("workload")
        self._written = 0
        plan = world.plan
        for _ in range(plan.bursts):
            world.schedule.after(self._chance.between(0, plan.trouble_us), self._somewhere)

    def _somewhere(self) -> None:
        self.burst(self._chance.pick(self._world.nodes))

    def burst(self, node: Node) -> None:
        """Writes in one transaction, if the node can write now."""
        process = node.process
        if process is None or process.recovering:
            return
        changes = [self._change(node) for _ in range(self._chance.pick((1, 1, 2, 4, 12)))]
        process.write(changes, lambda events: node.note(f"wrote {len(events)}"))

    def _change(self, node: Node) -> LocalChange:
        self._written += 1
        table: TableSpec = LATE if self._chance.hit(0.3) and node.has_table(LATE.name) else NOTES
        there = [row[0] for row in node.query(f"SELECT id FROM {table.name} ORDER BY id")]
        if there and self._chance.hit(0.2):
            return LocalChange(table.schema, table.name, {"id": self._chance.pick(there)}, None)
        key = {"id": f"row {self._chance.between(1, ROWS)}"}
        columns = self._chance.some([*table.columns], 0.6)
        values = {name: self._value(name) for name in columns}
        return LocalChange(table.schema, table.name, key, values)

    def _value(self, column: str) -> str | int | None:
        if self._chance.hit(0.1):
            return None
        return self._written if column == "n" else f"text {self._written}"

"""Sticks that are carried: a node writes a bundle, and others take it in: later, again, out of order, old ones too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from support.bundles import export, take

from meshnode.node.bundleviews import IntakeView
from sim.chance import Chance
from sim.schedule import SECOND

if TYPE_CHECKING:
    from sim.node import Node
    from sim.process import Process
    from sim.world import World

CARRIED: Final = "carry a bundle"  # what the plan calls it


class Carrier:
    """A process as `support.bundles` needs it: jobs of its own follow what a bundle brought."""

    def __init__(self, process: Process) -> None:
        self.number, self.site, self.context = process.node.number, process.node.site, process.context
        self.time = self
        self.wall_ms = process.wall_ms

    def grew(self) -> None:
        """Told once the job is on the disk."""

    def ask(self) -> None:
        """Likewise."""


class Bundles:
    """Writes them at random moments; none is ever thrown away."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance: Chance = world.chance.branch("bundles")
        self._written: list[tuple[Path, Node]] = []
        self._numbered = 0
        self.kinds: dict[str, Callable[[], None]] = {CARRIED: self._carry}

    def _carry(self) -> None:
        node: Node = self._chance.pick(self._world.nodes)
        process = node.process
        if process is None:
            return
        self._numbered += 1
        path = self._world.folder / f"bundle {self._numbered}"
        others = [other for other in self._world.nodes if other is not node]
        to = None if self._chance.hit(0.6) else self._chance.pick(others)
        batch = self._chance.pick((1, 4, 512))

        def written(_pages: object) -> None:
            process.note(f"wrote {path.name}")
            self._written.append((path, node))
            for _ in range(self._chance.between(1, 3)):
                self._world.schedule.after(self._chance.spread(4 * SECOND), self._take_one)

        process.submit("export", lambda: export(Carrier(process), to, path, batch=batch), written)

    def _take_one(self) -> None:
        """Any of those that were ever written, at any other node: whom it is not for refuses it."""
        path, writer = self._written[-1] if self._chance.hit(0.6) else self._chance.pick(self._written)
        running = [node.process for node in self._world.nodes if node.process is not None and node is not writer]
        if not running:
            return
        process: Process = self._chance.pick(running)

        def taken(view: IntakeView) -> None:
            self._world.happened["bundle taken in"] += 1
            process.note(f"took in {path.name}: {view.verdicts}, {view.records} records, {view.repeated} frames again")
            process.took_in()

        process.submit("import", lambda: take(Carrier(process), path), taken)

"""What goes wrong in a run, at random moments: processes, disks, clocks and the network."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from meshnode.engine import retention
from meshnode.engine.sweep import Sweep
from sim.chance import Chance
from sim.disk import Copy
from sim.schedule import SECOND
from sim.tables import EXTRA, LATE, NOTES

if TYPE_CHECKING:
    from sim.node import Node
    from sim.process import Process
    from sim.world import World

FULL = "database or disk is full"
FAILED = "disk I/O error"
WITHOUT_LATE = ("*.*", f"!{LATE.schema}.{LATE.name}")


class Trouble:
    """Each kind of trouble by its name."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance: Chance = world.chance.branch("trouble")
        self.kinds: dict[str, Callable[[], None]] = {
            "crash": self._crash,
            "die in a transaction": self._die_in_a_transaction,
            "die between effects": self._die_between_effects,
            "refuse writes": self._refuse_writes,
            "set a clock": self._set_a_clock,
            "break a link": self._break_a_link,
            "cut one way": self._cut_one_way,
            "part the mesh": self._part_the_mesh,
            "restore a copy": self._restore_a_copy,
            "lose the disk": self._lose_the_disk,
            "gain a column": self._gain_a_column,
            "make a table": self._make_a_table,
            "compact": self._compact,
            "change a scope": self._change_a_scope,
        }

    def _running(self) -> Process | None:
        node: Node = self._chance.pick(self._world.nodes)
        return node.process

    # --- processes and disks

    def _crash(self) -> None:
        process = self._running()
        if process is not None:
            self._world.crash(process.node)

    def _die_in_a_transaction(self) -> None:
        process = self._running()
        if process is not None:
            process.fuse = self._chance.between(0, 60)

    def _die_between_effects(self) -> None:
        process = self._running()
        if process is not None:
            process.effects_left = self._chance.between(0, 8)

    def _refuse_writes(self) -> None:
        process = self._running()
        if process is not None:
            message = self._chance.pick((FULL, FAILED))
            often = self._chance.pick((0.05, 0.5))
            statements = range(self._chance.between(1, 60))
            process.refusals = [message if self._chance.hit(often) else None for _ in statements]
            process.note(f"finds its disk refuse {sum(each is not None for each in process.refusals)} statements")

    def _restore_a_copy(self) -> None:
        """A backup is made, and some time later it is put in place of the database."""
        process = self._running()
        if process is not None and not process.writer.unsure:
            node, copy, dropped = process.node, process.node.disk.settled(), tuple(process.node.dropped)
            self._world.schedule.after(self._chance.spread(4 * SECOND), lambda: self._replace(node, copy, dropped))

    def _lose_the_disk(self) -> None:
        node = self._chance.pick(self._world.nodes)
        self._replace(node, node.first_copy())

    def _replace(self, node: Node, copy: Copy, dropped: tuple[str, ...] = ()) -> None:
        if self._world.is_peaceful:
            return
        if node.process is not None:
            self._world.crash(node)
        node.restore(copy, dropped)

    # --- clocks

    def _set_a_clock(self) -> None:
        node = self._chance.pick(self._world.nodes)
        seconds = self._chance.pick((-3600, -90, 0, 45, 200, 299, 301, 301, 420, 420))
        node.clock_error_us = seconds * SECOND
        node.note(f"has its clock set {seconds:+} s")

    # --- the network

    def _break_a_link(self) -> None:
        self._world.network.break_link(*self._chance.pick(self._world.network.edges))

    def _cut_one_way(self) -> None:
        one, other = self._chance.shuffled(self._chance.pick(self._world.network.edges))
        self._world.note(f"cut from {one} to {other}")
        self._world.network.cut([(one, other)], self._chance.spread(20 * SECOND))

    def _part_the_mesh(self) -> None:
        side = self._chance.some([node.number for node in self._world.nodes], 0.5)
        directions = [
            direction
            for edge in self._world.network.edges
            if (edge[0] in side) != (edge[1] in side)
            for direction in (edge, edge[::-1])
        ]
        self._world.note(f"parted: {side} from the others")
        self._world.network.cut(directions, self._chance.spread(20 * SECOND))

    # --- schemas

    def _gain_a_column(self) -> None:
        process = self._running()
        if process is not None:
            process.node.gain_column(NOTES.name, EXTRA)

    def _change_a_scope(self) -> None:
        """The owner changes the settings, which takes a restart."""
        node = self._chance.pick(self._world.nodes)
        node.take_scope(self._chance.pick(((), WITHOUT_LATE)))
        self._world.crash(node)

    def _make_a_table(self) -> None:
        process = self._running()
        if process is not None:
            process.change("table", lambda engine: engine.register_table(LATE))

    def _compact(self) -> None:
        process = self._running()
        if process is not None:
            context = process.context

            def begun(sweep: Sweep) -> None:
                process.node.sweeps += 1
                self._sweep(process, sweep)

            process.submit("compact", lambda: retention.compaction(context, NOTES.schema, NOTES.name), begun)

    def _sweep(self, process: Process, sweep: Sweep) -> None:
        def finished(_: None) -> None:
            process.node.sweeps -= 1

        def stepped(more: bool) -> None:
            if more:
                self._sweep(process, sweep)
            else:
                process.submit("finish", sweep.finish, finished)

        process.submit("compact", sweep.step, stepped)

"""One run: a mesh on one schedule, trouble for a while, then peace, in which everything has to come to rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from meshnode.model.frames import FEATURE_COVERING, FEATURES
from sim.bundles import Bundles
from sim.chance import Chance
from sim.checkers import CHECKERS
from sim.hostile import Hostile
from sim.members import Members
from sim.network import Host, Network
from sim.node import Node
from sim.plan import HOSTILE, Plan, plan_of
from sim.process import Died
from sim.schedule import SECOND, Schedule
from sim.tables import EXTRA, LATE, NOTES
from sim.trouble import Trouble
from sim.watch import Checker, Violation, Watch
from sim.workload import Workload

PEACE_US = 900 * SECOND  # in which all that waits for a time of its own has come


class World:
    """Everything of one run. Use `run` once."""

    def __init__(
        self,
        seed: int,
        folder: Path,
        tell: Callable[[str], None] | None = None,
        kinds: Sequence[type[Checker]] = CHECKERS,
        plan: Plan | None = None,
    ) -> None:
        self.seed, self.folder, self._tell = seed, folder, tell
        self.plan: Plan = plan or plan_of(seed)
        self.chance = Chance(seed)
        self.schedule = Schedule()
        self.network = Network(self.schedule, self.chance.branch("network"))
        self.watch = Watch(self, kinds)
        numbers = tuple(range(1, self.plan.members + 1))
        members = (*numbers, HOSTILE) if self.plan.hostile else numbers
        self.nodes = [Node(self, number, members=members) for number in numbers]
        self.hostile = Hostile(self) if self.plan.hostile else None
        self.is_peaceful = False
        self.happened: Counter[str] = Counter()  # how often each kind of thing came to pass

    def run(self) -> None:
        """Raises Violation where a checker sees something."""
        self.start()
        self.workload = Workload(self)
        self._let_trouble_come()
        while (at_us := self.schedule.next_us()) is not None and at_us <= self.plan.trouble_us:
            self._guarded(self.schedule.step)
        self._make_peace()
        self._come_to_rest()
        self.watch.at_rest()

    def start(self) -> None:
        """Everybody starts and looks for the others."""
        self.note(f"{self.plan}")
        for node in self.nodes:
            self._guarded(node.boot)
        hosts = {host.number: host for host in self.hosts}
        for left, right in self.plan.edges:
            self.network.edge(hosts[left], hosts[right], self.plan.weather[(left, right)])

    @property
    def hosts(self) -> list[Host]:
        """Everybody who has links."""
        return [*self.nodes] if self.hostile is None else [*self.nodes, self.hostile]

    def members(self) -> list[Node]:
        """The honest ones that nobody knows to be retired, whether a process of theirs runs or not."""
        running = [node.running for node in self.nodes if node.is_up]
        return [
            node
            for node in self.nodes
            if all(process.context.membership.retired(node.site) is None for process in running)
        ]

    def live(self) -> list[Node]:
        """The members that run: those that have to be equal in the end."""
        return [node for node in self.members() if node.is_up]

    def _let_trouble_come(self) -> None:
        chance = self.chance.branch("moments")
        kinds = {**Trouble(self).kinds, **Members(self).kinds, **Bundles(self).kinds}
        for name, times in self.plan.trouble:
            for _ in range(times):
                self.schedule.after(chance.between(0, self.plan.trouble_us), kinds[name])

    def close(self) -> None:
        """Let go of files; the folder may be removed."""
        for node in self.nodes:
            node.close()

    def crash(self, node: Node) -> None:
        """A process dies, and starts again after a while."""
        if node.process is None or self.is_peaceful:
            return
        node.crash()
        self.schedule.after(self.chance.spread(2 * SECOND), lambda: self._start_again(node))

    def _start_again(self, node: Node) -> None:
        if node.process is None:
            node.boot()

    @property
    def has_strangers(self) -> bool:
        """Whether somebody writes to tables that nobody has."""
        return self.hostile is not None

    @property
    def features(self) -> tuple[str, ...]:
        """What honest members may list."""
        return tuple(each for each in FEATURES if each != FEATURE_COVERING or not self.plan.keeps_history)

    def features_of(self, node: Node) -> tuple[str, ...]:
        """What one lists from its last start on: in some runs there are older versions, put in place and taken back."""
        if not self.plan.mixed:
            return self.features
        return tuple(self.chance.branch(f"features {node.number} {node.boots}").some(self.features, 0.6))

    def note(self, text: str) -> None:
        """A line of the trace."""
        if self._tell is not None:
            self._tell(f"{self.schedule.now_us / SECOND:11.6f} {text.replace(str(self.folder), '')}")

    def _make_peace(self) -> None:
        self.note("peace")
        self.is_peaceful = True
        self.network.heal()
        for node in self.nodes:
            self._start_again(node)
            self.make_peace_with(node)

    def make_peace_with(self, node: Node) -> None:
        """Nothing goes wrong at this node any more, and it has what every node has in the end."""
        if node.scope.patterns:
            node.take_scope(())
            node.crash()
            node.boot()
        process = node.running
        process.fuse = process.effects_left = None
        process.refusals.clear()
        node.clock_error_us = 0
        node.gain_column(NOTES.name, EXTRA)
        process.change("table", lambda engine: engine.register_table(LATE))

    def _come_to_rest(self) -> None:
        looked_at = -1
        open_ends: list[str] = []
        while (at_us := self.schedule.next_us()) is not None:
            if self.schedule.quiet and self.watch.jobs != looked_at:
                looked_at = self.watch.jobs
                open_ends = self.watch.open_ends()
                if not open_ends:
                    self.note("rest")
                    return
            if at_us > self.plan.trouble_us + PEACE_US:
                break
            self._guarded(self.schedule.step)
        name, _, text = open_ends[0].partition(": ") if open_ends else ("Rest", "", "work goes on without end")
        raise Violation(name, f"still so after {PEACE_US // SECOND} s of peace: {text}")

    def _guarded(self, what: Callable[[], None]) -> None:
        try:
            what()
        except Died as died:
            self.crash(died.process.node)
        except Violation:
            raise
        except Exception as error:
            raise Violation("Errors", f"{type(error).__name__}: {error}") from error

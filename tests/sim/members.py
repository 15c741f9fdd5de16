"""Who belongs to the mesh in the middle of a run: devices let in late, roles given, members retired and taken back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from meshnode.engine.authority import issue_retirement, issue_role, issue_vouch
from meshnode.engine.membership import all_records
from meshnode.errors import MeshError
from meshnode.model.hlc import Hlc
from meshnode.store.database import Tx
from sim.chance import Chance
from sim.network import Host
from sim.node import Node
from sim.plan import weather_of
from sim.schedule import SECOND

if TYPE_CHECKING:
    from sim.process import Process
    from sim.world import World

MOST_NODES: Final = 6


class Members:
    """What the owner of the first device does; it is the mesh's authority."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance: Chance = world.chance.branch("members")
        self._next = len(world.nodes) + 1
        self._retired: set[int] = set()  # by number: the record may be lost since with a disk, or known to who is down
        self.kinds: dict[str, Callable[[], None]] = {
            "let a device in": self._let_in,
            "give a role": self._give_role,
            "retire a member": self._retire,
        }

    def _authority(self) -> Process | None:
        process = self._world.nodes[0].process
        return None if process is None or process.recovering else process

    def _issue(self, name: str, issue: Callable[[Tx], bytes], done: Callable[[], None] = lambda: None) -> None:
        """Sign one record on the first device; what does not count is not issued."""
        process = self._authority()
        if process is None:
            return
        context = process.context

        def issued(_record: bytes) -> None:
            process.note(name)
            self._world.happened[name.split(" node ")[0]] += 1
            process.membership_changed()
            process.log_grew()
            done()

        def refused(error: MeshError) -> None:
            process.note(f"{name}: {error}")

        process.submit("record", lambda: context.transact(issue), issued, refused)

    def _let_in(self) -> None:
        world, process = self._world, self._authority()
        if process is None or self._next > MOST_NODES:
            return
        number, self._next = self._next, self._next + 1
        context = process.context
        joiner = Node(world, number, members=())

        def join() -> None:
            with context.transaction() as tx:
                joiner.shown = tuple(all_records(tx))
            near = self._chance.shuffled(self._reliable(world.live()))[: self._chance.between(1, 2)]
            world.nodes.append(joiner)
            joiner.boot()
            if world.is_peaceful:
                world.make_peace_with(joiner)
            for other in near:
                world.network.edge(joiner, other, weather_of(self._chance, rough=self._chance.hit(0.5)))

        self._issue(f"lets node {number} in", lambda tx: issue_vouch(context, tx, joiner.public_key, "late"), join)

    def _give_role(self) -> None:
        process, subject = self._authority(), self._chance.pick(self._world.nodes[1:])
        role = self._chance.pick(("reader", "reader", "member", "authority"))
        if process is not None:
            context, site = process.context, subject.site
            self._issue(f"makes node {subject.number} {role}", lambda tx: issue_role(context, tx, site, role))

    def _retire(self) -> None:
        """A device that was stolen: it writes once more, and is retired from about then on; others may die over it."""
        subject: Host = self._chance.pick(self._world.hosts[1:])
        if isinstance(subject, Node):
            self._world.workload.burst(subject)
        self._world.schedule.after(self._chance.spread(SECOND), lambda: self._issue_retirement(subject))

    def _issue_retirement(self, subject: Host) -> None:
        process = self._authority()
        if process is None:
            return
        back_us = self._chance.pick((None, 0, 2 * SECOND, 15 * SECOND))
        context, site = process.context, subject.site
        cutoff = None if back_us is None else Hlc(process.wall_ms() - back_us // 1000, 0)

        def issue(tx: Tx) -> bytes:
            left = [node for node in self._world.members() if node is not subject]
            if not self._world.network.holds_together(left, self._reliable(left)):
                raise MeshError("others would lose each other")
            self._retired.add(subject.number)
            return issue_retirement(context, tx, site, cutoff=cutoff)

        self._issue(f"retires node {subject.number} from {cutoff}", issue, self._shake)

    def _reliable(self, nodes: Iterable[Node]) -> list[Node]:
        """Those that nobody can turn away."""
        return [node for node in nodes if node.number not in self._retired]

    def _shake(self) -> None:
        for node in self._chance.some(self._world.nodes, 0.4):
            self._world.schedule.after(self._chance.spread(SECOND), lambda node=node: self._world.crash(node))  # type: ignore[misc]

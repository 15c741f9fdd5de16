"""How a mesh grows: the same runs without trouble, with ever more nodes. A measurement, not a test.

Every node has six links, chosen at random; 20,000 events are written in bursts by all nodes within a minute. A job on
the writer takes as long as it was measured to take with what it carries, so that virtual time means something.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from meshnode.engine.write import LocalChange
from sim.chance import Chance
from sim.network import Direction, Weather
from sim.node import Node
from sim.plan import Plan
from sim.run import remembered_signatures
from sim.schedule import MS, SECOND
from sim.tables import NOTES, memory_folder
from sim.watch import Watch
from sim.world import World

SIZES: Final = (8, 16, 32, 64)
EVENTS: Final = 20_000
DEGREE: Final = 6
WRITING_US: Final = 60 * SECOND
BURST: Final = 20  # events of one local write
ROWS: Final = 5_000
JOB_US: Final = 2 * MS  # of a transaction, and of its sync: an SSD
SYNC_US: Final = 2 * MS
EVENT_US: Final = 100  # to verify and apply one event, as `tests/bench/growth.py` measures it
LAN: Final = Weather(latency_us=1 * MS, jitter_us=200, loss=0.0, bytes_per_ms=12_500)


@dataclass(frozen=True, slots=True)
class Growth:
    """What one size came to."""

    nodes: int
    links: int
    events: int
    settle_s: float  # virtual seconds from the last write until every node had every event
    bytes_per_event: float  # on all links together
    jobs_per_event: float
    took_s: float  # real seconds of the run

    @property
    def per_link(self) -> float:
        """Bytes per event on one link, both directions together."""
        return self.bytes_per_event / self.links

    def text(self) -> str:
        """One line of the table."""
        bytes_per_node = self.bytes_per_event / self.nodes
        return (
            f"{self.nodes:5} {self.links:6} {self.settle_s:8.2f} s {self.bytes_per_event / 1024:11.1f} KiB"
            f" {self.per_link:10.0f} B {bytes_per_node:11.0f} B {self.jobs_per_event:11.1f} {self.took_s:6.0f} s"
        )


HEAD: Final = "nodes  links  converged  all links/event  a link/event  a node/event  jobs/event     took"


class Counting(Watch):
    """Counts jobs and looks at nothing."""

    def before(self, *_: object) -> None:
        """A job is about to run."""

    def after(self, *_: object) -> None:
        """A job is done."""
        self.jobs += 1

    def booted(self, node: Node) -> None:
        """A process started."""


def grow(sizes: tuple[int, ...] = SIZES, events: int = EVENTS, seed: int = 1) -> Iterator[Growth]:
    """Measure one size after the other."""
    for size in sizes:
        yield measure(size, events, seed)


def measure(size: int, events: int, seed: int) -> Growth:
    """One mesh from its start until everything is everywhere."""
    started = time.perf_counter()
    plan = plan_of_size(size, Chance(seed, "growth"))
    with memory_folder() as folder, remembered_signatures(), closing(World(seed, Path(folder), plan=plan)) as world:
        world.watch = Counting(world, ())
        world.start()
        _write(world, events)
        while not _is_everywhere(world, events):
            _run_for(world, 100 * MS)
        sent = sum(sum(side.sent.values()) for side in world.network.sides) + sum(world.network.bytes.values())
        return Growth(
            size,
            len(plan.edges),
            events,
            (world.schedule.now_us - WRITING_US) / SECOND,
            sent / events,
            world.watch.jobs / events,
            time.perf_counter() - started,
        )


def plan_of_size(size: int, chance: Chance) -> Plan:
    """A mesh without trouble: a random graph in which every node has `DEGREE` links."""
    edges = _edges(chance, size)
    return Plan(
        members=size,
        hostile=False,
        edges=edges,
        weather=dict.fromkeys(edges, LAN),
        trouble_us=0,
        bursts=0,
        job_us=JOB_US,
        sync_us=SYNC_US,
        event_us=EVENT_US,
        trouble=(),
    )


def _edges(chance: Chance, size: int) -> tuple[Direction, ...]:
    """A ring, which holds the mesh together, and random links until nobody has room for another."""
    numbers = chance.shuffled(range(1, size + 1))
    found = {_edge(one, numbers[at - 1]) for at, one in enumerate(numbers)}
    room = dict.fromkeys(numbers, DEGREE - 2)
    for one, other in chance.shuffled([(one, other) for one in numbers for other in numbers if one < other]):
        if room[one] and room[other] and (one, other) not in found:
            found.add((one, other))
            room[one] -= 1
            room[other] -= 1
    return tuple(sorted(found))


def _edge(one: int, other: int) -> Direction:
    return (min(one, other), max(one, other))


def _write(world: World, events: int) -> None:
    chance = world.chance.branch("growth")
    left = events
    while left:
        burst = min(BURST, left)
        left -= burst
        node = chance.pick(world.nodes)
        changes = [_change(chance) for _ in range(burst)]
        world.schedule.after(chance.between(0, WRITING_US), _writing(node, changes))
    _run_for(world, WRITING_US)


def _writing(node: Node, changes: list[LocalChange]) -> Callable[[], None]:
    return lambda: node.running.write(changes, lambda _events: None)


def _change(chance: Chance) -> LocalChange:
    key = {"id": f"row {chance.between(1, ROWS):05}"}
    return LocalChange(NOTES.schema, NOTES.name, key, {"title": "a title of some words", "n": chance.between(1, 10**6)})


def _run_for(world: World, span_us: int) -> None:
    end = world.schedule.now_us + span_us
    while (at_us := world.schedule.next_us()) is not None and at_us <= end:
        world.schedule.step()
    world.schedule.now_us = end


def _is_everywhere(world: World, events: int) -> bool:
    return all(node.query("SELECT count(*) FROM meshnode_log")[0][0] == events for node in world.nodes)

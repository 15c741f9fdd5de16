"""What a full mesh sends over what sending each event once to each node needs, for batches and for single writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from meshnode.model.event import Event
from meshnode.model.frames import FEATURES, Batch, encode_frame
from support.timed_mesh import Carried, TimedMesh, full, write_batch

NODES = 8
SETTLED_MS = 300_000  # virtual time in which a mesh that nobody writes to comes to rest
SINGLE_WRITES = 60
SINGLE_EVERY_MS = 1_000
BATCH_EVENTS = 100
BATCHES = 16
BATCH_EVERY_MS = 5_000


@dataclass(frozen=True, slots=True)
class Measured:
    """One run."""

    events: Sequence[Sequence[bytes]]  # of each write
    carried: Carried  # until the last write was over
    afterwards: Carried  # and until all was at rest

    def over_events(self, carried: Carried | None = None) -> float:
        """All bytes over the bytes of the events themselves, once to each of the others."""
        needed = sum(len(event) for write in self.events for event in write)
        return (carried or self.afterwards).total / needed / (NODES - 1)

    def over_batches(self, carried: Carried | None = None) -> float:
        """All bytes over those of one plain batch frame for each write, once to each of the others."""
        needed = sum(batch_bytes(write) for write in self.events)
        return (carried or self.afterwards).total / needed / (NODES - 1)


def batch_bytes(events: Sequence[bytes]) -> int:
    """A batch frame without deflate, with the slots of all nodes in its clock, and its length."""
    clock = {number.to_bytes(16, "big"): 1000 + number for number in range(NODES)}
    return len(encode_frame(Batch(epoch=bytes(8), no=100, clock=clock, events=list(events)))) + 4


def title(row: str) -> str:
    """What the rows hold."""
    return f"title of {row}"


def singles(folder: Path, *, features: tuple[str, ...] = FEATURES, writes: int = SINGLE_WRITES) -> Measured:
    """One write a second, by one node after the other."""
    return _measured(folder, features, [[f"n{number:06}"] for number in range(writes)], SINGLE_EVERY_MS)


def batches(folder: Path, *, features: tuple[str, ...] = FEATURES, count: int = BATCHES) -> Measured:
    """A batch every five seconds, by one node after the other."""
    rows = [[f"n{batch:03}{row:03}" for row in range(BATCH_EVENTS)] for batch in range(count)]
    return _measured(folder, features, rows, BATCH_EVERY_MS)


def _measured(folder: Path, features: tuple[str, ...], writes: Sequence[Sequence[str]], every_ms: int) -> Measured:
    mesh = TimedMesh(folder, NODES, full(NODES), features=features)
    mesh.run(SETTLED_MS)
    mesh.forget_sent()
    events: list[list[Event]] = []
    for number, rows in enumerate(writes):
        events.append(write_batch(mesh.nodes[number % NODES], rows, title))
        mesh.run(every_ms)
    during = mesh.carried()
    mesh.run(SETTLED_MS)
    written = {event.data for each in events for event in each}
    assert all(node.events() == written for node in mesh.nodes)
    measured = Measured([[event.data for event in each] for each in events], during, mesh.carried())
    mesh.close()
    return measured

"""A mesh of nodes on memory links in virtual time, and what its links carry: the same figures at every run.

Nothing takes time but waiting: all that is under way is run to its end, then the clock goes to the next timer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

from meshnode.codec import cbor
from meshnode.codec.framing import FrameReader
from meshnode.engine.commit import commit_events
from meshnode.engine.verify import verify_untrusted
from meshnode.model.event import Event
from meshnode.model.frames import FEATURES
from meshnode.model.hlc import tick
from meshnode.model.scope import Scope
from meshnode.model.verdict import Judgement
from meshnode.store.database import Tx
from meshnode.sync.effects import SendControl, SendEvents
from support.pair import MESH_ID, End, Node, Wire, mesh, settle

_HEAD = 4  # bytes of a frame's length
_GREETINGS = ("hello", "introduce", "open")


def full(count: int) -> list[tuple[int, int]]:
    """Every pair of nodes."""
    return list(combinations(range(count), 2))


@dataclass(slots=True)
class Carried:
    """Frames and bytes by kind, length prefixes included."""

    frames: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)

    def add(self, frame: bytes) -> None:
        """One frame's CBOR."""
        tag = cbor.decode_untrusted(frame)["t"]  # type: ignore[index,call-overload]
        self.frames[tag] += 1
        self.bytes[tag] += len(frame) + _HEAD

    @property
    def total(self) -> int:
        """All bytes but those of greetings."""
        return sum(size for tag, size in self.bytes.items() if tag not in _GREETINGS)


class TimedMesh:
    """Nodes joined by some links."""

    def __init__(
        self, folder: Path, count: int, pairs: Iterable[tuple[int, int]], *, features: tuple[str, ...] = FEATURES
    ) -> None:
        self.nodes = mesh(folder, count, features=features)
        self.wires = {pair: Wire(self.nodes[pair[0]], self.nodes[pair[1]]) for pair in pairs}

    @property
    def now_ms(self) -> int:
        """The one clock of all nodes."""
        return self.nodes[0].time.now_ms

    @property
    def ends(self) -> list[End]:
        """Both ends of every link that stands."""
        return [end for wire in self.wires.values() if not wire.is_cut for end in (wire.left, wire.right)]

    def rest(self) -> None:
        """Run all that is under way; no time passes."""
        settle(list(self.wires.values()))

    def run(self, ms: int) -> None:
        """Let time pass, every timer at its moment."""
        until = self.now_ms + ms
        while True:
            self.rest()
            due = [at for end in self.ends if (at := end.session.next_timer()) is not None]
            soonest = min(due, default=until + 1)
            self.nodes[0].time.now_ms = max(self.now_ms, min(soonest, until))
            if soonest > until:
                return
            for end in self.ends:
                end.timer()

    def forget_sent(self) -> None:
        """Count from here on."""
        for end in self.ends:
            end.effects.clear()

    def carried(self) -> Carried:
        """What all links carried in both directions."""
        found = Carried()
        for end in self.ends:
            for kind in (SendControl, SendEvents):
                sent = b"".join(each.data for each in end.effects if isinstance(each, kind))
                for frame in FrameReader().feed(sent):
                    found.add(frame)
        return found

    def close(self) -> None:
        """Close the databases."""
        for node in self.nodes:
            node.context.db.close()


def write_batch(node: Node, rows: Sequence[str], title: Callable[[str], str]) -> list[Event]:
    """Author one row after the other in a single transaction, and tell the sessions once."""
    events: list[Event] = []

    def work(tx: Tx) -> list[Judgement]:
        events.clear()
        for row in rows:
            node.context.clock = tick(node.context.clock, node.time.now_ms)
            events.append(node.event(row, title(row), hlc=node.context.clock))
        keyring, generation = node.context.membership, node.context.generation
        data = [event.data for event in events]
        checked = verify_untrusted(data, mesh_id=MESH_ID, keyring=keyring, generation=generation)
        return commit_events(node.context, tx, checked, author_stream=True, scope=Scope())

    node.context.transact(work)
    node.grew()
    return events

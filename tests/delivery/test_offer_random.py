"""Four nodes, any links among them, with and without the features, under crashes and restored databases (profile §14).

What is offered is never lost: a cursor passes only what the peer has or what is to be sent to it again, no watermark
claims what is not there, and at rest everybody has everything and claims it.
"""

from __future__ import annotations

import tempfile
from itertools import combinations
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from support.pair import NOTES, Node, Stopped, Wire, mesh, settle

from meshnode.engine import outbox
from meshnode.engine.retention import compaction
from meshnode.limits import GENESIS_REWIND_MS, OFFER_WAIT_MS
from meshnode.model.delivery import PATH
from meshnode.model.frames import FEATURE_OFFER, FEATURES
from meshnode.model.hlc import Hlc
from meshnode.store import delivery
from meshnode.store.watermarks import all_watermarks

NODES = 4
PAIRS = tuple(combinations(range(NODES), 2))
KEEPER = 3  # writes nothing: its database may be put back to an old copy (a node that writes must not, before it asked)
SETS = ((), (FEATURE_OFFER,), FEATURES)

_pair = st.integers(0, len(PAIRS) - 1)
_node = st.integers(0, NODES - 1)
ACTIONS = st.one_of(
    st.tuples(st.just("steps"), _pair, st.integers(1, 30)),
    st.tuples(st.just("steps"), _pair, st.integers(1, 30)),
    st.tuples(st.just("write"), st.integers(0, KEEPER - 1), st.just(0)),
    st.tuples(st.just("write"), st.integers(0, KEEPER - 1), st.just(0)),
    st.tuples(st.just("crash"), _node, st.just(0)),
    st.tuples(st.just("fuse"), _node, st.integers(0, 40)),
    st.tuples(st.sampled_from(("cut", "link", "link")), _pair, st.just(0)),
    st.tuples(st.just("time"), st.just(0), st.integers(1, 2 * OFFER_WAIT_MS)),
)
LOSSES = st.tuples(st.sampled_from(("backup", "restore")), st.just(KEEPER), st.just(0))
OTHER_FEATURES = st.tuples(st.just("features"), _node, st.integers(0, len(SETS) - 1))
COMPACTIONS = st.tuples(st.just("compact"), _node, st.just(0))


class World:
    """The nodes, a wire for each pair, and what was written."""

    def __init__(self, folder: Path) -> None:
        self.nodes = mesh(folder, NODES)
        self.wires: dict[int, Wire] = {}
        self.written: dict[bytes, dict[Hlc, bytes]] = {}
        self.copy: bytes | None = None
        self.was_restored = False

    def act(self, name: str, which: int, value: int) -> None:
        try:
            getattr(self, f"_{name}")(which, value)
        except Stopped:
            next(node for node in self.nodes if node.fuse is not None and node.fuse < 0).crash()

    def _steps(self, which: int, count: int) -> None:
        for turn in range(count):
            possible = self.wires[which].steps() if which in self.wires else []
            if possible:
                possible[turn * count % len(possible)]()

    def _write(self, which: int, _value: int) -> None:
        self._time(0, 1)
        node = self.nodes[which]
        event = node.write(f"row {node.time.now_ms % 3}", f"value {node.time.now_ms}")
        self.written.setdefault(node.site, {})[event.hlc] = event.data

    def _crash(self, which: int, _value: int) -> None:
        self.nodes[which].crash()

    def _fuse(self, which: int, statements: int) -> None:
        self.nodes[which].fuse = statements

    def _cut(self, which: int, _value: int) -> None:
        if which in self.wires:
            self.wires[which].cut()

    def _link(self, which: int, _value: int) -> None:
        if which not in self.wires or self.wires[which].is_cut:
            left, right = PAIRS[which]
            self.wires[which] = Wire(self.nodes[left], self.nodes[right])

    def _features(self, which: int, chosen: int) -> None:
        """Another version of the program is started there."""
        self.nodes[which].features = SETS[chosen]
        self.nodes[which].crash()

    def _compact(self, which: int, _value: int) -> None:
        sweep = compaction(self.nodes[which].context, *NOTES)
        while sweep.step():
            pass

    def _time(self, _which: int, ms: int) -> None:
        self.nodes[0].time.now_ms += ms
        for wire in self.wires.values():
            for end in (wire.left, wire.right):
                if not wire.is_cut:
                    end.timer()

    def _backup(self, which: int, _value: int) -> None:
        self.nodes[which].fuse = None
        self.copy = self.nodes[which].backup()

    def _restore(self, which: int, _value: int) -> None:
        if self.copy is not None:
            self.nodes[which].fuse = None
            self.nodes[which].lose(self.copy)
            self.was_restored = True

    def come_to_rest(self) -> None:
        for node in self.nodes:
            node.fuse = None
        for which in range(len(PAIRS)):
            self._cut(which, 0)
        for which in range(len(PAIRS)):
            self._link(which, 0)
        for _ in range(5):
            settle(list(self.wires.values()))
            self._time(0, GENESIS_REWIND_MS)
        settle(list(self.wires.values()))

    # --- The laws.

    def no_cursor_is_ahead(self) -> None:
        for sender in self.nodes:
            for receiver in self.nodes:
                if receiver is not sender and not (self.was_restored and receiver is self.nodes[KEEPER]):
                    assert passed(sender, receiver) <= receiver.events()

    def claims(self, node: Node) -> dict[bytes, Hlc]:
        with node.context.transaction() as tx:
            return {each.site: each.hlc for each in all_watermarks(tx)}

    def nothing_is_claimed_that_is_not_there(self) -> None:
        for node in self.nodes:
            present = node.events()
            for site, claimed in self.claims(node).items():
                due = {data for hlc, data in self.written.get(site, {}).items() if hlc <= claimed}
                assert due <= present

    @property
    def is_running(self) -> bool:
        return all(node.fuse is None for node in self.nodes)

    def close(self) -> None:
        for node in self.nodes:
            node.context.db.close()


def passed(sender: Node, receiver: Node) -> set[bytes]:
    """What a stream has behind its cursors, and is not about to send again."""
    with sender.context.transaction() as tx:
        stream = outbox.stream_of(sender.context, tx, receiver.site, PATH)
        outbound = delivery.read_outbound(tx, stream)
        if outbound is None:
            return set()
        again = {
            position
            for row in delivery.read_staged(tx, stream, outbound)
            if row.items.kind == delivery.EVENTS_AGAIN
            for position in row.items.positions
        }
        again.update(
            row[0] for row in tx.execute("SELECT position FROM meshnode_reoffers WHERE site_no = ?", (stream.no,))
        )
        others_to = outbound.cursor if outbound.offer_cursor is None else outbound.offer_cursor
        rows = tx.execute(
            "SELECT l.position, s.site, l.event FROM meshnode_log AS l JOIN meshnode_sites AS s ON s.no = l.site_no"
        )
        return {
            bytes(event)
            for position, author, event in rows
            if author != receiver.site
            and position not in again
            and position <= (outbound.cursor if author == sender.site else others_to)
        }


def run(folder: str, actions: list[tuple[str, int, int]], *, keeps_all: bool = True) -> World:
    """Do all that, checking the laws wherever no process is about to die; `keeps_all` unless events are compacted."""
    world = World(Path(folder))
    for action in actions:
        world.act(*action)
        if world.is_running and keeps_all:
            world.nothing_is_claimed_that_is_not_there()
            world.no_cursor_is_ahead()
    world.come_to_rest()
    for node in world.nodes:
        assert node.rows() == world.nodes[0].rows()
        for table in ("staged", "reoffers", "requests", "answers"):
            assert node.query(f"SELECT count(*) FROM meshnode_{table}") == [(0,)], table
    return world


def check_all_is_everywhere(world: World) -> None:
    world.was_restored = False
    world.no_cursor_is_ahead()
    latest = {site: max(events) for site, events in world.written.items()}
    for node in world.nodes:
        assert node.events() == {data for events in world.written.values() for data in events.values()}
        assert world.claims(node) == latest
    world.close()


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.lists(st.one_of(ACTIONS, LOSSES), max_size=60))
def test_nothing_that_is_offered_is_lost(actions: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_all_is_everywhere(run(folder, actions))


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.lists(st.one_of(ACTIONS, OTHER_FEATURES), max_size=60))
def test_nor_where_features_come_and_go(actions: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_all_is_everywhere(run(folder, actions))


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.lists(st.one_of(ACTIONS, COMPACTIONS), max_size=60))
def test_nor_where_events_are_compacted_between_offer_and_answer(actions: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run(folder, actions, keeps_all=False).close()

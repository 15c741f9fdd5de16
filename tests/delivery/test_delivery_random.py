"""Any interleaving of writes, steps, crashes between and inside transactions, lost links and restored databases.

The law: no cursor is ever ahead of what the peer has on disk, and what is left running converges (profile §8, NEOTH).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pair import Node, Stopped, Wire, mesh
from support.records import founding, vouch

from meshnode.limits import GENESIS_REWIND_MS
from meshnode.model.frames import FEATURES

ACTIONS = st.one_of(
    st.tuples(st.just("step"), st.integers(0, 5)),
    st.tuples(st.just("step"), st.integers(0, 5)),
    st.tuples(st.just("steps"), st.integers(1, 12)),
    st.tuples(st.just("write"), st.integers(0, 1)),
    st.tuples(st.just("crash"), st.integers(0, 1)),
    st.tuples(st.just("fuse"), st.tuples(st.integers(0, 1), st.integers(0, 40))),
    st.tuples(st.just("relink"), st.booleans()),
    st.tuples(st.just("time"), st.integers(1, 40_000)),
)


class World:
    """Two nodes, at most one link, and the books that are kept about them."""

    def __init__(self, folder: Path, features: tuple[str, ...]) -> None:
        self.left, self.right = mesh(folder, 2, features=features)
        self.nodes = (self.left, self.right)
        self.wire = Wire(self.left, self.right)
        self.written: set[bytes] = set()
        self.count = 0

    def act(self, action: tuple[str, object]) -> None:
        try:
            self._act(*action)
        except Stopped:
            victim = next(node for node in self.nodes if node.fuse is not None and node.fuse < 0)
            victim.crash()

    def _act(self, name: str, value: object) -> None:
        if name == "step" and isinstance(value, int):
            self._step(value)
        elif name == "steps" and isinstance(value, int):
            for _ in range(value):
                self._step(0)
        elif name == "write" and isinstance(value, int):
            self.count += 1
            node = self.nodes[value]
            node.time.now_ms += 1
            self.written.add(node.write(f"row {self.count % 3}", f"value {self.count}").data)
        elif name == "crash" and isinstance(value, int):
            self.nodes[value].crash()
        elif name == "fuse" and isinstance(value, tuple):
            self.nodes[value[0]].fuse = value[1]
        elif name == "relink":
            self.relink(bool(value))
        elif name == "time" and isinstance(value, int):
            self.pass_time(value)

    def _step(self, which: int) -> None:
        possible = self.wire.steps()
        if possible:
            possible[which % len(possible)]()

    def relink(self, swap: bool) -> None:
        self.wire.cut()
        self.wire = Wire(*(reversed(self.nodes) if swap else self.nodes))

    def pass_time(self, ms: int) -> None:
        self.left.time.now_ms += ms
        for end in (self.wire.left, self.wire.right):
            if not self.wire.is_cut:
                end.timer()

    def come_to_rest(self) -> None:
        """Nothing fails any more."""
        for node in self.nodes:
            node.fuse = None
        self.relink(False)
        for _ in range(3):
            self.wire.settle()
            self.pass_time(GENESIS_REWIND_MS)
        assert not self.wire.is_cut

    def no_cursor_is_ahead(self) -> None:
        for sender, receiver in (self.nodes, self.nodes[::-1]):
            settled = sender.query(
                "SELECT event FROM meshnode_log JOIN meshnode_sites ON no = meshnode_log.site_no"
                " WHERE position <= (SELECT max(cursor) FROM meshnode_outbound) AND site <> ?",
                receiver.site,
            )
            assert {row[0] for row in settled} <= receiver.events()


def check_converged(left: Node, right: Node) -> None:
    assert left.events() == right.events()
    assert left.rows() == right.rows()
    for node in (left, right):
        assert node.query("SELECT count(*) FROM meshnode_staged") == [(0,)]
        assert node.query("SELECT count(*) FROM meshnode_reoffers") == [(0,)]
        assert node.query("SELECT count(*) FROM meshnode_requests") == [(0,)]
        assert node.query("SELECT count(*) FROM meshnode_log") == [(len(node.events()),)]


@pytest.mark.parametrize("features", [(), FEATURES], ids=["plain", "features"])
@settings(max_examples=40, deadline=None, derandomize=True)
@given(actions=st.lists(ACTIONS, max_size=60))
def test_nothing_is_lost_and_nothing_repeated(features: tuple[str, ...], actions: list[tuple[str, object]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), features)
        for action in actions:
            world.act(action)
            if action[0] in ("crash", "relink", "fuse"):
                for node in world.nodes:
                    node.fuse = None if action[0] != "fuse" else node.fuse
                world.no_cursor_is_ahead() if all(node.fuse is None for node in world.nodes) else None
        world.come_to_rest()
        world.no_cursor_is_ahead()
        assert world.written <= world.left.events()
        check_converged(world.left, world.right)
        for node in world.nodes:
            node.context.db.close()


@pytest.mark.parametrize("features", [(), FEATURES], ids=["plain", "features"])
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    actions=st.lists(
        st.one_of(ACTIONS, st.tuples(st.sampled_from(("lose", "backup", "restore")), st.none())), max_size=60
    )
)
def test_a_receiver_that_loses_or_restores_its_database_converges(
    features: tuple[str, ...], actions: list[tuple[str, object]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), features)
        left, right = world.nodes
        records = (*founding(left.key), vouch(left.key, right.key, 4))
        copy: bytes | None = None
        for action in actions:
            if action == ("write", 1):
                continue  # a restored node authors nothing before it was answered: that is the node's to hold back
            if action[0] == "backup":
                right.fuse = None
                copy = right.backup()
            elif action[0] in ("lose", "restore"):
                right.fuse = None
                right.lose(copy if action[0] == "restore" else None)
                if action[0] == "lose" or copy is None:
                    right.admit(*records)
                    right.create_notes()
            else:
                world.act(action)
        world.come_to_rest()
        assert world.written <= right.events()
        check_converged(left, right)
        for node in world.nodes:
            node.context.db.close()

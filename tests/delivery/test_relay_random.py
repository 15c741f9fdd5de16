"""Three nodes, each pair linked: whatever fails, no watermark claims what is not there, and all claim all at rest.

Fail-closed and still alive (SSP/1 §14.2, profile §6): by the author's own stream, by relays, after restored databases.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pair import Node, Stopped, Wire, mesh, settle
from support.records import founding, vouch

from meshnode.limits import GENESIS_REWIND_MS
from meshnode.model.frames import FEATURES
from meshnode.model.hlc import Hlc
from meshnode.store.watermarks import all_watermarks
from meshnode.sync.sender import WATERMARKS_MS

PAIRS = ((0, 1), (1, 2), (0, 2))
ACTIONS = st.one_of(
    st.tuples(st.just("steps"), st.integers(0, 1), st.integers(1, 30)),
    st.tuples(st.just("steps"), st.integers(0, 2), st.integers(1, 30)),
    st.tuples(st.just("write"), st.sampled_from((0, 2)), st.just(0)),
    st.tuples(st.just("crash"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("fuse"), st.integers(0, 2), st.integers(0, 40)),
    st.tuples(st.just("cut"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("link"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("time"), st.just(0), st.integers(1, 40_000)),
    st.tuples(st.sampled_from(("backup", "restore", "lose")), st.just(1), st.just(0)),
)


class Triangle:
    """Three nodes and what each of them wrote; the middle one, which only relays, may lose or restore its database."""

    def __init__(self, folder: Path, features: tuple[str, ...]) -> None:
        self.nodes = mesh(folder, 3, features=features)
        first = self.nodes[0]
        self.records = (*founding(first.key), *(vouch(first.key, node.key, 2 + node.number) for node in self.nodes[1:]))
        self.written: dict[bytes, dict[Hlc, bytes]] = {}
        self.wires = [Wire(self.nodes[left], self.nodes[right]) for left, right in PAIRS]
        self.copy: bytes | None = None

    def act(self, name: str, which: int, value: int) -> None:
        try:
            self._act(name, which, value)
        except Stopped:
            next(node for node in self.nodes if node.fuse is not None and node.fuse < 0).crash()

    def _act(self, name: str, which: int, value: int) -> None:
        node = self.nodes[which]
        if name == "steps":
            for turn in range(value):
                possible = self.wires[which].steps()
                if possible:
                    possible[turn * value % len(possible)]()
        elif name == "write":
            self.pass_time(WATERMARKS_MS)
            event = node.write(f"row {value}", f"value {node.time.now_ms}")
            self.written.setdefault(node.site, {})[event.hlc] = event.data
        elif name == "crash":
            node.crash()
        elif name == "fuse":
            node.fuse = value
        elif name == "cut":
            self.wires[which].cut()
        elif name == "link" and self.wires[which].is_cut:
            self.link(which)
        elif name == "time":
            self.pass_time(value)
        elif name == "backup":
            node.fuse = None
            self.copy = node.backup()
        elif name in ("restore", "lose"):
            self.lose(node, self.copy if name == "restore" else None)

    def lose(self, node: Node, copy: bytes | None) -> None:
        node.fuse = None
        node.lose(copy)
        if copy is None:
            node.admit(*self.records)
            node.create_notes()

    def link(self, which: int) -> None:
        left, right = PAIRS[which]
        self.wires[which] = Wire(self.nodes[left], self.nodes[right])

    def pass_time(self, ms: int) -> None:
        self.nodes[0].time.now_ms += ms
        for wire in self.wires:
            for end in (wire.left, wire.right):
                if not wire.is_cut:
                    end.timer()

    def come_to_rest(self) -> None:
        for node in self.nodes:
            node.fuse = None
        for which, wire in enumerate(self.wires):
            wire.cut()
            self.link(which)
        for _ in range(4):
            settle(self.wires)
            self.pass_time(GENESIS_REWIND_MS)
        settle(self.wires)

    def claims(self, node: Node) -> dict[bytes, Hlc]:
        with node.context.transaction() as tx:
            return {each.site: each.hlc for each in all_watermarks(tx)}

    def nothing_is_claimed_that_is_not_there(self) -> None:
        for node in self.nodes:
            present = node.events()
            for site, claimed in self.claims(node).items():
                due = {data for hlc, data in self.written.get(site, {}).items() if hlc <= claimed}
                assert due <= present


@pytest.mark.parametrize("features", [(), FEATURES], ids=["plain", "features"])
@settings(max_examples=15, deadline=None, derandomize=True)
@given(choices=st.lists(st.integers(0, 5), min_size=40, max_size=80))
def test_no_watermark_runs_ahead_of_the_frames_between_any_two_steps(
    features: tuple[str, ...], choices: list[int]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = Triangle(Path(folder), features)
        world.wires[2].cut()  # the third node has everything by way of the second
        settle(world.wires)
        for choice in choices:
            if choice == 0:
                world.act("write", 0, 0)
                settle(world.wires[:1])
            possible = world.wires[1].steps()
            if possible:
                possible[choice % len(possible)]()
                world.nothing_is_claimed_that_is_not_there()
        for node in world.nodes:
            node.context.db.close()


@pytest.mark.parametrize("features", [(), FEATURES], ids=["plain", "features"])
@settings(max_examples=40, deadline=None, derandomize=True)
@given(actions=st.lists(ACTIONS, max_size=50))
def test_no_watermark_claims_what_is_not_there(features: tuple[str, ...], actions: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = Triangle(Path(folder), features)
        for action in actions:
            world.act(*action)
            if all(node.fuse is None for node in world.nodes):
                world.nothing_is_claimed_that_is_not_there()
        world.come_to_rest()
        world.nothing_is_claimed_that_is_not_there()
        latest = {site: max(events) for site, events in world.written.items()}
        for node in world.nodes:
            assert world.claims(node) == latest
            node.context.db.close()

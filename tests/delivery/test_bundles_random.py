"""Any order of writes, bundles, links, deaths and restored copies: what is left running converges (SSP/1 §14).

Bundles are lost, taken in late, twice, or by another member than the last; a process dies at any statement; the third
node loses its database or gets an old one. The laws: no watermark claims an event that is not there, and once bundles
go round undisturbed every node has every event, and the last ones carry nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from support.bundles import export, take
from support.laws import cases
from support.pair import Stopped, Wire, mesh
from support.records import founding, vouch

from meshnode.errors import MeshError
from meshnode.limits import GENESIS_REWIND_MS
from meshnode.store.log import parse
from meshnode.store.watermarks import all_watermarks

WHO = st.integers(0, 2)
ACTIONS = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 1), st.none()),
    st.tuples(st.just("write"), st.integers(0, 1), st.none()),
    st.tuples(st.just("export"), WHO, WHO),  # to itself: for any
    st.tuples(st.just("export"), WHO, WHO),
    st.tuples(st.just("take"), st.integers(0, 9), WHO),
    st.tuples(st.just("take"), st.integers(0, 9), WHO),
    st.tuples(st.just("fuse"), WHO, st.integers(0, 60)),
    st.tuples(st.just("link"), WHO, st.integers(1, 40)),
    st.tuples(st.sampled_from(("backup", "restore", "lose")), st.none(), st.none()),
)
ROUNDS = 4  # of bundles between all, after which nothing may be left


class World:
    """Three nodes, and the bundles that lie about."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes = mesh(folder, 3)
        self.files: list[Path] = []
        self.copy: bytes | None = None
        self.count = 0

    def act(self, name: str, first: int | None, second: int | None) -> None:
        act: Callable[..., None] = getattr(self, f"_{name}")
        try:
            act(first, second)
        except Stopped:
            next(node for node in self.nodes if node.fuse is not None and node.fuse < 0).crash()

    def _write(self, who: int, _: None) -> None:
        node = self.nodes[who]
        node.time.now_ms += 1
        self.count += 1
        node.write(f"row {self.count % 3}", f"value {self.count}")

    def _export(self, giver: int, to: int) -> None:
        path = self.folder / f"{len(self.files)}.bundle"
        self.files.append(path)
        export(self.nodes[giver], None if giver == to else self.nodes[to], path)

    def _take(self, back: int, who: int) -> None:
        """One of the latest, by whoever: what is not for it is refused."""
        if back < len(self.files) and self.files[-1 - back].exists():
            try:
                take(self.nodes[who], self.files[-1 - back])
            except MeshError:
                assert self.nodes[who].fuse is None or self.nodes[who].fuse >= 0

    def _fuse(self, who: int, statements: int) -> None:
        self.nodes[who].fuse = statements

    def _link(self, who: int, steps: int) -> None:
        """A link that lasts for some steps."""
        wire = Wire(self.nodes[who], self.nodes[(who + 1) % 3])
        try:
            for _ in range(steps):
                possible = wire.steps()
                if possible:
                    possible[0]()
        finally:
            wire.cut()

    def _backup(self, *_: None) -> None:
        self.nodes[2].fuse = None
        self.copy = self.nodes[2].backup()

    def _restore(self, *_: None) -> None:
        self._lose(copy=self.copy)

    def _lose(self, *_: None, copy: bytes | None = None) -> None:
        node = self.nodes[2]
        node.fuse = None
        node.lose(copy)
        if copy is None:
            first, second, third = self.nodes
            node.admit(*founding(first.key), vouch(first.key, second.key, 4), vouch(first.key, third.key, 5))
            node.create_notes()

    def come_to_rest(self) -> int:
        """Nothing fails any more, and bundles go round; how many events the last round carried."""
        carried = 0
        for node in self.nodes:
            node.fuse = None
            node.time.now_ms += GENESIS_REWIND_MS
        for _ in range(ROUNDS):
            carried = 0
            for giver in self.nodes:
                for taker in self.nodes:
                    if giver is not taker:
                        path = self.folder / "last.bundle"
                        carried += export(giver, taker, path).events
                        assert take(taker, path).settled
        return carried

    def no_watermark_claims_too_much(self) -> None:
        there = [set(node.events()) for node in self.nodes]
        every = [parse(data) for data in set().union(*there)]
        for node, events in zip(self.nodes, there, strict=True):
            with node.context.transaction() as tx:
                for mark in all_watermarks(tx):
                    below = [each for each in every if each.site == mark.site and each.hlc <= mark.hlc]
                    assert node.site == mark.site or {each.data for each in below} <= events


@cases(6)
@given(actions=st.lists(ACTIONS, max_size=40))
def test_bundles_lose_nothing_and_claim_nothing(actions: list[tuple[str, int | None, int | None]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        for action in actions:
            world.act(*action)
            if all(node.fuse is None for node in world.nodes):
                world.no_watermark_claims_too_much()
        carried = world.come_to_rest()
        world.no_watermark_claims_too_much()
        first, second, third = world.nodes
        assert first.events() == second.events() == third.events()
        assert first.rows() == second.rows() == third.rows()
        assert carried == 0
        for node in world.nodes:
            assert node.query("SELECT count(*) FROM meshnode_requests") == [(0,)]
            node.context.db.close()

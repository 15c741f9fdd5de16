"""Any order of writes, bundles, links, deaths and restored copies: what is left running converges (SSP/1 §14).

Bundles are lost, taken in late, twice, or by another member than the last; a process dies at any statement; the third
node loses its database or gets an old one. The laws: no watermark claims an event that is not there, and once bundles
go round undisturbed every node has every event, and the last ones carry nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
CARRIED = st.tuples(st.just("carry"), WHO, st.integers(1, 2), st.one_of(st.none(), st.none(), st.integers(20, 70)))
ACTIONS = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 1)),
    st.tuples(st.just("export"), WHO, WHO),  # to itself: for any
    CARRIED,
    CARRIED,
    CARRIED,
    st.tuples(st.just("take"), st.integers(0, 9), WHO),
    st.tuples(st.just("fuse"), WHO, st.integers(0, 60)),
    st.tuples(st.just("link"), WHO, st.integers(1, 40)),
    st.tuples(st.sampled_from(("backup", "restore", "lose", "lose"))),
)
LINE = ((0, 1), (1, 2), (2, 1), (1, 0))  # no other way round hides what is lost on one of these
ROUNDS = 6  # of bundles along it, after which nothing may be left
ACKNOWLEDGED = (
    "SELECT l.event FROM meshnode_log AS l JOIN meshnode_sites AS a ON a.no = l.site_no WHERE l.position <= (SELECT"
    " o.cursor FROM meshnode_outbound AS o JOIN meshnode_sites AS s ON s.no = o.site_no WHERE s.site = ? AND"
    " o.path = 'bundle') AND a.site <> ?"
)


class World:
    """Three nodes, and the bundles that lie about."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes = mesh(folder, 3)
        self.files: list[Path] = []
        self.copy: bytes | None = None
        self.lost = False
        self.count = 0

    def act(self, name: str, *arguments: int | None) -> None:
        act: Callable[..., None] = getattr(self, f"_{name}")
        self._or_die(lambda: act(*arguments))
        if name != "fuse":
            for node in self.nodes:
                node.fuse = None  # it was for this one

    def _or_die(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Stopped:
            next(node for node in self.nodes if node.fuse is not None and node.fuse < 0).crash()

    def _write(self, who: int) -> None:
        node = self.nodes[who]
        node.time.now_ms += 1
        self.count += 1
        node.write(f"row {self.count % 3}", f"value {self.count}")

    def _export(self, giver: int, to: int) -> None:
        path = self.folder / f"{len(self.files)}.bundle"
        self.files.append(path)
        export(self.nodes[giver], None if giver == to else self.nodes[to], path)

    def _carry(self, giver: int, further: int, statements: int | None) -> None:
        """Some writes in a bundle that arrives, perhaps while its taker dies, and most of the time one comes back."""
        taker = (giver + further) % 3
        for _ in range(3 if giver < 2 else 0):
            self._write(giver)
        self._export(giver, taker)
        self.nodes[taker].fuse = statements
        self._or_die(lambda: self._take(0, taker))
        self.nodes[taker].fuse = None
        if self.count % 4:
            self._export(taker, giver)
            self._take(0, giver)

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

    def _backup(self) -> None:
        self.nodes[2].fuse = None
        self.copy = self.nodes[2].backup()

    def _restore(self) -> None:
        self._lose(copy=self.copy)

    def _lose(self, copy: bytes | None = None) -> None:
        node, self.lost = self.nodes[2], True
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
            for giver, taker in LINE:
                path = self.folder / "last.bundle"
                carried += export(self.nodes[giver], self.nodes[taker], path).events
                assert take(self.nodes[taker], path).settled
        return carried

    def no_cursor_is_ahead(self) -> None:
        """Of a peer that lost nothing: it has all that it is known to hold."""
        for giver in self.nodes:
            for taker in self.nodes:
                if giver is not taker and not (self.lost and taker is self.nodes[2]):
                    acknowledged = giver.query(ACKNOWLEDGED, taker.site, taker.site)
                    assert {row[0] for row in acknowledged} <= taker.events()

    def no_watermark_claims_too_much(self) -> None:
        there = [set(node.events()) for node in self.nodes]
        every = [parse(data) for data in set().union(*there)]
        for node, events in zip(self.nodes, there, strict=True):
            with node.context.transaction() as tx:
                for mark in all_watermarks(tx):
                    below = [each for each in every if each.site == mark.site and each.hlc <= mark.hlc]
                    assert node.site == mark.site or {each.data for each in below} <= events


@cases(6)
@given(actions=st.lists(ACTIONS, min_size=5, max_size=24))
def test_bundles_lose_nothing_and_claim_nothing(actions: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        for action in actions:
            world.act(*action)
            if all(node.fuse is None for node in world.nodes):
                world.no_watermark_claims_too_much()
                world.no_cursor_is_ahead()
        carried = world.come_to_rest()
        world.no_watermark_claims_too_much()
        first, second, third = world.nodes
        assert first.events() == second.events() == third.events()
        assert first.rows() == second.rows() == third.rows()
        assert carried == 0
        for node in world.nodes:
            assert node.query("SELECT count(*) FROM meshnode_requests") == [(0,)]
            node.context.db.close()

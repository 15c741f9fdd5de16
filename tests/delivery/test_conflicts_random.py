"""The conflict ledger against true causality: what every author had seen is known to the test, and to nobody else.

Random writes, deletes, links that come and go and bytes that arrive in any order, on real databases.
"""

from __future__ import annotations

import os
from itertools import combinations
from pathlib import Path
from random import Random

import pytest
from support.pair import Node, Wire, mesh, settle

from meshnode.model.conflict import Status
from meshnode.model.event import Event
from meshnode.model.hlc import Rank
from meshnode.store import conflicts, log
from meshnode.store.conflicts import Conflict

CASES = int(os.environ.get("MESHNODE_CASES", "1"))
FIRST = int(os.environ.get("MESHNODE_SEED", "1"))
ROWS, TITLES = ("n1", "n2"), ("Milk", "Oat milk", "Soy milk")


class Run:
    """One mesh and what is true of it."""

    def __init__(self, folder: Path, seed: int, nodes: int, *, deletes: bool) -> None:
        self.random = Random(seed)
        self.deletes = deletes
        self.nodes = mesh(folder, nodes)
        self.wires: dict[tuple[int, int], Wire] = {}
        self.had: dict[bytes, frozenset[bytes]] = {}  # by event id: what its author had when it wrote
        self.owed: dict[int, set[tuple[Rank, Rank]]] = {node.number: set() for node in self.nodes}
        self._read = {node.number: 0 for node in self.nodes}
        self._shown: dict[tuple[int, str], tuple[Rank, Event]] = {}

    def go(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            for node in self.nodes:
                self.look(node)
        for pair in combinations(range(len(self.nodes)), 2):
            self.link(pair)
        settle(self.alive())
        for node in self.nodes:
            self.look(node)

    def step(self) -> None:
        choice = self.random.random()
        if choice < 0.25:
            self.write(self.random.choice(self.nodes))
        elif choice < 0.31:
            self.link(self.random.choice(list(combinations(range(len(self.nodes)), 2))))
        elif choice < 0.34 and self.alive():
            self.random.choice(self.alive()).cut()
        elif choice < 0.36:
            self.nodes[0].time.now_ms += self.random.choice((1, 500))
        else:
            steps = [step for wire in self.alive() for step in wire.steps()]
            for step in self.random.sample(steps, min(2, len(steps))):
                step()

    def write(self, node: Node) -> None:
        row = self.random.choice(ROWS)
        had = frozenset(event.event_id for event in self.log(node))
        title = (
            None if self.deletes and row in node.rows() and self.random.random() < 0.3 else self.random.choice(TITLES)
        )
        self.had[node.write(row, title).event_id] = had

    def link(self, pair: tuple[int, int]) -> None:
        if pair not in self.wires or self.wires[pair].is_cut:
            self.wires[pair] = Wire(self.nodes[pair[0]], self.nodes[pair[1]])

    def alive(self) -> list[Wire]:
        return [wire for wire in self.wires.values() if not wire.is_cut]

    def log(self, node: Node, after: int = 0) -> list[Event]:
        rows = node.query("SELECT event FROM meshnode_log WHERE position > ? ORDER BY position", after)
        return [log.parse(bytes(row[0])) for row in rows]  # type: ignore[call-overload]

    def concurrent(self, one: bytes, other: bytes) -> bool:
        return other not in self.had[one] and one not in self.had[other]

    def look(self, node: Node) -> None:
        """What arrived in the meantime, in its order: a foreign write that meets one of ours is owed to the ledger."""
        if node.context.next_position - 1 == self._read[node.number]:
            return
        fresh = self.log(node, self._read[node.number])
        self._read[node.number] += len(fresh)
        for event in fresh:
            assert event.key is not None
            cell = (node.number, str(event.key["id"]))
            shown = self._shown.get(cell)
            if shown is not None and event.site != node.site and shown[1].site == node.site:
                differs = event.columns != shown[1].columns
                if differs and self.concurrent(event.event_id, shown[1].event_id):
                    self.owed[node.number].add((shown[0], event.rank))
            if shown is None or event.rank > shown[0]:
                self._shown[cell] = (event.rank, event)

    def ledger(self, node: Node) -> list[Conflict]:
        with node.context.transaction() as tx:
            return list(conflicts.all_of(tx))

    def undecided(self) -> set[bytes]:
        """Rows of which the last words of two authors differ, and neither had heard the other's."""
        last: dict[bytes, dict[bytes, Event]] = {}
        for event in sorted(self.log(self.nodes[0]), key=lambda each: each.rank):
            last.setdefault(event.key_bytes, {})[event.site] = event
        return {
            key
            for key, words in last.items()
            for one, other in combinations(words.values(), 2)
            if one.columns != other.columns and self.concurrent(one.event_id, other.event_id)
        }

    def missing(self, node: Node) -> list[str]:
        """What is owed and not there; a later event of the same author may stand for its earlier one."""
        there = [(each.ours.rank, each.theirs.site, each.theirs.rank) for each in self.ledger(node)]
        return [
            f"{ours.hex()[:8]} {theirs.hex()[:8]}"
            for ours, theirs in self.owed[node.number]
            if not any(one == ours and site == theirs[16:32] and rank >= theirs for one, site, rank in there)
        ]


def pair_of(conflict: Conflict) -> frozenset[bytes]:
    return frozenset((conflict.ours.event_id, conflict.theirs.event_id))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + 6 * CASES))
def test_two_authors_know_of_every_concurrent_pair_and_of_no_other(tmp_path: Path, seed: int) -> None:
    run = Run(tmp_path, seed, 2, deletes=seed % 2 == 0)
    run.go(150)
    ledgers = {node.number: run.ledger(node) for node in run.nodes}
    for ledger in ledgers.values():
        for each in ledger:
            assert each.certain <= run.concurrent(*pair_of(each))
            assert each.status is not Status.WITHDRAWN or not run.concurrent(*pair_of(each))
            assert each.certain or each.status is not Status.OPEN, "every ack has come by now"
    assert run.deletes or [run.missing(node) for node in run.nodes] == [[], []]
    for node in run.nodes:
        assert run.undecided() == {each.key_bytes for each in ledgers[node.number] if each.status is Status.OPEN}
    left, right = ({each.id for each in ledger if each.status is Status.OPEN} for ledger in ledgers.values())
    assert left == right


@pytest.mark.parametrize("seed", range(FIRST, FIRST + 3 * CASES))
def test_where_others_pass_writes_on_nothing_is_called_certain_that_is_not(tmp_path: Path, seed: int) -> None:
    run = Run(tmp_path, seed, 3, deletes=seed % 2 == 0)
    run.go(200)
    for node in run.nodes:
        ledger = run.ledger(node)
        for each in ledger:
            assert each.certain <= run.concurrent(*pair_of(each))
            assert each.status is not Status.WITHDRAWN or not run.concurrent(*pair_of(each))
        assert run.deletes or run.missing(node) == []

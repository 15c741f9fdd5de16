"""Links that overlap for one pair, and three nodes that meet in any order: all converge (profile §8)."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from support.pair import Node, Wire, mesh, settle
from support.records import vouch

from meshnode.limits import CYCLE_MS, GENESIS_REWIND_MS
from meshnode.store.backlog import backlog


def run(wires: list[Wire], choices: list[int]) -> None:
    """One step for each choice, of any link."""
    for choice in choices:
        possible = [step for wire in wires for step in wire.steps()]
        if possible:
            possible[choice % len(possible)]()


def rest(nodes: list[Node], wires: list[Wire]) -> None:
    """Time passes until nothing is waited for."""
    for wait in (0, CYCLE_MS, CYCLE_MS, GENESIS_REWIND_MS):
        nodes[0].time.now_ms += wait
        for node in nodes:
            for end in list(node.ends):
                end.timer()
        settle(wires)


def close(nodes: list[Node]) -> None:
    for node in nodes:
        node.context.db.close()


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 40), max_size=40), st.lists(st.integers(0, 40), max_size=60))
def test_two_links_of_one_pair_at_a_time_lose_nothing(before: list[int], during: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        nodes = mesh(Path(folder), 2)
        left, right = nodes
        left.write("n1", "left")
        right.write("n2", "right")
        first = Wire(left, right)
        run([first], before)
        left.write("n3", "left")
        second = Wire(right, left)
        run([first, second], during)
        right.write("n4", "right")
        settle([first, second])
        first.cut()
        second.cut()
        rest(nodes, [Wire(left, right)])
        assert left.events() == right.events()
        assert left.rows() == right.rows() == {"n1": "left", "n2": "right", "n3": "left", "n4": "right"}
        close(nodes)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=12),
    st.lists(st.integers(0, 60), max_size=80),
)
def test_three_nodes_that_write_while_they_meet_converge(writes: list[tuple[int, int]], choices: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        nodes = mesh(Path(folder), 3)
        first, second, third = nodes
        wires = [Wire(first, second), Wire(second, third), Wire(third, first)]
        share = len(choices) // (len(writes) + 1) + 1
        for turn, (who, row) in enumerate(writes):
            nodes[0].time.now_ms += 1
            nodes[who].write(f"row {row}", f"{who} in turn {turn}")
            run(wires, choices[turn * share : (turn + 1) * share])
        rest(nodes, wires)
        assert first.events() == second.events() == third.events()
        assert len(first.events()) == len(writes)
        assert first.rows() == second.rows() == third.rows()
        for node in nodes:
            for peer in nodes:
                if peer is not node:
                    with node.context.transaction() as tx:
                        assert backlog(tx, peer.site, "quic", lambda *_: True).settled
        close(nodes)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 60), max_size=120))
def test_an_event_never_overtakes_the_vouch_of_its_author(choices: list[int]) -> None:
    """A device vouched for by the first node writes at once; the others never see it as an unknown signer."""
    with tempfile.TemporaryDirectory() as folder:
        nodes = mesh(Path(folder), 3)
        first, second, third = nodes
        newcomer = Node(Path(folder) / "9", 9, first.time)
        admission = vouch(first.key, newcomer.key, 900)
        newcomer.admit(*(bytes(row[0]) for row in first.query("SELECT record FROM meshnode_records")), admission)  # type: ignore[call-overload]
        newcomer.create_notes()
        wires = [Wire(first, second), Wire(second, third)]
        run(wires, choices[:40])
        first.admit(admission)
        newcomer.write("n1", "new here")
        wires.append(Wire(newcomer, first))
        run(wires, choices[40:])
        settle(wires)
        rest([*nodes, newcomer], wires)
        for node in nodes:
            assert node.rows() == {"n1": "new here"}
            assert node.query("SELECT kind FROM meshnode_notices") == []
        close([*nodes, newcomer])

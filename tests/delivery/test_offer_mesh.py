"""Whole engines with the feature `offer` in meshes of several shapes: each event comes once, and soon (profile §14)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from support.pair import Node, Wire
from support.timed_mesh import TimedMesh, full

from meshnode.codec import cbor
from meshnode.codec.framing import FrameReader
from meshnode.engine.outbox import reopen, stream_of
from meshnode.limits import GENESIS_REWIND_MS, LINKS_MS, OFFER_WAIT_MS, QUIET_WATERMARKS_MS
from meshnode.model.delivery import PATH
from meshnode.model.frames import FEATURE_OFFER, FEATURES
from meshnode.store.backlog import backlog
from meshnode.sync.effects import RolledBack, SendEvents

LINE = [(0, 1), (1, 2)]
STAR = [(0, 1), (0, 2), (0, 3), (0, 4)]
RING = [(0, 1), (1, 2), (2, 3), (0, 3)]
PENDANT = [*full(4), (0, 4)]  # an author that only one of a full mesh is linked to
AT_MOST_WAITED_MS = OFFER_WAIT_MS * 3 // 2


def started(folder: Path, count: int, pairs: Iterable[tuple[int, int]], **options: tuple[str, ...]) -> TimedMesh:
    """A mesh whose links stand and have nothing left to do."""
    mesh = TimedMesh(folder, count, pairs, **options)
    mesh.run(10 * OFFER_WAIT_MS)
    mesh.forget_sent()
    return mesh


def everywhere(mesh: TimedMesh, *nodes: int) -> bool:
    return len({frozenset(mesh.nodes[each].events()) for each in nodes or range(len(mesh.nodes))}) == 1


def copies(mesh: TimedMesh) -> Counter[tuple[bytes, bytes]]:
    """How often each node was sent each event whole."""
    found: Counter[tuple[bytes, bytes]] = Counter()
    for end in mesh.ends:
        sent = b"".join(each.data for each in end.effects if isinstance(each, SendEvents))
        for frame in FrameReader().feed(sent):
            value = cbor.decode_untrusted(frame)
            assert isinstance(value, dict)
            if value["t"] == "batch":
                found.update((end.peer.site, event) for event in value["events"])  # type: ignore[misc,union-attr]
    return found


def settled(node: Node, peer: Node) -> bool:
    with node.context.transaction() as tx:
        return backlog(tx, peer.site, PATH, lambda *_: True).settled


@pytest.mark.parametrize(
    ("pairs", "writers"),
    [(LINE, [0]), (LINE, [2, 0]), (STAR, [0]), (STAR, [3, 1]), (full(4), [0, 1, 2]), (PENDANT, [4])],
    ids=["line", "line both ways", "star's centre", "star's leaves", "full", "full with a pendant"],
)
def test_each_node_is_sent_each_event_once(tmp_path: Path, pairs: list[tuple[int, int]], writers: list[int]) -> None:
    count = 1 + max(max(pair) for pair in pairs)
    mesh = started(tmp_path, count, pairs, features=(FEATURE_OFFER,))
    for number in range(12):
        mesh.nodes[writers[number % len(writers)]].write(f"n{number}", "x")
        mesh.run(700)
    mesh.run(10 * OFFER_WAIT_MS)
    assert everywhere(mesh)
    assert set(copies(mesh).values()) == {1}
    assert sum(copies(mesh).values()) == 12 * (count - 1)
    assert all(settled(end.node, end.peer) for end in mesh.ends)


@pytest.mark.parametrize("pairs", [LINE, STAR, RING, full(4), PENDANT])
def test_no_time_has_to_pass_for_an_event_to_come_everywhere(tmp_path: Path, pairs: list[tuple[int, int]]) -> None:
    count = 1 + max(max(pair) for pair in pairs)
    mesh = started(tmp_path, count, pairs)
    mesh.nodes[-1].write("n", "x")
    mesh.rest()
    assert everywhere(mesh)


def test_a_node_that_comes_late_gets_everything_at_once_from_whoever_it_meets(tmp_path: Path) -> None:
    mesh = started(tmp_path, 4, LINE)
    for number in range(9):
        mesh.nodes[number % 3].write(f"n{number}", "x")
        mesh.run(1_000)
    mesh.wires[(2, 3)] = Wire(mesh.nodes[2], mesh.nodes[3])
    mesh.rest()
    assert everywhere(mesh)


def test_offers_wait_for_the_first_word_on_links(tmp_path: Path) -> None:
    """Else a new link of a full mesh would begin with offers of all that the peer is being sent by others."""
    mesh = started(tmp_path, 3, full(3), features=(FEATURE_OFFER,))
    mesh.wires[(1, 2)].cut()
    mesh.rest()
    mesh.nodes[0].write("n", "x")
    mesh.run(OFFER_WAIT_MS * 4)
    mesh.forget_sent()
    mesh.wires[(1, 2)] = Wire(mesh.nodes[1], mesh.nodes[2])
    mesh.rest()
    assert mesh.carried().frames["offer"] == 0
    mesh.run(OFFER_WAIT_MS * 4)
    assert mesh.carried().frames["offer"] == 1
    assert copies(mesh) == {}


def test_of_two_neighbours_that_both_hold_it_one_offers(tmp_path: Path) -> None:
    mesh = started(tmp_path, 3, full(3))
    for number in range(5):
        mesh.nodes[0].write(f"n{number}", "x")
        mesh.run(100)
    assert mesh.carried().frames["offer"] == 0, "they wait while the author is linked"
    mesh.run(AT_MOST_WAITED_MS)
    assert mesh.carried().frames["offer"] == 1, "and are gathered"
    assert all(settled(end.node, end.peer) for end in mesh.ends)


def test_it_is_offered_at_once_when_the_author_is_lost_before_it_reached_the_peer(tmp_path: Path) -> None:
    mesh = started(tmp_path, 3, full(3))
    author, forwarder, peer = mesh.nodes
    author.write("n", "x")
    while not forwarder.events():
        mesh.wires[(0, 1)].settle()
    assert not peer.events(), "the author's link to the peer is slow"
    mesh.wires[(1, 2)].settle()
    assert not peer.events(), "the forwarder waits for the author"
    mesh.wires[(0, 2)].cut()
    mesh.run(LINKS_MS)
    assert everywhere(mesh)


def test_it_comes_after_the_wait_where_the_authors_link_stands_and_carries_nothing(tmp_path: Path) -> None:
    mesh = started(tmp_path, 3, full(3))
    author, _, peer = mesh.nodes
    stalled = mesh.wires.pop((0, 2))  # nothing moves on it any more, and nobody noticed
    author.write("n", "x")
    mesh.run(OFFER_WAIT_MS // 2)
    assert everywhere(mesh, 0, 1)
    assert not peer.events()
    mesh.run(AT_MOST_WAITED_MS)
    assert everywhere(mesh)
    assert not stalled.is_cut


def test_somebody_who_waits_for_all_to_have_it_learns_so_at_once(tmp_path: Path) -> None:
    mesh = started(tmp_path, 3, full(3))
    mesh.nodes[0].write("n", "x")
    mesh.rest()
    for number in (1, 2):
        node = mesh.nodes[number]
        for end in node.ends:
            end.carry_out(end.session.hurry(mesh.now_ms))
        mesh.rest()
        assert all(settled(node, end.peer) for end in node.ends)


def test_a_peer_without_the_feature_is_sent_everything_as_before(tmp_path: Path) -> None:
    mesh = TimedMesh(tmp_path, 3, [])
    mesh.nodes[2].features = ("deflate",)
    mesh.wires = {pair: Wire(mesh.nodes[pair[0]], mesh.nodes[pair[1]]) for pair in LINE}
    mesh.nodes[0].write("n", "x")
    mesh.rest()
    assert everywhere(mesh)
    assert mesh.wires[(1, 2)].left.session.peer_links is None
    assert not any(b"offer" in each.data for each in mesh.wires[(1, 2)].left.effects if isinstance(each, SendEvents))


# --- Peers that lost or put back their databases.


def test_a_restored_node_gets_from_any_neighbour_what_it_lost(tmp_path: Path) -> None:
    mesh = started(tmp_path, 3, full(3))
    first, second, third = mesh.nodes
    copy = third.backup()
    first.write("n", "x")
    mesh.run(8 * OFFER_WAIT_MS)
    assert settled(second, third)
    third.lose(copy)
    assert not third.events()
    mesh.wires = {(1, 2): Wire(second, third)}  # the author is gone for good
    mesh.run(GENESIS_REWIND_MS)
    assert third.events() == second.events() != set()


def test_what_a_peer_told_and_lost_is_asked_for_as_a_whole(tmp_path: Path) -> None:
    """Nothing was sent to it since the copy was made, so its part of that stream is what it says."""
    mesh = started(tmp_path, 3, [(0, 2), (1, 2)])
    first, second, third = mesh.nodes
    copy = third.backup()
    first.write("n", "x")
    mesh.run(4 * OFFER_WAIT_MS)
    assert everywhere(mesh), "the third sent it on"
    third.lose(copy)
    wire = Wire(second, third)
    mesh.wires = {(1, 2): wire}
    mesh.rest()
    assert RolledBack(None, everything=True) in wire.right.effects
    assert not any(isinstance(each, RolledBack) for each in wire.left.effects)
    assert third.events() == second.events() != set()


def test_it_is_asked_for_although_the_stream_began_anew_before_the_first_link(tmp_path: Path) -> None:
    """As after an upgrade, where what is staged in the copy is of an earlier format."""
    mesh = started(tmp_path, 3, [(0, 2), (1, 2)])
    first, second, third = mesh.nodes
    copy = third.backup()
    first.write("n", "x")
    mesh.run(4 * OFFER_WAIT_MS)
    assert everywhere(mesh), "the third sent it on"
    third.lose(copy)
    with third.context.transaction() as tx:
        reopen(third.context, tx, stream_of(third.context, tx, second.site, PATH))
    mesh.wires = {(1, 2): Wire(second, third)}
    mesh.rest()
    assert third.events() == second.events() != set()


# --- Watermarks.


def test_watermarks_come_along_a_line_within_two_seconds(tmp_path: Path) -> None:
    mesh = started(tmp_path, 3, LINE)
    event = mesh.nodes[0].write("n", "x")
    mesh.run(2_000)
    told = mesh.wires[(1, 2)].right.session.peer_watermarks
    assert told[(event.site, "main", "notes")].hlc == event.hlc
    ((physical,),) = mesh.nodes[2].query(
        "SELECT physical FROM meshnode_watermarks JOIN meshnode_sites ON no = site_no WHERE site = ?", event.site
    )
    assert physical == event.hlc.physical


def test_in_a_full_mesh_they_come_rarely_and_to_everybody(tmp_path: Path) -> None:
    mesh = started(tmp_path, 3, full(3), features=FEATURES)
    mesh.forget_sent()
    event = None
    for number in range(20):
        event = mesh.nodes[0].write(f"n{number}", "x")
        mesh.run(1_000)
    assert mesh.carried().frames["watermarks"] <= len(mesh.ends)
    mesh.run(2 * QUIET_WATERMARKS_MS)
    assert event is not None
    for end in mesh.ends:
        assert end.session.peer_watermarks[(event.site, "main", "notes")].hlc == event.hlc

"""Forgetting on a live link: frames in flight that carry the row are discarded with their epoch (profile §8; NEOTH)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.pair import NOTES, End, Node, Wire, mesh

from meshnode.engine.forget import forget
from meshnode.limits import GENESIS_REWIND_MS
from meshnode.sync.effects import SendEvents

KEY = {"id": "PRIVATE"}
WORD = b"PRIVATE"


def holders(node: Node) -> list[str]:
    """The files of a node that hold the word."""
    return sorted(each.name for each in node.folder.iterdir() if WORD in each.read_bytes())


def forget_row(node: Node) -> int:
    return forget(node.context, *NOTES, KEY)


def sent(end: End) -> list[bytes]:
    """What this end gave to its event stream."""
    return [effect.data for effect in end.effects if isinstance(effect, SendEvents)]


def epoch(node: Node) -> object:
    return node.query("SELECT epoch FROM meshnode_outbound")[0][0]


def run_until(wire: Wire, holds: Callable[[], bool]) -> None:
    """One step at each end in turn, up to where it holds."""
    for _ in range(1000):
        for end in (wire.left, wire.right):
            if holds():
                return
            for step in end.steps()[:1]:
                step()
    raise AssertionError("it never comes to that")


def arrive(end: End) -> None:
    """All that is on its way to this end is read, committed and acknowledged."""
    while steps := end.steps():
        steps[0]()


def linked_with_frames_in_flight(folder: Path) -> tuple[Node, Node, Wire]:
    """The left node's frames with the row are sent and on their way; the right one has read none of them."""
    left, right = mesh(folder, 2)
    left.write("before", "settled")
    wire = Wire(left, right)
    wire.settle()
    left.write("PRIVATE", "the PRIVATE title")
    left.write("other", "x")
    run_until(wire, lambda: any(WORD in each for each in wire.right.events))
    assert any(WORD in frame for (frame,) in left.query("SELECT frame FROM meshnode_staged"))  # type: ignore[operator]
    return left, right, wire


@pytest.mark.parametrize("arrives", [True, False], ids=["the frames arrive", "the frames are lost"])
def test_the_sender_forgets_what_is_on_its_way(arrives: bool, tmp_path: Path) -> None:
    left, right, wire = linked_with_frames_in_flight(tmp_path)
    before = epoch(left)
    assert forget_row(left) == 1
    assert holders(left) == []
    assert epoch(left) != before
    seen = len(sent(wire.left))
    if arrives:
        arrive(wire.right)
        wire.settle()  # acks of the epoch that is gone are no error, and nothing of it is sent again
        assert not any(WORD in each for each in sent(wire.left)[seen:])
    wire.cut()

    again = Wire(left, right)
    again.settle()
    assert not any(WORD in each for each in sent(again.left))
    assert left.rows() == {"before": "settled", "other": "x"}
    expected = {"PRIVATE": "the PRIVATE title"} if arrives else {}
    assert right.rows() == {"before": "settled", "other": "x", **expected}
    assert left.query("SELECT count(*) FROM meshnode_staged") == [(0,)]
    assert holders(left) == []
    assert [each.kind for each in left.notices + right.notices] == []


def test_the_link_goes_on_with_what_comes_later(tmp_path: Path) -> None:
    left, right, wire = linked_with_frames_in_flight(tmp_path)
    forget_row(left)
    arrive(wire.right)
    wire.settle()
    left.time.now_ms += GENESIS_REWIND_MS
    for _ in range(3):  # a link that ended itself is dialed again
        if not wire.is_cut:
            break
        wire = Wire(left, right)
        wire.settle()
    assert not wire.is_cut
    left.write("later", "y")
    right.write("back", "z")
    wire.settle()
    assert left.rows() == {"before": "settled", "other": "x", "later": "y", "back": "z"}
    assert right.rows() == {**left.rows(), "PRIVATE": "the PRIVATE title"}


def test_the_receiver_forgets_what_is_on_its_way_to_it(tmp_path: Path) -> None:
    """It acknowledges the event by its receipt, keeps nothing of it, and the sender settles the frame."""
    left, right, wire = linked_with_frames_in_flight(tmp_path)
    assert forget_row(right) == 0
    wire.settle()
    assert not wire.is_cut
    assert right.rows() == {"before": "settled", "other": "x"}
    assert holders(right) == []
    assert right.query("SELECT count(*) FROM meshnode_receipts") == [(1,)]
    assert left.query("SELECT count(*) FROM meshnode_staged") == [(0,)]
    left.write("PRIVATE", "another PRIVATE title")
    wire.settle()
    assert holders(right) == []
    assert left.rows()["PRIVATE"] == "another PRIVATE title"


def test_a_relay_that_forgets_passes_nothing_of_it_on(tmp_path: Path) -> None:
    """Frames by another author are discarded alike, and those without the row stay as they are."""
    first, relay, third = mesh(tmp_path, 3)
    first.write("PRIVATE", "the PRIVATE title")
    first.write("other", "x")
    Wire(first, relay).settle()
    wire = Wire(relay, third)
    run_until(wire, lambda: any(WORD in each for each in wire.right.events))
    forget_row(relay)
    assert holders(relay) == []
    wire.cut()
    Wire(relay, third).settle()
    assert third.rows() == {"other": "x"}
    assert holders(third) == []


def test_frames_without_the_row_stay_in_flight(tmp_path: Path) -> None:
    left, right = mesh(tmp_path, 2)
    left.write("PRIVATE", "the PRIVATE title")
    wire = Wire(left, right)
    wire.settle()
    left.write("other", "x")
    run_until(wire, lambda: bool(left.query("SELECT 1 FROM meshnode_staged")))
    before = epoch(left)
    forget_row(left)
    assert epoch(left) == before
    assert len(left.query("SELECT 1 FROM meshnode_staged")) == 1
    wire.settle()
    assert not wire.is_cut
    assert right.rows() == {"PRIVATE": "the PRIVATE title", "other": "x"}
    assert left.rows() == {"other": "x"}

"""Batches are deflated where that was agreed and helps; staged, replayed and searched as they are (profile §8)."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.pair import Node, Wire, mesh
from support.records import site_key

from meshnode.engine import outbox
from meshnode.engine.forget import forget
from meshnode.engine.offer import Filter
from meshnode.model.delivery import PATH, OutboundStream, Settlement, StagedFrame
from meshnode.model.frames import FEATURE_DEFLATE, Batch, digest
from meshnode.model.frames_untrusted import decode_events_untrusted
from meshnode.sync.effects import SendEvents

PEER = site_key(2).site
AGREED = frozenset({FEATURE_DEFLATE})
DEFLATES = Filter(features=AGREED)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A member with the table; the peer is one too, and not there."""
    return mesh(tmp_path, 2)[0]


@pytest.fixture
def stream(node: Node) -> OutboundStream:
    """To the peer, which has the records already."""
    opened = outbox.open_epoch(node.context, PEER, PATH, expected=None, at=outbox.GENESIS)
    assert opened is not None
    (records,) = staged(node, opened, DEFLATES, 0)
    assert staged(node, opened, DEFLATES, 1, Settlement(1, records.staged.digest, ())) == ()
    return opened


def staged(
    node: Node, stream: OutboundStream, offered: Filter, known_no: int, *settled: Settlement
) -> tuple[StagedFrame, ...]:
    result = outbox.advance(
        node.context,
        PEER,
        PATH,
        epoch=stream.epoch,
        settled=settled,
        known_no=known_no,
        room=8,
        retry=False,
        watermarks=False,
        offered=offered,
    )
    assert result is not None
    return result.frames


def test_batches_are_deflated_where_that_was_agreed_and_makes_them_smaller(node: Node, stream: OutboundStream) -> None:
    many = [node.write(f"n{number}", "the same text " * 3) for number in range(50)]
    (frame,) = staged(node, stream, DEFLATES, 1)
    batch = decode_events_untrusted(frame.cbor, AGREED)
    assert isinstance(batch, Batch)
    assert batch.events == [event.data for event in many]
    assert len(frame.cbor) < sum(len(event.data) for event in many) / 2
    assert frame.staged.digest == digest(frame.cbor), "of the frame as it is sent"
    node.crash()
    again = outbox.resend(node.context, PEER, PATH, epoch=stream.epoch, from_no=2, offered=DEFLATES)
    assert again == (frame,)


def test_a_peer_that_came_back_without_the_feature_is_not_sent_what_was_deflated(
    node: Node, stream: OutboundStream
) -> None:
    event = node.write("n", "the same text " * 200)
    staged(node, stream, DEFLATES, 1)
    assert outbox.resend(node.context, PEER, PATH, epoch=stream.epoch, from_no=1, offered=Filter()) is None
    anew = outbox.open_epoch(node.context, PEER, PATH, expected=stream.epoch, at=outbox.SETTLED)
    assert anew is not None
    (frame,) = staged(node, anew, Filter(), 0)
    assert event.data in frame.cbor


@pytest.mark.parametrize(("offered", "title"), [(Filter(), "the same text " * 200), (DEFLATES, "short")])
def test_elsewhere_they_are_not(node: Node, stream: OutboundStream, offered: Filter, title: str) -> None:
    event = node.write("n", title)
    (frame,) = staged(node, stream, offered, 1)
    assert event.data in frame.cbor


def test_what_does_not_shrink_is_sent_as_it_is(node: Node, stream: OutboundStream) -> None:
    event = node.write("n", node.time.random_bytes(4_000))  # type: ignore[arg-type]
    (frame,) = staged(node, stream, DEFLATES, 1)
    assert event.data in frame.cbor


def test_forgetting_finds_what_is_deflated_in_flight(node: Node, stream: OutboundStream) -> None:
    """An event that left the log keeps its bytes in a frame in flight, where it cannot be searched for as it stands."""
    for number in range(20):
        node.write("PRIVATE", "SECRET text " * 10 + str(number))
    (frame,) = staged(node, stream, DEFLATES, 1)
    assert b"PRIVATE" not in frame.cbor
    node.query("UPDATE meshnode_staged SET items = x'00'")  # its positions say nothing
    forget(node.context, "main", "notes", {"id": "PRIVATE"})
    assert node.query("SELECT count(*) FROM meshnode_staged") == [(0,)]


@pytest.mark.parametrize("features", [(FEATURE_DEFLATE,), ()])
def test_it_takes_both_sides(tmp_path: Path, features: tuple[str, ...]) -> None:
    left, right = mesh(tmp_path, 2)
    right.features = features
    for number in range(40):
        left.write(f"n{number}", "the same text")
    wire = Wire(left, right)
    wire.settle()
    assert right.events() == left.events()
    deflated = any(b"deflated" in each.data for each in wire.left.effects if isinstance(each, SendEvents))
    assert deflated is bool(features)

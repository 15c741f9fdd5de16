"""Batches that peers get alike are read and deflated once, and never longer than their rows stay (profile §8)."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from support.pair import Node, mesh
from support.records import site_key

from meshnode.engine import outbox
from meshnode.engine.forget import forget
from meshnode.engine.offer import Filter
from meshnode.errors import CorruptStateError
from meshnode.model.delivery import PATH, Advanced
from meshnode.model.frames import FEATURE_DEFLATE, FEATURE_OFFER, Batch
from meshnode.model.frames_untrusted import decode_events_untrusted
from meshnode.store import offers

FEATURES = frozenset({FEATURE_DEFLATE, FEATURE_OFFER})
ONE, OTHER = site_key(2).site, site_key(3).site


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return mesh(tmp_path, 3)[0]


def staged(node: Node, peer: bytes) -> Advanced:
    """All that a new stream to a peer begins with."""
    opened = outbox.open_epoch(node.context, peer, PATH, expected=None, at=outbox.GENESIS)
    assert opened is not None
    result = outbox.advance(
        node.context,
        peer,
        PATH,
        epoch=opened.epoch,
        settled=(),
        known_no=0,
        room=8,
        retry=False,
        watermarks=False,
        offered=Filter(features=FEATURES),
        linked=frozenset(),
    )
    assert result is not None
    return result


def events(result: Advanced) -> list[Sequence[bytes]]:
    frames = [decode_events_untrusted(each.cbor, FEATURES) for each in result.frames]
    return [frame.events for frame in frames if isinstance(frame, Batch)]


def test_what_two_peers_get_alike_is_read_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    written = [node.write(f"row {number}", "the same text again and again").data for number in range(40)]
    first = events(staged(node, ONE))
    with monkeypatch.context() as patch:
        patch.delattr(offers, "events_after")
        second = events(staged(node, OTHER))
    assert [*first[0]] == [*second[0]] == written


def test_what_was_written_meanwhile_is_sent_too(node: Node) -> None:
    before = node.write("one", "text").data
    staged(node, ONE)
    after = node.write("two", "text").data
    assert [*events(staged(node, OTHER))[0]] == [before, after]


def test_a_forgotten_row_is_not_sent_from_memory(node: Node) -> None:
    node.write("secret", "text")
    kept = node.write("other", "text").data
    staged(node, ONE)
    forget(node.context, "main", "notes", {"id": "secret"})
    assert [*events(staged(node, OTHER))[0]] == [kept]


def test_what_another_program_damaged_is_not_sent_from_memory(node: Node) -> None:
    node.write("one", "text")
    staged(node, ONE)
    with closing(sqlite3.connect(node.context.db.path)) as other, other:
        other.execute("UPDATE meshnode_log SET event = x'00'")
    with pytest.raises(CorruptStateError):
        staged(node, OTHER)

"""What a person sees of the delivery to one peer, and that what cannot be read is named and stops that stream alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.pair import NOTES, Node, Wire, mesh, settle
from support.records import site_key, vouch

from meshnode.engine.links import open_link
from meshnode.engine.offer import Filter
from meshnode.engine.outbox import stream_of
from meshnode.engine.syncstate import SyncState, sync_state
from meshnode.errors import CorruptStateError
from meshnode.limits import CYCLE_MS, SKEW_MS
from meshnode.model.delivery import PATH
from meshnode.model.hlc import Hlc
from meshnode.model.policy import TableClass
from meshnode.model.scope import Scope
from meshnode.store import delivery, reoffers
from meshnode.store.backfills import Wanted
from meshnode.sync.effects import NewEpoch

OTHER = ("main", "other")


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Node, Node]:
    """Two members with the table."""
    left, right = mesh(tmp_path, 2)
    return left, right


def state(node: Node, peer: Node, scope: Scope | None = None) -> SyncState:
    with node.context.transaction() as tx:
        return sync_state(tx, peer.site, PATH, Filter(scope or Scope()), node.time.now_ms)


def until_staged(wire: Wire, frames: int) -> None:
    """Run the link until so many frames of the left node are in flight."""
    left, right = wire.left.node, wire.right.node
    while len(state(left, right).staged) < frames:
        (wire.left.steps() or wire.right.steps())[0]()


def later(node: Node, ms: int) -> None:
    node.time.now_ms += ms
    for end in list(node.ends):
        end.timer()


def test_before_anything_was_sent_everything_is_behind(pair: tuple[Node, Node]) -> None:
    left, right = pair
    left.write("n1", "x")
    left.write("o1", "x", table=OTHER)
    left.time.now_ms += 1_500
    seen = state(left, right)
    assert (seen.outbound, seen.inbound, seen.staged) == (None, None, ())
    assert (seen.events_behind, seen.records_behind, seen.faults) == (2, 3, [])
    assert seen.oldest_ms is not None
    assert left.time.now_ms - seen.oldest_ms == 1_500
    assert state(left, right, Scope(("main.other",))).events_behind == 1
    left.classify(TableClass.PRIVATE)
    assert state(left, right).events_behind == 1


def test_frames_in_flight_are_named_with_what_they_carry_and_how_often_they_were_sent(pair: tuple[Node, Node]) -> None:
    left, right = pair
    wire = Wire(left, right)
    until_staged(wire, 1)
    (records,) = state(left, right).staged
    assert (records.no, records.kind, records.items, records.attempts) == (1, delivery.RECORDS, 3, 0)
    wire.settle()
    wire.cut()
    left.write("n1", "x")
    for attempts in range(3):
        wire = Wire(left, right)
        until_staged(wire, 1)
        for _ in range(20):
            for step in wire.left.steps()[:1]:
                step()
        wire.cut()
        (events,) = state(left, right).staged
        assert (events.no, events.kind, events.items, events.attempts) == (2, delivery.EVENTS, 1, attempts)
        assert events.bytes > 100
    Wire(left, right).settle()
    seen = state(left, right)
    assert seen.outbound is not None
    assert (seen.outbound.cursor, seen.outbound.settled_no, seen.staged, seen.events_behind) == (1, 2, [], 0)
    assert seen.oldest_ms is None
    held = state(right, left).inbound
    assert held is not None
    assert held.next == 3


def test_requests_reoffers_and_backfills_are_shown(pair: tuple[Node, Node]) -> None:
    left, right = pair
    left.classify(TableClass.PRIVATE)
    right.classify(TableClass.PRIVATE)
    left.write("n1", "x")
    left.context.clock = Hlc(left.time.now_ms + SKEW_MS + 60_000, 0)
    left.write("future", "x", table=OTHER)
    Wire(left, right).settle()
    seen = state(left, right)
    assert (seen.reoffers, seen.rejected, seen.events_behind) == (1, 1, 0)
    for end in list(left.ends):
        end.wire.cut()
    left.classify(TableClass.SHARED)
    right.classify(TableClass.SHARED)
    assert list(state(left, right).backfills) == [Wanted(*NOTES, covering=True)]
    (asked,) = state(right, left).asked
    assert (asked.what, asked.schema, asked.table, asked.covering) == ("table", *NOTES, True)
    with left.context.transaction() as tx:
        reoffers.add_answer(tx, stream_of(left.context, tx, right.site, PATH), b"01234567")
    assert list(state(left, right).unanswered) == [b"01234567"]


# --- What cannot be read.

SENDING = {
    "cursor": ("UPDATE meshnode_outbound SET cursor = 'x'", "UPDATE meshnode_outbound SET cursor = 0"),
    "settled digest": ("UPDATE meshnode_outbound SET settled_digest = x'01'", None),
    "staged frame": (
        "UPDATE meshnode_staged SET frame = CAST(frame || x'00' AS BLOB) WHERE no = 2",
        "UPDATE meshnode_staged SET frame = CAST(substr(frame, 1, length(frame) - 1) AS BLOB) WHERE no = 2",
    ),
    "content of a staged frame": ("UPDATE meshnode_staged SET items = CAST(x'09' || items AS BLOB) WHERE no = 2", None),
    "staged frame's format": (
        "UPDATE meshnode_staged SET format = 99 WHERE no = 2",
        "UPDATE meshnode_staged SET format = 1 WHERE no = 2",
    ),
    "earlier epoch": (
        "INSERT INTO meshnode_epochs (site_no, path, epoch) SELECT site_no, path, x'00' FROM meshnode_outbound",
        "DELETE FROM meshnode_epochs WHERE epoch = x'00'",
    ),
    "last frame of an earlier epoch": (
        "INSERT INTO meshnode_epochs (site_no, path, epoch, last_no)"
        " SELECT site_no, path, x'0001020304050607', 'x' FROM meshnode_outbound",
        "DELETE FROM meshnode_epochs WHERE epoch = x'0001020304050607'",
    ),
    "log row": (
        "UPDATE meshnode_log SET event = CAST(event || x'00' AS BLOB) WHERE position = 2",
        "UPDATE meshnode_log SET event = CAST(substr(event, 1, length(event) - 1) AS BLOB) WHERE position = 2",
    ),
    "lost log row": ("DELETE FROM meshnode_log WHERE position = 2", None),
    "record": (
        "UPDATE meshnode_records SET record = CAST(record || x'00' AS BLOB) WHERE position = 5",
        "UPDATE meshnode_records SET record = CAST(substr(record, 1, length(record) - 1) AS BLOB) WHERE position = 5",
    ),
}


@pytest.mark.parametrize("what", SENDING)
def test_what_cannot_be_read_of_our_stream_stops_it_alone_until_it_is_repaired(tmp_path: Path, what: str) -> None:
    left, right, third = mesh(tmp_path, 3)
    damage, repair = SENDING[what]
    left.write("n1", "x")
    wire = Wire(left, right)
    until_staged(wire, 2)
    wire.cut()
    left.write("n2", "x")
    left.admit(vouch(left.key, site_key(9), 900))
    backup = left.backup()
    scoped = f"{damage} {'AND' if 'WHERE' in damage else 'WHERE'} 1"
    left.query(scoped)
    before = left.query("SELECT cursor, record_cursor FROM meshnode_outbound")
    seen = state(left, right)
    assert len(seen.faults) == 1, seen.faults
    assert ("check --repair" if "log row" in what else "Restore") in seen.faults[0]
    right.write("r", "x")
    wire = Wire(left, right)
    wire.settle()
    assert left.rows()["r"] == "x", "the peer's own stream goes on"
    assert "n2" not in right.rows()
    assert not wire.is_cut
    if what not in ("log row", "lost log row", "record"):
        assert left.query("SELECT cursor, record_cursor FROM meshnode_outbound") == before
    else:
        assert left.query("SELECT max(cursor) FROM meshnode_outbound")[0][0] in (0, 1), "not past what cannot be read"
    assert {each.kind for each in left.notices} == {"unreadable-state"}
    assert left.notices[0].text == wire.left.session.stopped
    if what not in ("log row", "lost log row", "record"):
        settle([Wire(left, third)])
        assert third.rows().keys() == {"n1", "n2", "r"}, "other peers go on"
    # Nothing changes by itself: looked at once a cycle, with the cursor where it was.
    later(left, CYCLE_MS)
    wire.settle()
    assert "n2" not in right.rows()
    if repair is None:
        left.lose(backup)
        wire = Wire(left, right)
    else:
        left.query(repair)
        later(left, CYCLE_MS)
        wire.settle()
        if wire.is_cut:  # what could not be read when the link came up is read by the next one
            wire = Wire(left, right)
    wire.settle()
    later(left, CYCLE_MS)
    wire.settle()
    assert right.rows()["n2"] == "x"
    assert state(left, right).faults == []
    assert not wire.is_cut
    assert wire.left.session.stopped == ""


def test_an_event_to_be_offered_that_cannot_be_read_stops_the_stream_until_it_is_repaired(tmp_path: Path) -> None:
    left, right, third = mesh(tmp_path, 3)
    Wire(left, right).settle()
    for end in list(left.ends):
        end.wire.cut()
    third.write("n1", "x")
    settle([Wire(left, third)])
    damage, repair = (each.replace("position = 2", "position = 1") for each in SENDING["log row"] if each)
    left.query(damage)
    before = left.query("SELECT offer_cursor FROM meshnode_outbound ORDER BY site_no")
    (fault,) = state(left, right).faults
    assert "check --repair" in fault
    left.write("n2", "x")
    wire = Wire(left, right)
    wire.settle()
    assert wire.left.session.stopped == fault
    assert right.rows().keys() == {"n2"}, "what this node wrote comes first"
    assert left.query("SELECT offer_cursor FROM meshnode_outbound ORDER BY site_no") == before
    left.query(repair)
    later(left, CYCLE_MS)
    wire.settle()
    assert right.rows().keys() == {"n1", "n2"}
    assert state(left, right).faults == []


RECEIVING = {
    "high-water mark": ("UPDATE meshnode_inbound SET next = 'x'", "UPDATE meshnode_inbound SET next = 3"),
    "epoch": ("UPDATE meshnode_inbound SET epoch = CAST(epoch || x'00' AS BLOB)", None),
    "digest of a receipt": (
        "UPDATE meshnode_acks SET digest = CAST(digest || x'00' AS BLOB)",
        "UPDATE meshnode_acks SET digest = CAST(substr(digest, 1, 32) AS BLOB)",
    ),
    "stored ack": (
        "UPDATE meshnode_acks SET ack = CAST(ack || x'00' AS BLOB)",
        "UPDATE meshnode_acks SET ack = CAST(substr(ack, 1, length(ack) - 1) AS BLOB)",
    ),
    "receipt that is gone": ("DELETE FROM meshnode_acks", None),
    "request": (
        "INSERT INTO meshnode_requests VALUES (x'00', 2, x'ff', 0)",
        "DELETE FROM meshnode_requests",
    ),
}


@pytest.mark.parametrize("what", RECEIVING)
def test_what_cannot_be_read_of_the_peers_stream_refuses_its_links_until_it_is_repaired(
    tmp_path: Path, what: str
) -> None:
    left, right, third = mesh(tmp_path, 3)
    damage, repair = RECEIVING[what]
    left.write("n1", "x")
    Wire(left, right).settle()
    for end in list(left.ends):
        end.wire.cut()
    (number,) = right.query("SELECT no FROM meshnode_sites WHERE site = ?", left.site)[0]
    backup = right.backup()
    right.query(damage.replace("x'00', 2", f"x'00', {number}"))
    before = right.query("SELECT * FROM meshnode_inbound"), right.query("SELECT * FROM meshnode_acks")
    assert len(state(right, left).faults) == 1
    left.write("n2", "x")
    with pytest.raises(CorruptStateError, match="Restore the database"):
        open_link(right.context, left.site, PATH)
    assert (right.query("SELECT * FROM meshnode_inbound"), right.query("SELECT * FROM meshnode_acks")) == before
    assert right.query("SELECT kind FROM meshnode_notices") == [("unreadable-state",)]
    right.write("r", "x")
    settle([Wire(right, third)])
    assert third.rows()["r"] == "x", "other peers go on"
    if repair is None:
        right.lose(backup)
    else:
        right.query(repair)
    Wire(left, right).settle()
    assert right.rows()["n2"] == "x"
    assert state(right, left).faults == []


def test_what_was_acknowledged_before_a_log_row_that_cannot_be_read_is_settled(pair: tuple[Node, Node]) -> None:
    left, right = pair
    left.write("n1", "x")
    wire = Wire(left, right)
    until_staged(wire, 2)
    left.write("n2", "x")
    left.query("UPDATE meshnode_log SET event = x'00' WHERE position = 2")
    wire.settle()
    assert right.rows() == {"n1": "x"}
    seen = state(left, right)
    assert seen.outbound is not None
    assert (seen.outbound.cursor, len(seen.staged)) == (1, 0)
    assert len(seen.faults) == 1


def test_staged_frames_of_an_earlier_format_are_staged_again_from_the_settled_cursor(
    pair: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = pair
    left.write("n1", "x")
    Wire(left, right).settle()
    for end in list(left.ends):
        end.wire.cut()
    left.write("n2", "x")
    wire = Wire(left, right)
    until_staged(wire, 1)
    wire.cut()
    before = left.query("SELECT epoch, cursor FROM meshnode_outbound")[0]
    monkeypatch.setattr(delivery, "FRAME_FORMAT", 2)
    left.crash()
    wire = Wire(left, right)
    assert state(left, right).staged == []
    epoch, cursor = left.query("SELECT epoch, cursor FROM meshnode_outbound")[0]
    assert (epoch != before[0], cursor) == (True, before[1])
    wire.settle()
    assert right.rows() == {"n1": "x", "n2": "x"}
    assert [each for each in wire.left.effects if isinstance(each, NewEpoch) and each.at == "genesis"] == []
    left.write("n3", "x")
    until_staged(wire, 1)
    assert left.query("SELECT DISTINCT format FROM meshnode_staged") == [(2,)]

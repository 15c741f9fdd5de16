"""Two and three real engines joined by sessions: delivery, loss, restore, requests, records (profile §8; NEOTH)."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.mesh_context import START_MS
from support.pair import NOTES, Node, Wire, mesh, settle
from support.records import founding, sealed, site_key, vouch

from meshnode.engine import outbox, retention
from meshnode.engine.links import open_link
from meshnode.errors import CloseCode, CorruptStateError, ProtocolError
from meshnode.limits import BATCH_EVENTS, CYCLE_MS, FRONTIER_SITES, GENESIS_REWIND_MS, SKEW_MS
from meshnode.model.delivery import PATH, Told
from meshnode.model.hlc import Hlc
from meshnode.model.policy import TableClass
from meshnode.model.record import Retirement
from meshnode.model.scope import Scope
from meshnode.store import removed, reoffers
from meshnode.store.backlog import Backlog, backlog, groups_ahead, sites_ahead
from meshnode.store.watermarks import all_watermarks
from meshnode.sync.effects import Advance, NewEpoch, RolledBack
from meshnode.sync.pace import Pace


def anything(_schema: str, _table: str) -> bool:
    return True


def behind(node: Node, peer: Node) -> Backlog:
    with node.context.transaction() as tx:
        return backlog(tx, peer.site, PATH, anything)


def noticed(node: Node, kind: str) -> bool:
    return any(each.kind == kind for each in node.notices)


def later(node: Node, ms: int) -> None:
    """Time passes, and every session that waited for it is told."""
    node.time.now_ms += ms
    for end in list(node.ends):
        end.timer()


def test_what_a_peer_rejected_is_not_compacted_before_it_got_it(tmp_path: Path) -> None:
    """Nobody else may offer it again, and the peer's watermark of its author would stand for ever."""
    left, right = mesh(tmp_path, 2)
    ahead = left.time.now_ms + SKEW_MS + 10
    for number, title in enumerate(("superseded", "newest")):
        left.context.clock = Hlc(ahead, number)
        left.write("n1", title)
    wire = Wire(left, right)
    wire.settle()
    assert right.rows() == {}
    sweep = retention.compaction(left.context, *NOTES)
    while sweep.step():
        pass
    assert sweep.events == 0
    for _ in range(3):
        later(left, CYCLE_MS)
        wire.settle()
    assert right.rows() == {"n1": "newest"}
    with right.context.transaction() as tx:
        assert [each.hlc for each in all_watermarks(tx)] == [left.context.clock]
    sweep = retention.compaction(left.context, *NOTES)
    while sweep.step():
        pass
    assert sweep.events == 1


def test_what_was_written_before_and_while_linked_arrives_both_ways(tmp_path: Path) -> None:
    left, right = mesh(tmp_path, 2)
    left.write("n1", "Milk")
    wire = Wire(left, right)
    wire.settle()
    assert right.rows() == {"n1": "Milk"}
    right.write("n1", "Oat milk")
    left.write("n2", "Bread")
    left.write("n2", None)
    wire.settle()
    assert left.rows() == right.rows() == {"n1": "Oat milk"}
    assert left.events() == right.events()
    assert behind(left, right).settled
    assert behind(right, left).settled


def test_nothing_is_repeated_after_a_new_link(tmp_path: Path) -> None:
    left, right = mesh(tmp_path, 2)
    left.write("n1", "Milk")
    first = Wire(left, right)
    first.settle()
    first.cut()
    again = Wire(right, left)
    again.settle()
    assert not any(isinstance(each, NewEpoch) for each in again.left.effects + again.right.effects)
    assert behind(right, left).next_inbound == behind(left, right).settled_no + 1


def test_records_go_out_before_any_event_and_so_does_a_relayed_vouch(tmp_path: Path) -> None:
    nodes = mesh(tmp_path, 2)
    newcomer = Node(tmp_path / "3", 3, nodes[0].time)
    first, second = nodes
    admission = vouch(first.key, newcomer.key, 900)
    newcomer.admit(*founding(first.key), admission)
    newcomer.create_notes()
    first.admit(admission)
    Wire(newcomer, first).settle()
    newcomer.write("n1", "from the newcomer")
    # One link at a time: what the newcomer wrote reaches the second node through the first, behind its vouch.
    settle([newcomer.ends[0].wire])
    Wire(first, second).settle()
    assert second.rows() == {"n1": "from the newcomer"}
    assert second.query("SELECT count(*) FROM meshnode_notices") == [(0,)]


def test_a_stranger_is_admitted_by_its_introduction(tmp_path: Path) -> None:
    first, second = mesh(tmp_path, 2)
    newcomer = Node(tmp_path / "3", 3, first.time)
    admission = (*founding(first.key), vouch(first.key, newcomer.key, 900), vouch(first.key, second.key, 4))
    newcomer.admit(*admission)
    newcomer.create_notes()
    newcomer.write("n1", "hello")
    refused = Wire(newcomer, second)
    refused.settle()
    assert refused.right.closed is not None
    assert refused.right.closed.code == CloseCode.NOT_A_MEMBER
    Wire(newcomer, second, introduce=admission).settle()
    assert second.rows() == {"n1": "hello"}


def test_a_third_node_gets_everything_from_either(tmp_path: Path) -> None:
    first, second, third = mesh(tmp_path, 3)
    first.write("a", "1")
    second.write("b", "2")
    wires = [Wire(first, second), Wire(second, third)]
    settle(wires)
    third.write("c", "3")
    settle(wires)
    assert first.rows() == second.rows() == third.rows() == {"a": "1", "b": "2", "c": "3"}


def test_a_killed_receiver_or_sender_loses_nothing(tmp_path: Path) -> None:
    left, right = mesh(tmp_path, 2)
    for number in range(20):
        left.write(f"n{number}", "x")
    for victim in (right, left):
        wire = Wire(left, right)
        for _ in range(6):
            for step in wire.steps()[:1]:
                step()
        victim.crash()
    Wire(left, right).settle()
    assert left.rows() == right.rows()


def test_a_receiver_that_lost_its_database_gets_everything_again_once_a_minute(tmp_path: Path) -> None:
    left, right = mesh(tmp_path, 2)
    records = [*founding(left.key), vouch(left.key, right.key, 4)]
    left.write("n1", "Milk")
    Wire(left, right).settle()
    for waits in (False, True):
        right.lose()
        right.admit(*records)
        right.create_notes()
        wire = Wire(left, right)
        wire.settle()
        assert right.rows() == ({} if waits else {"n1": "Milk"})
        if waits:
            assert not wire.is_cut
            later(left, GENESIS_REWIND_MS)
            wire.settle()
        assert right.rows() == {"n1": "Milk"}


def test_a_receiver_restored_from_an_old_copy_gets_what_it_lost(tmp_path: Path) -> None:
    left, right = mesh(tmp_path, 2)
    left.write("n1", "before")
    Wire(left, right).settle()
    copy = right.backup()
    left.write("n2", "after")
    Wire(left, right).settle()
    right.lose(copy)
    assert right.rows() == {"n1": "before"}
    Wire(left, right).settle()
    assert right.rows() == {"n1": "before", "n2": "after"}


def test_a_receiver_restored_from_an_old_copy_claims_nothing_that_it_has_not_got_back(tmp_path: Path) -> None:
    """What it had rejected is offered again, but not before the log that it lost."""
    left, right = mesh(tmp_path, 2)
    copy = right.backup()
    early = left.write("early", "x")
    left.context.clock = Hlc(left.time.now_ms + SKEW_MS + 60_000, 0)
    left.write("future", "x")
    Wire(left, right).settle()
    right.lose(copy)
    left.time.now_ms += 120_000
    wire = Wire(left, right)
    while steps := wire.steps():
        steps[-1]()  # each frame is committed before the next arrives
        with right.context.transaction() as tx:
            claimed = all_watermarks(tx)
        assert not claimed or early.data in right.events()
    assert right.rows() == {"early": "x", "future": "x"}


def test_a_sender_restored_from_an_old_copy_asks_for_its_own_events(tmp_path: Path) -> None:
    left, right = mesh(tmp_path, 2)
    left.write("n1", "before")
    Wire(left, right).settle()
    copy = left.backup()
    left.write("n2", "after")
    Wire(left, right).settle()
    left.lose(copy)
    wire = Wire(left, right)
    wire.settle()
    assert any(isinstance(each, RolledBack) for each in wire.left.effects)
    assert left.rows() == {"n1": "before", "n2": "after"}
    assert left.query("SELECT count(*) FROM meshnode_requests") == [(0,)]
    left.write("n3", "new")
    wire.settle()
    assert right.rows() == {"n1": "before", "n2": "after", "n3": "new"}


def test_a_sender_that_wrote_on_in_an_old_copy_gets_back_what_it_lost_too(tmp_path: Path) -> None:
    left, right = mesh(tmp_path, 2)
    left.write("n1", "before")
    Wire(left, right).settle()
    copy = left.backup()
    left.write("n2", "lost")
    Wire(left, right).settle()
    left.lose(copy)
    later(left, 1_000)
    left.write("n3", "newer than what was lost")
    Wire(left, right).settle()
    later(left, GENESIS_REWIND_MS)
    Wire(left, right).settle()
    assert left.rows() == right.rows()
    assert left.rows().keys() == {"n1", "n2", "n3"}


def test_a_request_is_kept_until_it_is_answered_and_answered_after_the_events(tmp_path: Path) -> None:
    left, right = mesh(tmp_path, 2)
    right.scope = Scope(("!*.*",))
    left.write("n1", "Milk")
    Wire(left, right).settle()
    assert right.rows() == {}
    right.crash()
    right.scope = Scope(("main.*",))
    assert not right.take(right.context.policy).any
    assert behind(right, left).requests == 1
    right.crash()
    wire = Wire(left, right)
    wire.settle()
    assert right.rows() == {"n1": "Milk"}
    assert behind(right, left).requests == 0
    assert behind(left, right).unanswered == 0


def test_filters_that_let_nothing_through_still_move_the_cursor(tmp_path: Path) -> None:
    left, right = mesh(tmp_path, 2)
    right.scope = Scope(("*.*", "!main.notes"))
    left.write("n1", "Milk")
    Wire(left, right).settle()
    assert right.rows() == {}
    assert behind(left, right).cursor == 1
    assert behind(left, right).staged == 0


def test_a_policy_that_now_forbids_what_is_staged_does_not_wedge_the_stream(tmp_path: Path) -> None:
    left, right = mesh(tmp_path, 2)
    left.write("n1", "secret")
    left.write("o1", "open", table=("main", "other"))
    wire = Wire(left, right)
    while not behind(left, right).staged >= 2:
        wire.left.steps()[0]() if wire.left.steps() else wire.right.steps()[0]()
    left.crash()
    left.classify(TableClass.PRIVATE)
    Wire(left, right).settle()
    assert right.rows() == {}
    assert right.query("SELECT count(*) FROM meshnode_log") == [(1,)]
    assert behind(left, right).staged == 0
    # Opting in again brings what was skipped.
    wire = Wire(left, right)
    wire.settle()
    left.classify(TableClass.SHARED)
    wire.settle()
    assert right.rows() == {"n1": "secret"}


def test_rejected_events_are_offered_again_until_they_pass(tmp_path: Path) -> None:
    left, right = mesh(tmp_path, 2)
    ahead = left.time.now_ms + SKEW_MS + 60_000
    left.context.clock = Hlc(ahead, 0)
    left.write("future", "x")
    wire = Wire(left, right)
    wire.settle()
    assert right.rows() == {}
    assert behind(left, right).reoffers == 1
    assert behind(left, right).events_behind == 1
    later(left, CYCLE_MS)
    wire.settle()
    assert right.rows() == {}
    left.time.now_ms = ahead
    left.crash()  # the re-offer set is durable
    Wire(left, right).settle()
    assert right.rows() == {"future": "x"}
    assert behind(left, right).settled


def test_a_rejected_event_in_flight_when_the_stream_begins_anew_is_not_lost(tmp_path: Path) -> None:
    left, right = mesh(tmp_path, 2)
    left.write("o1", "x", table=("main", "other"))
    left.context.clock = Hlc(left.time.now_ms + SKEW_MS + 60_000, 0)
    left.write("future", "x")
    Wire(left, right).settle()
    left.time.now_ms += 120_000
    wire = Wire(left, right)
    while not any(isinstance(each, Advance) for each in wire.left.effects) or wire.left.jobs:
        wire.left.steps()[0]() if wire.left.steps() else wire.right.steps()[0]()
    assert behind(left, right).reoffers == 0
    assert behind(left, right).events_behind == 1
    left.crash()
    left.classify(TableClass.PRIVATE, ("main", "other"))
    Wire(left, right).settle()
    assert right.rows() == {"future": "x"}


def remove(node: Node, *positions: int) -> None:
    """Take events out of the log on purpose."""
    with node.context.transaction() as tx:
        tx.executemany("DELETE FROM meshnode_log WHERE position = ?", [(each,) for each in positions])
        removed.record(tx, positions, removed.TAKEN_BACK)


def test_positions_recorded_as_removed_are_passed_over(tmp_path: Path) -> None:
    left, right = mesh(tmp_path, 2)
    for number in range(4):
        left.write(f"n{number}", "x")
    remove(left, 2, 4)
    wire = Wire(left, right)
    wire.settle()
    assert right.rows() == {"n0": "x", "n2": "x"}
    remove(left, 1, 3)  # those that the cursor names, too
    left.write("n9", "x")
    wire.settle()
    assert right.rows() == {"n0": "x", "n2": "x", "n9": "x"}
    assert not noticed(left, "unreadable-state")


@pytest.mark.parametrize("lost", [2, 4], ids=["in-the-middle", "at-the-end"])
def test_a_position_that_is_gone_and_not_recorded_stops_the_stream(tmp_path: Path, lost: int) -> None:
    left, right = mesh(tmp_path, 2)
    for number in range(4):
        left.write(f"n{number}", "x")
    left.query("DELETE FROM meshnode_log WHERE position = ?", lost)
    right.write("theirs", "y")
    Wire(left, right).settle()
    assert right.rows() == {"theirs": "y"}
    assert behind(left, right).cursor == 0
    assert noticed(left, "unreadable-state")
    assert left.rows()["theirs"] == "y"  # the peer's own stream goes on


def test_a_reoffer_of_a_removed_event_is_passed_over_and_of_a_lost_one_stops(tmp_path: Path) -> None:
    left, right = mesh(tmp_path, 2)
    for number in range(4):
        left.write(f"n{number}", "x")
    Wire(left, right).settle()
    remove(left, 2)
    with left.context.transaction() as tx:
        stream = outbox.stream_of(left.context, tx, right.site, PATH)
        reoffers.add(tx, stream, reoffers.EVENT, [2, 3], waiting=False)
    left.write("n4", "x")
    Wire(left, right).settle()
    assert behind(left, right).reoffers == 0
    assert right.rows()["n4"] == "x"
    left.query("DELETE FROM meshnode_log WHERE position = 3")
    with left.context.transaction() as tx:
        reoffers.add(tx, outbox.stream_of(left.context, tx, right.site, PATH), reoffers.EVENT, [3], waiting=False)
    left.write("n5", "x")
    Wire(left, right).settle()
    assert "n5" not in right.rows()
    assert noticed(left, "unreadable-state")


def test_a_retirement_takes_back_on_every_node_whatever_is_in_flight(tmp_path: Path) -> None:
    first, second, third = mesh(tmp_path, 3)
    early = third.write("n", "early")
    late = [third.write("n", "late"), third.write("m", "late")]
    settle([Wire(third, first)])
    wire = Wire(first, second)
    while behind(first, second).staged < 2:  # records, and a frame with events that are about to be taken back
        wire.left.steps()[0]() if wire.left.steps() else wire.right.steps()[0]()
    first.admit(sealed(first.key, Retirement(third.site, early.hlc, (), Hlc(START_MS + 60_000, 0))))
    assert first.rows() == {"n": "early"}
    wire.settle()
    settle([Wire(third, second)])
    assert first.rows() == second.rows() == third.rows() == {"n": "early"}
    assert first.events() == second.events() == third.events() == {early.data}
    assert behind(first, second).settled
    assert not any(noticed(node, "unreadable-state") for node in (first, second, third))
    with first.context.transaction() as tx:
        assert removed.count(tx) == len(late)


def test_many_events_go_in_bounded_batches(tmp_path: Path) -> None:
    left, right = mesh(tmp_path, 2)
    events = BATCH_EVENTS + 1
    left.write("n", "x")
    left.query(
        "INSERT INTO meshnode_log"
        " SELECT position + value, site_no, physical, logical, id_prefix, table_no, state, event"
        " FROM meshnode_log, (WITH RECURSIVE c(value) AS (VALUES (1) UNION ALL SELECT value + 1 FROM c WHERE value < ?)"
        " SELECT value FROM c)",
        events - 1,
    )
    wire = Wire(left, right)
    while behind(left, right).staged < 3:
        wire.left.steps()[0]() if wire.left.steps() else wire.right.steps()[0]()
    sizes = [len(bytes(items)) // 8 for (items,) in left.query("SELECT items FROM meshnode_staged ORDER BY no")]  # type: ignore[call-overload]
    first = Pace().events
    assert sizes[1:] == [first] * (BATCH_EVENTS // first) + [1]
    wire.settle()
    assert right.rows() == {"n": "x"}


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE meshnode_outbound SET cursor = 'x'",
        "UPDATE meshnode_outbound SET epoch = x'00'",
        "UPDATE meshnode_staged SET frame = x'a0' WHERE no = 1",
        "UPDATE meshnode_staged SET items = x'09' WHERE no = 1",
        "DELETE FROM meshnode_staged WHERE no = 1",
        "UPDATE meshnode_log SET event = x''",
    ],
)
def test_unreadable_sending_state_stops_that_stream_with_its_cursor_unmoved(tmp_path: Path, damage: str) -> None:
    left, right = mesh(tmp_path, 2)
    left.write("n1", "Milk")
    wire = Wire(left, right)
    if "log" not in damage:
        while behind(left, right).staged < 2:
            wire.left.steps()[0]() if wire.left.steps() else wire.right.steps()[0]()
    left.crash()
    left.query(damage)
    before = left.query("SELECT cursor, settled_no FROM meshnode_outbound")
    right.write("n2", "the other way still works")
    wire = Wire(left, right)
    wire.settle()
    assert left.rows() == {"n1": "Milk", "n2": "the other way still works"}
    assert "n1" not in right.rows()
    assert [each.kind for each in left.notices] == ["unreadable-state"]
    assert right.site.hex()[:8] in left.notices[0].text or "log position" in left.notices[0].text
    assert [row[0] for row in left.query("SELECT cursor, settled_no FROM meshnode_outbound")] == [
        row[0] for row in before
    ] or not before


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE meshnode_inbound SET next = 'x'",
        "UPDATE meshnode_inbound SET epoch = 7",
        "UPDATE meshnode_acks SET digest = x'01'",
        "DELETE FROM meshnode_acks",
    ],
)
def test_unreadable_receiving_state_is_never_replaced(tmp_path: Path, damage: str) -> None:
    left, right = mesh(tmp_path, 2)
    left.write("n1", "Milk")
    Wire(left, right).settle()
    right.crash()
    right.query(damage)
    before = right.query("SELECT * FROM meshnode_inbound")
    with pytest.raises(CorruptStateError, match="Restore the database"):
        open_link(right.context, left.site, PATH)
    assert right.query("SELECT * FROM meshnode_inbound") == before
    assert right.query("SELECT count(*) FROM meshnode_notices WHERE kind = 'unreadable-state'") == [(1,)]


def test_the_frontier_counts_batches_and_learns_only_of_sites_that_were_met(tmp_path: Path) -> None:
    first, second, third = mesh(tmp_path, 3, features=())
    first.write("a", "1")
    settle([Wire(first, second)])
    settle([Wire(second, third)])
    read = "SELECT site, counter FROM meshnode_frontier"
    assert dict(first.query(read)) == {first.site: 1, second.site: 0}
    assert dict(second.query(read)) == {first.site: 1, second.site: 1, third.site: 1}
    assert dict(third.query(read)) == {second.site: 1, third.site: 1}


def test_a_257th_site_is_refused_with_code_8_and_surfaced(tmp_path: Path) -> None:
    (node,) = mesh(tmp_path, 1)
    with node.context.transaction() as tx:
        for number in range(FRONTIER_SITES - 1):
            tx.execute("INSERT INTO meshnode_frontier VALUES (?, 0)", (number.to_bytes(16, "big"),))
    open_link(node.context, (0).to_bytes(16, "big"), PATH)
    with pytest.raises(ProtocolError) as refused:
        open_link(node.context, site_key(99).site, PATH)
    assert refused.value.code == CloseCode.LIMIT
    assert node.query("SELECT kind FROM meshnode_notices") == [("frontier-full",)]
    assert node.query("SELECT count(*) FROM meshnode_frontier") == [(FRONTIER_SITES - 1,)]


def test_watermarks_tell_what_was_applied(tmp_path: Path) -> None:
    left, right = mesh(tmp_path, 2, features=())
    event = left.write("n1", "Milk")
    wire = Wire(left, right)
    wire.settle()
    later(right, 1_000)
    wire.settle()
    assert wire.left.session.peer_watermarks == {(left.site, *NOTES): Told(event.hlc, left.time.now_ms)}


def test_what_a_peer_told_and_is_not_here_counts_as_ahead(tmp_path: Path) -> None:
    left, right = mesh(tmp_path, 2)
    event = left.write("n1", "Milk")
    told = {(left.site, *NOTES): event.hlc}
    for arrived in (False, True):
        with right.context.transaction() as tx:
            assert groups_ahead(tx, told, anything) == (0 if arrived else 1)
            assert groups_ahead(tx, told, lambda *_: False) == 0
            assert sites_ahead(tx, {left.site: event.hlc}) == ([] if arrived else [left.site])
        Wire(left, right).settle()


def test_hello_names_the_newest_event_of_every_site(tmp_path: Path) -> None:
    left, right = mesh(tmp_path, 2)
    event = left.write("n1", "Milk")
    Wire(left, right).settle()
    assert dict(open_link(right.context, left.site, PATH).max_hlc)[left.site] == event.hlc

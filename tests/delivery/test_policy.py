"""What crosses between two real engines: classes, the raw switch, the budget, and their change while links are up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.pair import MESH_ID, NOTES, Node, Stopped, Wire, mesh, settle

from meshnode.engine import backfill, outbox
from meshnode.engine.commit import commit_events
from meshnode.engine.forget import forget
from meshnode.engine.links import open_link
from meshnode.engine.offer import Filter
from meshnode.engine.verify import verify_untrusted
from meshnode.errors import NotFoundError
from meshnode.limits import SKEW_MS
from meshnode.model.delivery import PATH
from meshnode.model.event import author_event
from meshnode.model.frames import FEATURE_COVERING, FEATURES, Batch, Watermarks
from meshnode.model.frames_untrusted import decode_control_untrusted, decode_events_untrusted
from meshnode.model.hlc import Hlc, tick
from meshnode.model.policy import DAY_MS, TableClass
from meshnode.model.scope import Scope
from meshnode.store import offers, watermarks
from meshnode.store.backlog import backlog
from meshnode.sync.effects import Advance, NewEpoch, SendControl, SendEvents

OTHER = ("main", "other")


SENT = Filter(features=frozenset(FEATURES))  # as every job of these links has it


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Node, Node]:
    """Two members with the table."""
    left, right = mesh(tmp_path, 2)
    return left, right


def link(left: Node, right: Node) -> Wire:
    wire = Wire(left, right)
    wire.settle()
    return wire


def raw(node: Node, *, on: bool, days: int = 0) -> None:
    node.take(replace(node.context.policy, replicate_raw_ingress=on, replay_budget_days=days))


def put(node: Node, row: str, columns: dict[str, Any] | None) -> None:
    """A write that may name columns which the table does not have."""
    context = node.context

    def work(tx: Any) -> None:
        context.clock = tick(context.clock, node.time.now_ms)
        event = author_event(
            node.key, MESH_ID, schema="main", table="notes", row_key={"id": row}, columns=columns, hlc=context.clock
        )
        checked = verify_untrusted(
            [event.data], mesh_id=MESH_ID, keyring=context.membership, generation=context.generation
        )
        commit_events(context, tx, checked, author_stream=True, scope=Scope())

    context.transact(work)
    node.grew()


def until_staged(wire: Wire, node: Node, peer: Node, frames: int) -> None:
    """Run the link until so many frames are in flight and none of them has been read."""
    while backlog_of(node, peer).staged < frames:
        (wire.left.steps() or wire.right.steps())[0]()


def backlog_of(node: Node, peer: Node) -> Any:
    with node.context.transaction() as tx:
        return backlog(tx, peer.site, PATH, lambda *_: True, node.time.now_ms)


def count(node: Node, table: str) -> int:
    (found,) = node.query(f"SELECT count(*) FROM meshnode_{table}")[0]
    assert isinstance(found, int)
    return found


# --- What crosses.


def test_a_private_table_neither_leaves_nor_enters(pair: tuple[Node, Node]) -> None:
    left, right = pair
    left.classify(TableClass.PRIVATE)
    left.write("mine", "secret")
    right.write("theirs", "not wanted")
    wire = link(left, right)
    left.write("mine too", "secret")
    right.write("theirs too", "not wanted")
    right.write("o", "open", table=OTHER)
    wire.settle()
    assert left.rows() == {"mine": "secret", "mine too": "secret"}
    assert right.rows() == {"theirs": "not wanted", "theirs too": "not wanted"}
    assert left.query("SELECT count FROM meshnode_notices WHERE kind = 'scope'") == [(2,)]
    assert count(left, "log") == 3, "what came behind it is here"
    assert backlog_of(left, right).settled
    assert backlog_of(right, left).settled
    assert left.site not in dict(open_link(left.context, right.site, PATH).max_hlc)


def test_a_newest_event_that_was_forgotten_in_a_table_that_became_private_is_no_lost_disk(
    pair: tuple[Node, Node],
) -> None:
    """Else the node says that it was restored, and authors nothing until its peer has answered."""
    left, right = pair
    left.write("n", "x")
    link(left, right).cut()
    forget(left.context, *NOTES, {"id": "n"})
    left.classify(TableClass.PRIVATE)
    link(left, right)
    assert count(left, "notices") == 0
    assert count(left, "requests") == 0


def test_a_raw_table_crosses_only_with_the_switch_on_at_both_ends(pair: tuple[Node, Node]) -> None:
    left, right = pair
    for node in pair:
        node.classify(TableClass.RAW)
    left.write("n", "raw")
    wire = link(left, right)
    assert right.rows() == {}
    raw(left, on=True)
    wire.settle()
    assert right.rows() == {}
    assert right.query("SELECT kind FROM meshnode_notices") == [("scope",)], "it came and was dropped"
    raw(right, on=True)
    wire.settle()
    assert right.rows() == {"n": "raw"}
    raw(left, on=False)
    left.write("later", "stays")
    wire.settle()
    raw(left, on=True)
    wire.settle()
    assert right.rows() == {"n": "raw", "later": "stays"}


def test_a_relay_keeps_its_own_policy(tmp_path: Path) -> None:
    first, second, third = mesh(tmp_path, 3)
    second.classify(TableClass.RAW)
    raw(second, on=True)
    first.write("n", "x")
    wires = [Wire(first, second), Wire(second, third)]
    settle(wires)
    assert third.rows() == {"n": "x"}
    raw(second, on=False)
    first.write("m", "x")
    settle(wires)
    assert (second.rows(), third.rows()) == ({"n": "x"}, {"n": "x"})


def test_events_older_than_the_budget_are_withheld_and_dropped(pair: tuple[Node, Node]) -> None:
    left, right = pair
    for node in pair:
        node.classify(TableClass.RAW)
        raw(node, on=True)
    left.write("old", "x")
    left.time.now_ms += 5 * DAY_MS
    left.write("on the edge", "x")
    left.time.now_ms += 2 * DAY_MS
    raw(left, on=True, days=2)
    wire = link(left, right)
    assert right.rows() == {"on the edge": "x"}
    assert count(right, "notices") == 0, "the sender withheld it"
    raw(right, on=True, days=7)
    raw(left, on=True)
    wire.settle()
    assert right.rows() == {"old": "x", "on the edge": "x"}, "what is exactly as old as the budget is let in"


def test_a_receiver_drops_what_is_older_than_its_own_budget(pair: tuple[Node, Node]) -> None:
    left, right = pair
    for node in pair:
        node.classify(TableClass.RAW)
    raw(left, on=True)
    raw(right, on=True, days=1)
    left.write("old", "x")
    left.time.now_ms += DAY_MS + 1
    left.write("new", "x")
    left.write("o", "shared", table=OTHER)
    link(left, right)
    assert right.rows() == {"new": "x"}
    assert right.query("SELECT kind, count FROM meshnode_notices") == [("scope", 1)]
    assert backlog_of(left, right).settled


# --- Frames in flight.


def test_opting_out_while_frames_are_in_flight_takes_them_back(pair: tuple[Node, Node]) -> None:
    left, right = pair
    left.write("n1", "secret")
    left.write("o1", "open", table=OTHER)
    wire = Wire(left, right)
    until_staged(wire, left, right, 2)
    wire.right.events.clear()  # on their way, and lost with the link
    left.classify(TableClass.PRIVATE)
    left.write("n2", "secret")
    wire.settle()
    assert right.rows() == {}
    assert count(right, "log") == 1
    assert backlog_of(left, right).settled
    left.classify(TableClass.SHARED)
    wire.settle()
    assert right.rows() == {"n1": "secret", "n2": "secret"}
    assert left.notices == right.notices == []


def test_opting_out_without_a_link_removes_what_is_staged_at_once(pair: tuple[Node, Node]) -> None:
    left, right = pair
    left.write("o1", "open", table=OTHER)
    link(left, right).cut()
    left.write("n1", "secret")
    left.write("o2", "open", table=OTHER)
    wire = Wire(left, right)
    until_staged(wire, left, right, 1)
    wire.cut()
    for table_class in (TableClass.PRIVATE, TableClass.RAW, TableClass.SHARED, TableClass.PRIVATE):
        left.classify(table_class)
        assert count(left, "staged") == 0
    wire = link(left, right)
    assert right.rows() == {}
    assert count(right, "log") == 2
    assert backlog_of(left, right).settled
    assert not any(isinstance(each, NewEpoch) for each in wire.left.effects), "it goes on from the settled cursor"
    right.lose(right.backup())
    assert not any(isinstance(each, NewEpoch) for each in link(left, right).left.effects)


def test_what_is_staged_does_not_outlive_its_budget(pair: tuple[Node, Node]) -> None:
    left, right = pair
    for node in pair:
        node.classify(TableClass.RAW)
    raw(left, on=True, days=1)
    raw(right, on=True)
    left.write("n1", "x")
    wire = Wire(left, right)
    until_staged(wire, left, right, 2)
    for wait_ms, expected in ((DAY_MS, 2), (1, 0)):
        wire.cut()
        left.time.now_ms += wait_ms
        stream = open_link(left.context, right.site, PATH).outbound
        assert stream is not None
        again = outbox.resend(left.context, right.site, PATH, epoch=stream.epoch, from_no=1, offered=SENT)
        assert len(again or ()) == expected
    link(left, right)
    assert right.rows() == {}


@pytest.mark.parametrize("at", ["sender", "receiver"])
def test_any_number_of_changes_under_way_ends_in_what_is_allowed(pair: tuple[Node, Node], at: str) -> None:
    left, right = pair
    node = left if at == "sender" else right
    wire = Wire(left, right)
    classes = (TableClass.PRIVATE, TableClass.SHARED, TableClass.RAW, TableClass.SHARED, TableClass.PRIVATE)
    for number, table_class in enumerate(classes * 3):
        left.write(f"n{number}", "x")
        left.write(f"o{number}", "x", table=OTHER)
        for _ in range(number):
            for step in wire.steps()[:1]:
                step()
        node.classify(table_class)
    node.classify(TableClass.SHARED)
    wire.settle()
    assert len(right.rows()) == 15
    assert right.events() == left.events()
    assert backlog_of(left, right).settled
    assert not wire.is_cut


def test_a_scope_that_widens_on_a_new_link_brings_what_was_skipped(pair: tuple[Node, Node]) -> None:
    left, right = pair
    right.scope = Scope(("main.other",))
    left.write("n1", "x")
    wire = link(left, right)
    right.scope = Scope(())
    assert wire.is_cut
    assert count(right, "requests") == 1
    link(left, right)
    assert right.rows() == {"n1": "x"}
    assert count(right, "requests") == 0


def test_a_superseded_event_that_was_rejected_before_the_opting_out_is_waited_for_no_more(
    pair: tuple[Node, Node],
) -> None:
    """It is not in the covering set that the opting in asks for: the watermark stood below it for ever."""
    left, right = pair
    left.context.clock = Hlc(left.time.now_ms + SKEW_MS + 10_000, 0)
    left.write("n1", "superseded")
    newest = left.write("n1", "newest")
    link(left, right)
    right.crash()
    right.scope = Scope(("!main.notes",))
    link(left, right)
    left.time.now_ms += 20_000
    right.crash()
    right.scope = Scope()
    wire = link(left, right)
    left.time.now_ms += 2_000
    wire.left.timer()
    wire.settle()
    assert right.rows() == left.rows()
    assert right.events() < left.events()
    with right.context.transaction() as tx:
        assert [each.hlc for each in watermarks.all_watermarks(tx)] == [newest.hlc]


def test_a_scope_that_only_narrows_asks_for_nothing(pair: tuple[Node, Node]) -> None:
    left, right = pair
    left.write("n1", "x")
    link(left, right)
    assert right.take(replace(right.context.policy, scope=Scope(("*.*", "!main.notes")))).scope
    assert count(right, "requests") == 0
    link(left, right)
    left.write("n2", "x")
    link(left, right)
    assert right.rows() == {"n1": "x"}


# --- What is brought.


def test_opting_in_brings_each_rows_covering_set_and_not_its_history(pair: tuple[Node, Node]) -> None:
    left, right = pair
    left.classify(TableClass.PRIVATE)
    for number in range(40):
        put(left, "a", {"title": f"t{number}"})
    put(left, "b", {"title": "kept", "added later": 1})
    put(left, "b", {"title": "newer"})
    put(left, "c", {"title": "gone"})
    put(left, "c", None)
    put(left, "d", {"title": "gone"})
    put(left, "d", None)
    put(left, "d", {"title": "back"})
    put(left, "e", {"title": None})
    wire = link(left, right)
    left.classify(TableClass.SHARED)
    wire.settle()
    expected = {"a": "t39", "b": "newer", "d": "back", "e": None}
    assert left.rows() == right.rows() == expected
    assert count(right, "log") == 1 + 2 + 1 + 2 + 1


def test_opting_in_goes_on_where_the_process_died(pair: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill, "BATCH_EVENTS", 3)
    monkeypatch.setattr(backfill, "GATHER_ROWS", 4)
    left, right = pair
    left.classify(TableClass.PRIVATE)
    for number in range(10):
        left.write(f"n{number}", "x")
        left.write(f"n{number}", "y")
    link(left, right).cut()
    left.classify(TableClass.SHARED)
    for statements in range(5, 400, 15):
        left.fuse = statements
        wire = Wire(left, right) if statements > 60 else None
        try:
            if wire is not None:
                wire.settle()
        except Stopped:
            left.crash()
        left.fuse = None
        if wire is not None:
            wire.cut()
    link(left, right)
    assert len(right.rows()) == 10
    assert set(right.rows().values()) == {"y"}
    assert count(left, "backfills") == 0
    assert backlog_of(left, right).settled


def test_opting_in_serves_every_peer_that_was_passed_and_no_other(tmp_path: Path) -> None:
    first, second, third, fourth = mesh(tmp_path, 4)
    first.classify(TableClass.PRIVATE)
    for number in range(5):
        first.write("n", str(number))
    for peer in (second, third):
        link(first, peer).cut()
    first.classify(TableClass.SHARED)
    assert count(first, "backfills") == 2
    for peer in (second, third, fourth):
        link(first, peer)
        assert peer.rows() == {"n": "4"}
    assert [count(peer, "log") for peer in (second, third, fourth)] == [1, 1, 5]
    assert first.context.coverages == {}


def test_a_request_is_answered_a_bounded_step_at_a_time(
    pair: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offers, "SCAN_ROWS", 4)
    left, right = pair
    right.features = ()  # every position is asked for
    right.classify(TableClass.PRIVATE)
    for number in range(30):
        left.write(f"n{number}", "x")
    wire = link(left, right)
    right.classify(TableClass.SHARED)
    before = len(wire.left.effects)
    wire.settle()
    fresh = wire.left.effects[before:]
    assert sum(isinstance(each, Advance) for each in fresh) >= 30 // 4
    batches = [decode_events_untrusted(each.data[4:]) for each in fresh if isinstance(each, SendEvents)]
    assert max(len(each.events) for each in batches if isinstance(each, Batch)) == 4
    assert len(right.rows()) == 30
    assert count(right, "requests") == count(left, "answers") == 0


def test_a_private_tables_name_is_not_asked_about(pair: tuple[Node, Node]) -> None:
    left, right = pair
    left.write("n1", "x")
    link(left, right).cut()
    right.classify(TableClass.PRIVATE)
    right.classify(TableClass.SHARED)
    assert count(right, "requests") == 1
    right.classify(TableClass.PRIVATE)
    assert count(right, "requests") == 0
    right.scope = Scope(("main.other",))
    right.scope = Scope(("main.other", "main.notes"))
    assert count(right, "requests") == 0


# --- What is told.


def watermarks_told(wire: Wire) -> set[tuple[str, str]]:
    told = set()
    for effect in wire.left.effects:
        if isinstance(effect, SendControl):
            message = decode_control_untrusted(effect.data[4:], SENT.features)
            if isinstance(message, Watermarks):
                told |= {(entry.schema, entry.table) for entry in message.entries}
    return told


def test_watermarks_of_what_is_kept_out_are_neither_told_nor_believed(tmp_path: Path) -> None:
    first, second, third = mesh(tmp_path, 3)
    second.classify(TableClass.PRIVATE)
    first.write("n", "x")
    first.write("o", "x", table=OTHER)
    settle([Wire(first, second)])
    wire = Wire(second, third)
    settle([wire])
    assert watermarks_told(wire) == set() or watermarks_told(wire) == {OTHER}
    assert third.query(
        "SELECT count(*) FROM meshnode_watermarks AS w JOIN meshnode_tables AS t ON t.no = w.table_no"
        " WHERE t.name = 'notes'"
    ) == [(0,)]
    # Asked for and not answered yet: still nothing is claimed of it.
    second.classify(TableClass.SHARED)
    for end in list(second.ends):
        end.wire.cut()
    again = Wire(second, third)
    again.settle()
    assert NOTES not in watermarks_told(again)


def test_a_table_that_nobody_named_has_no_class(pair: tuple[Node, Node]) -> None:
    with pytest.raises(NotFoundError, match="add it first"):
        pair[0].classify(TableClass.RAW, ("main", "nothing"))


@pytest.mark.parametrize(("agreed", "brought"), [(True, 1), (False, 20)])
def test_a_receiver_that_opts_in_gets_covering_sets_where_the_sender_can(
    pair: tuple[Node, Node], agreed: bool, brought: int
) -> None:
    left, right = pair
    right.features = (FEATURE_COVERING,)
    left.features = (FEATURE_COVERING,) if agreed else ()
    right.classify(TableClass.PRIVATE)
    for number in range(20):
        left.write("n", str(number))
    wire = link(left, right)
    right.classify(TableClass.SHARED)
    wire.settle()
    assert right.rows() == {"n": "19"}
    assert count(right, "log") == brought
    assert count(right, "requests") == 0
    assert not wire.is_cut


def test_a_table_of_which_a_peer_has_nothing_is_answered_all_the_same(pair: tuple[Node, Node]) -> None:
    left, right = pair
    for node in pair:
        node.features = (FEATURE_COVERING,)
    wire = link(left, right)
    right.classify(TableClass.PRIVATE)
    right.classify(TableClass.SHARED)
    assert count(right, "requests") == 1
    wire.settle()
    assert count(right, "requests") == 0
    assert not wire.is_cut


def test_a_covering_set_holds_what_the_asker_itself_wrote_and_lost(pair: tuple[Node, Node]) -> None:
    left, right = pair
    for node in pair:
        node.features = (FEATURE_COVERING,)
    copy = right.backup()
    right.write("n", "old")
    right.write("n", "new")
    link(left, right)
    right.lose(copy)
    right.classify(TableClass.PRIVATE)
    link(left, right).cut()
    right.classify(TableClass.SHARED)
    link(left, right)
    assert right.rows() == left.rows() == {"n": "new"}

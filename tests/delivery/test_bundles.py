"""Bundles as a second transport path: repeated until acknowledged, idempotent, and nothing lost (profile §8)."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.bundles import carry, export, take
from support.mesh_context import START_MS
from support.pair import NOTES, Node, Stopped, Wire, mesh
from support.records import founding, retirement, role, site_key, vouch

from meshnode.engine import retention
from meshnode.engine.asking import ask_everything
from meshnode.engine.bundle_stands import start_for
from meshnode.errors import MembershipError, UsageError
from meshnode.limits import SKEW_MS
from meshnode.model.hlc import Hlc
from meshnode.model.policy import DAY_MS, Policy, TableClass
from meshnode.model.scope import Scope
from meshnode.store.watermarks import all_watermarks


def watermarks(node: Node) -> dict[tuple[bytes, str], Hlc]:
    with node.context.transaction() as tx:
        return {(each.site, each.table): each.hlc for each in all_watermarks(tx)}


def start(node: Node, peer: Node) -> int:
    with node.context.transaction() as tx:
        return start_for(node.context, tx, peer.site).cursor


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "x.bundle"


def test_to_and_fro_until_both_are_equal_and_nothing_is_left_to_carry(tmp_path: Path, file: Path) -> None:
    left, right = mesh(tmp_path, 2)
    for number in range(3):
        left.write(f"n{number}", "Milk")
    right.write("n1", "Bread")
    pages, taken = carry(left, right, file)
    assert (pages.events, pages.records, pages.no) == (3, 3, 3)
    assert (taken.verdicts, taken.records, taken.settled, taken.gap) == ({"applied": 3}, 0, True, False)
    assert start(left, right) == 0  # until it says so
    _, back = carry(right, left, file)
    assert back.verdicts == {"applied": 1}  # of its own events it was sent none
    assert left.rows() == right.rows()
    assert left.events() == right.events()
    assert watermarks(left) == watermarks(right)
    again, _ = carry(left, right, file)
    assert (again.events, again.records) == (0, 0)
    assert carry(right, left, file)[0].no == 0


def test_a_bundle_repeats_what_no_answer_acknowledged(tmp_path: Path, file: Path) -> None:
    left, right = mesh(tmp_path, 2)
    first, second = tmp_path / "first", tmp_path / "second"
    left.write("n1", "Milk")
    export(left, right, first)
    left.write("n2", "Bread")
    assert export(left, right, second).events == 2
    assert take(right, second).verdicts == {"applied": 2}
    assert take(right, second).verdicts == {"duplicate": 2}
    assert take(right, first).verdicts == {"duplicate": 1}  # an old one does no harm
    carry(right, left, file)
    assert export(left, right, file).events == 1  # the old one is what it was told last
    assert not take(right, file).gap
    carry(right, left, file)
    assert export(left, right, file).events == 0


def test_a_process_that_dies_anywhere_in_an_import_goes_on_with_it(tmp_path: Path, file: Path) -> None:
    left, right = mesh(tmp_path, 2)
    for number in range(5):
        left.write(f"n{number}", "Milk")
    export(left, right, file)
    backup = right.backup()
    died = []
    for fuse in range(0, 200, 5):
        right.lose(backup)
        right.fuse = fuse
        try:
            take(right, file)
            break
        except Stopped:
            right.crash()
        kept = len(right.events())
        died.append(kept)
        taken = take(right, file)
        assert taken.verdicts.get("duplicate", 0) == kept
        assert right.events() == left.events()
        assert watermarks(right) == watermarks(left)
    assert set(died) == {0, 2, 4, 5}


def test_what_was_rejected_is_not_acknowledged_and_comes_again(tmp_path: Path, file: Path) -> None:
    left, right = mesh(tmp_path, 2)
    ahead = left.time.now_ms + SKEW_MS + 10
    left.write("n0", "in time")
    left.context.clock = Hlc(ahead, 0)
    left.write("n1", "Milk")
    _, taken = carry(left, right, file)
    assert (taken.verdicts, taken.settled) == ({"applied": 1, "rejected:skew": 1}, False)
    answer = tmp_path / "answer"
    carry(right, left, answer)
    assert start(left, right) == 0
    right.time.now_ms += SKEW_MS
    assert (take(right, file).verdicts, right.rows()) == (
        {"applied": 1, "duplicate": 1},
        {"n0": "in time", "n1": "Milk"},
    )
    assert watermarks(right) == watermarks(left)
    carry(right, left, answer)
    assert start(left, right) == 2


def test_events_of_a_table_that_is_not_there_are_held_and_acknowledged(tmp_path: Path, file: Path) -> None:
    left, right = mesh(tmp_path, 2)
    left.write("r1", "x", table=("main", "absent"))
    assert carry(left, right, file)[1].verdicts == {"held": 1}
    carry(right, left, file)
    assert start(left, right) == 1


def test_a_receiver_that_lost_its_database_asks_and_gets_everything_whole(tmp_path: Path, file: Path) -> None:
    left, right = mesh(tmp_path, 2)
    empty = right.backup()
    left.write("n1", "Milk")
    right.write("n9", "its own")
    carry(left, right, file)
    carry(right, left, file)
    left.write("n2", "Bread")
    right.lose(empty)
    _, taken = carry(left, right, file)
    assert (taken.verdicts, taken.gap) == ({"applied": 1}, True)  # n9 is its own: it is sent what it asks for
    assert (NOTES[1] in {table for _, table in watermarks(right)}) is False  # it may not claim what it did not see
    _, asked = carry(right, left, file)
    assert asked.gap is False
    pages, answered = carry(left, right, file)
    assert (len(pages.plan.answers), answered.gap) == (2, False)  # everything, and its own events
    assert right.events() == left.events()
    assert watermarks(right) == {group: hlc for group, hlc in watermarks(left).items() if group[0] == left.site}
    carry(right, left, file)
    assert export(left, right, file).events == 0


def test_a_gap_is_doubted_though_the_receiver_asked_for_everything_as_a_restored_copy(
    tmp_path: Path, file: Path
) -> None:
    left, right = mesh(tmp_path, 2)
    empty = right.backup()
    left.write("n1", "Milk")
    wire = Wire(left, right)
    wire.settle()
    wire.cut()
    left.write("n2", "Bread")
    assert export(left, right, file).events == 1  # it goes on from what the link brought
    right.lose(empty)
    with right.context.transaction() as tx:
        ask_everything(right.context, tx, right.context.sites.number(tx, left.site))
    assert take(right, file).gap
    assert watermarks(right) == {}
    carry(right, left, tmp_path / "asks")
    carry(left, right, file)
    assert right.events() == left.events()
    assert watermarks(right) == watermarks(left)


def test_a_receiver_that_says_it_holds_nothing_is_sent_everything_at_once(tmp_path: Path, file: Path) -> None:
    left, right = mesh(tmp_path, 2)
    empty = right.backup()
    left.write("n1", "Milk")
    carry(left, right, file)
    carry(right, left, file)
    assert start(left, right) == 1
    right.lose(empty)
    carry(right, left, file)
    _, taken = carry(left, right, file)
    assert (taken.verdicts, taken.gap) == ({"applied": 1}, False)
    assert watermarks(right) == watermarks(left)


def test_a_sender_restored_from_an_old_copy_begins_anew(tmp_path: Path, file: Path) -> None:
    left, right = mesh(tmp_path, 2)
    left.write("n1", "Milk")
    backup = left.backup()
    left.time.now_ms += 5
    left.write("n2", "lost here")
    carry(left, right, file)
    left.lose(backup)
    left.time.now_ms += 5
    left.write("n3", "at the position of n2")
    carry(right, left, file)  # it tells of a bundle that was never written here, and by its watermarks of n2
    _, taken = carry(left, right, file)
    assert taken.verdicts == {"applied": 1, "duplicate": 1}
    carry(right, left, file)
    carry(left, right, file)
    carry(right, left, file)
    assert left.events() == right.events()
    assert left.rows() == {"n1": "Milk", "n2": "lost here", "n3": "at the position of n2"}


def test_what_a_link_acknowledged_is_not_carried_again(tmp_path: Path, file: Path) -> None:
    left, right = mesh(tmp_path, 2)
    left.write("n1", "Milk")
    wire = Wire(left, right)
    wire.settle()
    wire.cut()
    left.write("n2", "Bread")
    pages, taken = carry(left, right, file)
    assert (pages.events, taken.verdicts, taken.gap) == (1, {"applied": 1}, False)
    assert watermarks(right) == watermarks(left)
    Wire(left, right).settle()
    assert left.events() == right.events()


def test_what_a_link_answered_is_not_answered_by_a_bundle(tmp_path: Path, file: Path) -> None:
    left, right = mesh(tmp_path, 2)
    empty = right.backup()
    left.write("n1", "Milk")
    carry(left, right, file)
    carry(right, left, file)
    left.write("n2", "Bread")
    right.lose(empty)
    assert carry(left, right, file)[1].gap
    carry(right, left, file)
    assert start(left, right) == 0  # it asks for everything
    wire = Wire(left, right)
    wire.settle()
    wire.cut()
    assert right.query("SELECT count(*) FROM meshnode_requests") == [(0,)]
    carry(right, left, file)
    assert start(left, right) == 2


def test_what_a_link_has_still_to_offer_again_is_carried(tmp_path: Path, file: Path) -> None:
    left, right = mesh(tmp_path, 2)
    ahead = left.time.now_ms + SKEW_MS + 10
    left.context.clock = Hlc(ahead, 0)
    left.write("n1", "ahead")
    left.write("n2", "ahead too")
    wire = Wire(left, right)
    wire.settle()
    wire.cut()
    assert right.rows() == {}
    right.time.now_ms += SKEW_MS
    assert carry(left, right, file)[1].verdicts == {"applied": 2}


@pytest.mark.parametrize("narrow", ["class", "raw", "budget", "scope of the peer", "own scope"])
def test_policy_holds_at_both_ends(tmp_path: Path, file: Path, narrow: str) -> None:
    left, right = mesh(tmp_path, 2)
    early = tmp_path / "early"
    left.write("n1", "Milk")
    export(left, right, early)
    if narrow == "own scope":
        right.take(Policy(Scope(("main.other",))))
        assert take(right, early).verdicts == {"dropped:scope": 1}
        return
    if narrow == "budget":
        for node in (left, right):
            node.classify(TableClass.RAW)
            node.take(Policy(replicate_raw_ingress=True, replay_budget_days=1))
        left.time.now_ms += DAY_MS + 1
        assert take(right, early).verdicts == {"dropped:scope": 1}
    elif narrow == "scope of the peer":
        right.take(Policy(Scope(("main.other",))))
        carry(right, left, file)
    else:
        table_class = TableClass.PRIVATE if narrow == "class" else TableClass.RAW
        left.classify(table_class)
        right.classify(table_class)
        assert take(right, early).verdicts == {"dropped:scope": 1}
    assert export(left, right, file).events == 0


def test_a_policy_that_changes_while_a_bundle_is_written_ends_it(tmp_path: Path, file: Path) -> None:
    left, right = mesh(tmp_path, 2)
    left.write("n1", "Milk")
    from meshnode.engine import bundle_out

    plan = bundle_out.begin(left.context, right.site, name="", software="")
    left.classify(TableClass.PRIVATE)
    with pytest.raises(UsageError, match="the policy changed"):
        bundle_out.finish(left.context, bundle_out.Pages(plan, left.time.wall_ms), bytes(32))


@pytest.mark.parametrize("side", ["sender", "receiver"])
def test_opting_in_brings_what_was_passed_over(tmp_path: Path, file: Path, side: str) -> None:
    left, right = mesh(tmp_path, 2)
    node = left if side == "sender" else right
    node.classify(TableClass.PRIVATE)
    left.write("n1", "Milk")
    pages, taken = carry(left, right, file)
    assert (pages.events, taken.verdicts) == ((0, {}) if side == "sender" else (1, {"dropped:scope": 1}))
    carry(right, left, file)
    assert start(left, right) == 1
    node.classify(TableClass.SHARED)
    carry(right, left, file)
    carry(left, right, file)
    assert right.rows() == {"n1": "Milk"}
    assert watermarks(right) == watermarks(left)


def test_a_member_that_the_receiver_never_heard_of_shows_what_makes_it_one(tmp_path: Path, file: Path) -> None:
    first, second, third = (
        Node(tmp_path / str(n), n, time) for time in [mesh(tmp_path / "m", 1)[0].time] for n in (1, 2, 3)
    )
    records = [*founding(first.key), vouch(first.key, second.key, 4)]
    for node in (first, second):
        node.admit(*records)
    late = [role(first.key, second.key, 5), vouch(second.key, third.key, 6)]
    for node in (second, third):
        node.admit(*records, *late)
    for node in (first, second, third):
        node.create_notes()
    third.write("n1", "of the newest member")
    _, taken = carry(third, first, file)
    assert (taken.verdicts, taken.records) == ({"applied": 1}, 0)  # the two came with its introduction
    assert first.context.membership.key_of(third.site) == third.key.public_key


def test_a_vouch_travels_before_the_events_that_need_it(tmp_path: Path, file: Path) -> None:
    first, second, third = mesh(tmp_path, 3)
    newest = site_key(9)
    first.admit(vouch(first.key, newest, 9))
    second.admit(vouch(first.key, newest, 9))
    author = Node(tmp_path / "author", 9, first.time)
    author.admit(*founding(first.key), vouch(first.key, second.key, 4), vouch(first.key, newest, 9))
    author.create_notes()
    author.write("n1", "of the newest member")
    carry(author, second, file)
    _, taken = carry(second, third, file)
    assert (taken.verdicts, taken.records) == ({"applied": 1}, 1)


def test_a_bundle_for_any_serves_every_member_and_each_acknowledges_it(tmp_path: Path, file: Path) -> None:
    first, second, third = mesh(tmp_path, 3)
    first.write("n1", "Milk")
    second.write("n2", "Bread")
    carry(second, first, file)
    assert export(first, None, file).events == 2
    assert take(second, file).verdicts == {"applied": 1, "duplicate": 1}
    assert take(third, file).verdicts == {"applied": 2}
    carry(second, first, file)
    assert (start(first, second), export(first, None, file).plan.start.cursor) == (2, 0)  # not before all of them
    carry(third, first, file)
    first.write("n3", "Tea")
    assert export(first, None, file).events == 1
    for node in (second, third):
        assert (take(node, file).gap, node.events()) == (False, first.events())


def test_who_is_out_writes_and_takes_nothing(tmp_path: Path, file: Path) -> None:
    first, second, third = mesh(tmp_path, 3)
    second.write("n1", "x")
    export(second, None, file)
    ended = retirement(first.key, second.key, START_MS + 10, cutoff=START_MS)
    first.time.now_ms += 20
    first.admit(ended)
    with pytest.raises(MembershipError, match="was retired"):
        take(first, file)
    with pytest.raises(MembershipError, match="no member"):
        export(first, second, file)
    second.admit(ended)
    with pytest.raises(MembershipError, match="retired"):
        export(second, None, file)
    export(third, None, file)
    with pytest.raises(MembershipError, match="retired"):
        take(second, file)


def test_positions_taken_out_on_purpose_are_passed(tmp_path: Path, file: Path) -> None:
    left, right = mesh(tmp_path, 2)
    left.write("n1", "superseded")
    left.write("n1", "newest")
    sweep = retention.compaction(left.context, *NOTES)
    while sweep.step():
        pass
    pages, taken = carry(left, right, file)
    assert (pages.events, taken.verdicts, right.rows()) == (1, {"applied": 1}, {"n1": "newest"})


def test_bundles_that_cross_go_on_from_one_another(tmp_path: Path) -> None:
    """Both write before either reads: what the other says it holds is always one bundle old by then."""
    left, right = mesh(tmp_path, 2)
    for number in range(5):
        left.write(f"l{number}", "Milk")
        right.write(f"r{number}", "Bread")
        events = [export(left, right, tmp_path / "l").events, export(right, left, tmp_path / "r").events]
        taken = [take(right, tmp_path / "l"), take(left, tmp_path / "r")]
        assert [each.gap for each in taken] == [False, False], number
        assert number < 2 or max(events) <= 5, number
    assert left.events() == right.events()

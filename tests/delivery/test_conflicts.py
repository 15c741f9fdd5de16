"""The conflict ledger: concurrent writes of one cell are kept at both authors, sequential ones at none (NEOTH)."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.bundles import carry
from support.pair import NOTES, Node, Wire, mesh, settle
from support.records import site_key, vouch

from meshnode.engine import identity
from meshnode.engine.check_conflicts import check_conflicts
from meshnode.engine.conflicts import acknowledge, resolve
from meshnode.engine.findings import Findings
from meshnode.engine.write import LocalChange, write_changes
from meshnode.errors import NotFoundError, UsageError
from meshnode.model.conflict import Status
from meshnode.store import conflicts
from meshnode.store.conflicts import Conflict


def ledger(node: Node) -> list[Conflict]:
    with node.context.transaction() as tx:
        return [each for each in conflicts.all_of(tx) if each.status is not Status.AGREED]


def unresolved(node: Node) -> list[tuple[str | None, object, object, bool]]:
    """Column, our value, theirs, and whether it is certain."""
    found = [each for each in ledger(node) if each.status is Status.OPEN]
    return [(each.column, each.ours.value, each.theirs.value, each.certain) for each in found]


def states(node: Node) -> list[str]:
    return [each.status.value for each in ledger(node)]


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Node, Node]:
    left, right = mesh(tmp_path, 2)
    link(left, right)
    return left, right


def link(left: Node, right: Node) -> None:
    """Link them until all is quiet, and cut them off again."""
    wire = Wire(left, right)
    wire.settle()
    wire.cut()


def test_concurrent_writes_of_one_cell_are_kept_at_both_authors(pair: tuple[Node, Node]) -> None:
    left, right = pair
    left.write("n1", "Milk")
    right.time.now_ms += 1
    right.write("n1", "Oat milk")
    link(left, right)
    assert unresolved(left) == [("title", "Milk", "Oat milk", True)]
    assert unresolved(right) == [("title", "Oat milk", "Milk", True)]
    assert ledger(left)[0].id == ledger(right)[0].id


def renew(node: Node, voucher: Node, number: int) -> bytes:
    """`identity renew`; the site that the device was before."""
    before, key = node.key, site_key(number)
    record = vouch(voucher.key, key, 1000 + node.time.now_ms)
    identity.become(node.context, key, voucher.site, [record], bytes([number]) * 16)
    node.context.db.close()
    node.key = key
    node.open()
    voucher.admit(record)
    return before.site


@pytest.mark.parametrize("prefer", ["old self", "peer"])
def test_a_conflict_outlives_the_site_that_it_was_recorded_as(pair: tuple[Node, Node], prefer: str) -> None:
    right, left = pair  # who may vouch is the one that stays
    left.write("n1", "Milk")
    right.time.now_ms += 1
    right.write("n1", "Oat milk")
    link(left, right)
    before = renew(left, right, 9)
    link(left, right)
    assert unresolved(left) == [("title", "Milk", "Oat milk", True)]
    (conflict,) = ledger(left)
    with pytest.raises(UsageError, match="no value in this conflict"):
        resolve(left.context, conflict.id, left.site)
    resolve(left.context, conflict.id, before if prefer == "old self" else right.site)
    link(left, right)
    assert states(left) == ["resolved"]
    assert left.rows() == right.rows() == {"n1": "Milk" if prefer == "old self" else "Oat milk"}
    findings = Findings()
    with left.context.transaction() as tx:
        check_conflicts(tx, findings)
    assert findings.differences == []


def test_what_a_peer_wrote_knowing_our_old_write_is_no_certain_conflict_after_a_renewal(
    pair: tuple[Node, Node], tmp_path: Path
) -> None:
    right, left = pair
    left.write("n1", "Milk")
    right.time.now_ms += 1
    right.write("n1", "Oat milk")
    link(left, right)
    right.time.now_ms += 1
    right.write("n1", "both")  # it had ours
    right.time.now_ms += 1
    left.write("n2", "old self")
    renew(left, right, 9)
    carry(right, left, tmp_path / "bundle")  # before anything went out as another site
    assert [each[3] for each in unresolved(left)] == [False]
    link(left, right)
    left.time.now_ms += 1
    right.write("n1", "once more")
    link(left, right)
    assert unresolved(left) == []
    right.write("n2", "the peer's")
    link(left, right)
    assert unresolved(left) == unresolved(right) == []


def test_what_was_seen_or_is_the_same_is_no_conflict(pair: tuple[Node, Node]) -> None:
    left, right = pair
    left.write("n1", "Milk")
    link(left, right)
    right.write("n1", "Oat milk")
    link(left, right)
    left.write("n1", "Soy milk")
    left.write("n1", "Rice milk")
    left.write("n2", "the same")
    right.write("n2", "the same")
    right.write("n3", "alone")
    right.write("n3", "alone, again")
    link(left, right)
    assert ledger(left) == ledger(right) == []
    assert left.rows() == right.rows() == {"n1": "Rice milk", "n2": "the same", "n3": "alone, again"}


def test_a_later_write_that_still_had_not_seen_ours_takes_the_earlier_ones_place(pair: tuple[Node, Node]) -> None:
    left, right = pair
    left.write("n1", "a1")
    wire = Wire(left, right)
    right.write("n1", "b1")
    right.write("n1", "b2")
    wire.settle()
    assert unresolved(left) == [("title", "a1", "b2", True)]
    assert unresolved(right) == [("title", "b2", "a1", True)]


def test_a_later_write_by_one_who_has_both_ends_it_at_both(pair: tuple[Node, Node]) -> None:
    left, right = pair
    left.write("n1", "a1")
    right.write("n1", "b1")
    link(left, right)
    assert len(unresolved(left)) == len(unresolved(right)) == 1
    left.write("n1", "both")
    link(left, right)
    assert states(left) == states(right) == ["resolved"]


@pytest.mark.parametrize("first", ["left", "right"])
def test_a_delete_against_a_concurrent_write_is_a_conflict_about_the_row(pair: tuple[Node, Node], first: str) -> None:
    left, right = pair
    left.write("n1", "Milk")
    link(left, right)
    order = [lambda: left.write("n1", None), lambda: right.write("n1", "Oat milk")]
    for write in order if first == "left" else reversed(order):
        write()
        left.time.now_ms += 1
    link(left, right)
    assert unresolved(left) == [(None, None, {"title": "Oat milk"}, True)]
    assert unresolved(right) == [(None, {"title": "Oat milk"}, None, True)]
    assert left.rows() == right.rows() == ({"n1": "Oat milk"} if first == "left" else {})


def test_two_concurrent_deletes_are_none(pair: tuple[Node, Node]) -> None:
    left, right = pair
    left.write("n1", "Milk")
    link(left, right)
    left.write("n1", None)
    right.write("n1", None)
    link(left, right)
    assert ledger(left) == ledger(right) == []


def test_preferring_a_side_is_an_ordinary_write_that_ends_it_at_the_other_author_too(pair: tuple[Node, Node]) -> None:
    left, right = pair
    left.write("n1", "Milk")
    right.time.now_ms += 1
    right.write("n1", "Oat milk")
    link(left, right)
    (conflict,) = ledger(left)
    done = resolve(left.context, conflict.id, left.site)
    assert done.event is not None
    assert done.event.columns == {"title": "Milk"}
    left.grew()
    link(left, right)
    assert left.rows() == right.rows() == {"n1": "Milk"}
    assert states(left) == states(right) == ["resolved"]
    assert (ledger(left)[0].ours.value, ledger(left)[0].theirs.value) == ("Milk", "Oat milk")


def test_preferring_what_shows_already_writes_nothing(pair: tuple[Node, Node]) -> None:
    left, right = pair
    left.write("n1", "Milk")
    right.time.now_ms += 1
    right.write("n1", None) if right.rows() else right.write("n1", "Oat milk")
    link(left, right)
    (conflict,) = ledger(left)
    with pytest.raises(UsageError, match="has no value in this conflict"):
        resolve(left.context, conflict.id, bytes(16))
    assert resolve(left.context, conflict.id, right.site).event is None
    with pytest.raises(UsageError, match="is over"):
        resolve(left.context, conflict.id, right.site)
    with pytest.raises(NotFoundError, match="no conflict has the id"):
        resolve(left.context, bytes(16), right.site)
    assert states(left) == ["resolved"]
    assert states(right) == ["open"]  # nobody wrote, so nobody heard


@pytest.mark.parametrize("prefer", ["delete", "write"])
def test_a_rows_existence_is_resolved_by_a_delete_or_by_all_that_was_written(
    pair: tuple[Node, Node], prefer: str
) -> None:
    left, right = pair
    left.write("n1", "Milk")
    link(left, right)
    right.write("n1", "Oat milk")
    right.time.now_ms += 1
    left.write("n1", None)
    link(left, right)
    (conflict,) = ledger(right)
    resolve(right.context, conflict.id, left.site if prefer == "delete" else right.site)
    link(left, right)
    assert left.rows() == right.rows() == ({} if prefer == "delete" else {"n1": "Oat milk"})
    assert states(right) == ["resolved"]


def test_an_acknowledged_pair_stays_so_and_another_one_opens(pair: tuple[Node, Node]) -> None:
    left, right = pair
    left.write("n1", "Milk")
    right.time.now_ms += 1
    right.write("n1", "Oat milk")
    link(left, right)
    acknowledge(left.context, ledger(left)[0].id)
    assert unresolved(left) == []
    left.lose(left.backup())  # the peer's stream comes again from its beginning
    link(left, right)
    assert states(left) == ["acknowledged"]
    left.write("n1", "a2")
    right.write("n1", "b2")
    link(left, right)
    assert states(left) == ["acknowledged", "open"]


def test_a_relay_records_nothing_and_who_hears_by_it_calls_it_possible(tmp_path: Path) -> None:
    left, middle, right = mesh(tmp_path, 3)
    wires = [Wire(left, middle), Wire(middle, right)]
    settle(wires)
    left.write("n1", "Milk")
    settle(wires)
    right.write("n1", "Oat milk")  # it has seen Milk, which no ack tells on the left
    settle(wires)
    assert ledger(middle) == ledger(right) == []
    assert unresolved(left) == [("title", "Milk", "Oat milk", False)]
    for wire in wires:
        wire.cut()


def test_who_may_have_read_ours_in_a_bundle_is_not_certain_not_to_have_seen_it(
    pair: tuple[Node, Node], tmp_path: Path
) -> None:
    left, right = pair
    left.write("n1", "Milk")
    carry(left, right, tmp_path / "x.bundle")
    right.write("n1", "Oat milk")  # it has seen Milk; the frame that brings it again is acknowledged only now
    link(left, right)
    assert [certain for *_, certain in unresolved(left)] in ([], [False])
    assert ledger(right) == []


def test_an_ack_that_comes_later_withdraws_what_was_only_possible(pair: tuple[Node, Node]) -> None:
    left, right = pair
    left.write("n1", "Milk")
    wire = Wire(left, right)
    while not right.rows():  # its ack is on the way when the answer overtakes it on the other stream
        for step in wire.steps():
            step()
    right.write("n1", "Oat milk")
    while left.rows() != {"n1": "Oat milk"}:
        for step in [each for each in wire.steps() if each != wire.left.read_control]:
            step()
    assert unresolved(left) == [("title", "Milk", "Oat milk", False)]
    wire.settle()
    assert states(left) == ["withdrawn"]


def test_a_conflict_of_a_restored_copys_own_past_is_not_invented(pair: tuple[Node, Node]) -> None:
    left, right = pair
    copy = left.backup()
    left.write("n1", "a1")
    link(left, right)
    right.write("n1", "b1")
    link(left, right)
    left.write("n1", "a2")
    link(left, right)
    left.lose(copy)
    link(left, right)
    left.time.now_ms += 61_000
    link(left, right)
    assert left.rows() == {"n1": "a2"}
    assert ledger(left) == []


def test_what_a_restored_copy_had_sent_before_is_not_certain_to_be_unseen(pair: tuple[Node, Node]) -> None:
    left, right = pair
    left.write("n1", "a1")
    copy = left.backup()  # nobody has it yet
    link(left, right)
    right.time.now_ms += 1
    right.write("n1", "b1")  # it had ours
    left.lose(copy)
    left.time.now_ms += 61_000
    right.time.now_ms += 61_000
    link(left, right)
    assert left.rows() == right.rows() == {"n1": "b1"}
    assert not any(each.certain for each in ledger(left))


def test_writes_of_a_private_table_are_nobodys_conflict(pair: tuple[Node, Node]) -> None:
    left, _right = pair
    with left.context.transaction() as tx:
        change = LocalChange(*NOTES, {"id": "n1"}, {"title": "x"})
        write_changes(left.context, tx, [change])
    assert ledger(left) == []

"""`check --repair`: what a hand changed is as the log says again, and nothing else is touched."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from support.engines import PLAIN, Bench
from support.mesh_context import TestTime
from support.pair import NOTES, Node, Wire, mesh, settle

from meshnode.engine.check import check_store
from meshnode.engine.findings import Findings
from meshnode.engine.mending import Mending
from meshnode.merge.rows import RowState
from meshnode.model.hlc import Hlc
from meshnode.store import shapes


def checked(bench: Bench) -> Findings:
    found: Findings = bench.read(check_store, sqlite3, bench.membership.key_of)
    return found


def mend(bench: Bench) -> Findings:
    """As the node does: in rounds, until nothing is left that can be mended."""
    found = checked(bench)
    for _ in range(3):
        if found.mendable:
            mending = Mending(bench.engine.context, found.mendable)
            while mending.step():
                pass
            found = checked(bench)
    return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Rows of every kind: live, deleted, written by two, cleared, held."""
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    bench.deliver([bench.event(2, 1, {"id": 1}, {"a": 1, "b": "x"}), bench.event(3, 2, {"id": 1}, {"b": "y", "z": 1})])
    bench.deliver([bench.event(2, 3, {"id": 2}, {"a": 1}), bench.event(2, 4, {"id": 2}, None)])
    bench.deliver([bench.event(2, 5, {"id": 3}, None), bench.event(3, 6, {"id": 3}, {"c": b"c"})])
    bench.deliver([bench.event(3, 7, {"id": 3}, {"c": 1}, table="absent")])
    return bench


def contents(bench: Bench) -> list[object]:
    return [
        bench.sql("SELECT * FROM t ORDER BY id"),
        bench.sql("SELECT * FROM meshnode_rows ORDER BY 1, 2"),
        bench.sql("SELECT * FROM meshnode_log ORDER BY 1"),
        bench.sql("SELECT * FROM meshnode_log_counts WHERE events > 0 ORDER BY 1, 2, 3"),
        bench.sql("SELECT * FROM meshnode_held WHERE events > 0 ORDER BY 1, 2"),
        bench.sql("SELECT name, value FROM meshnode_meta WHERE name IN ('next_position', 'clock') ORDER BY 1"),
    ]


BY_HAND: dict[str, Callable[[Bench], object]] = {
    "nothing": lambda b: None,
    "value": lambda b: b.sql("UPDATE t SET a = 2 WHERE id = 1"),
    "value type": lambda b: b.sql("UPDATE t SET a = 1.0 WHERE id = 1"),
    "value nobody wrote": lambda b: b.sql("UPDATE t SET c = 7 WHERE id = 1"),
    "row gone": lambda b: b.sql("DELETE FROM t WHERE id = 3"),
    "row back": lambda b: b.sql("INSERT INTO t (id) VALUES (2)"),
    "clocks gone": lambda b: b.sql("DELETE FROM meshnode_rows WHERE reason IS NULL"),
    "clocks unreadable": lambda b: b.sql("UPDATE meshnode_rows SET state = x'c1'"),
    "clocks": lambda b: b.sql("UPDATE meshnode_rows SET state = ?", RowState(b"\xff" * 64).pack()),
    "event's clock": lambda b: b.sql("UPDATE meshnode_log SET logical = 9 WHERE position = 1"),
    "event's table": lambda b: b.sql("UPDATE meshnode_log SET table_no = 9 WHERE position = 7"),
    "position": lambda b: b.sql("UPDATE meshnode_meta SET value = 3 WHERE name = 'next_position'"),
    "clock": lambda b: b.sql("UPDATE meshnode_meta SET value = zeroblob(16) WHERE name = 'clock'"),
    "meter": lambda b: b.sql("UPDATE meshnode_held SET events = 5"),
    "counters": lambda b: b.sql("UPDATE meshnode_log_counts SET events = events + 3, unresolved = 1"),
    "counters gone": lambda b: b.sql("DELETE FROM meshnode_log_counts"),
}


@pytest.mark.parametrize("kind", BY_HAND)
def test_what_a_hand_changed_is_as_the_log_says_again(bench: Bench, kind: str) -> None:
    before = contents(bench)
    BY_HAND[kind](bench)
    assert (checked(bench).count > 0) == (kind != "nothing")
    assert mend(bench).differences == []
    assert contents(bench) == before
    assert ("mended" in bench.notices()) == (kind != "nothing")


def test_a_reader_is_told_of_what_was_mended(bench: Bench) -> None:
    seen = bench.changes()[-1].seq
    bench.sql("UPDATE t SET a = 2, b = 'z' WHERE id = 1")
    mend(bench)
    (change,) = bench.changes(seen)
    assert (change.change.op, change.change.values) == ("upsert", {"a": 1, "b": "y"})


def test_rows_below_a_horizon_stay_as_they_are(bench: Bench) -> None:
    bench.engine.set_horizon("main", "t", Hlc(TestTime().now_ms + 100, 0))
    bench.deliver([bench.event(3, 200, {"id": 1}, {"b": "new"})])
    bench.sql("UPDATE t SET a = 2, b = 'z' WHERE id = 1")
    mend(bench)
    assert bench.sql("SELECT * FROM t WHERE id = 1") == [(1, 2, "new", None)]  # nothing tells what `a` was


def test_a_table_that_went_away_is_left_to_whoever_makes_it_again(bench: Bench) -> None:
    bench.sql("DROP TABLE t")
    assert [each.where for each in mend(bench).differences] == ["table"]


def test_it_begins_again_where_a_trigger_undid_a_step(bench: Bench) -> None:
    bench.sql("UPDATE t SET a = 2 WHERE id = 1")
    bench.sql("DELETE FROM t WHERE id = 3")
    bench.sql("CREATE TRIGGER no BEFORE UPDATE ON t WHEN new.b = 'y' BEGIN SELECT RAISE(ROLLBACK, 'no'); END")
    mend(bench)
    assert bench.sql("SELECT id FROM t") == [(3,)]  # the other is withheld, and says so
    assert "withheld" in bench.notices()


# --- events that the log has lost


def devices(folder: Path, count: int) -> list[Node]:
    nodes = mesh(folder, count)
    for node in nodes:
        with node.context.transaction() as tx:
            destination = node.context.destination(tx, node.context.tables.entry(tx, *NOTES))
            assert destination is not None
            shapes.write_shape(tx, destination.no, shapes.shape_of(destination))
    return nodes


def look(node: Node) -> Findings:
    with node.context.transaction() as tx:
        return check_store(tx, sqlite3, node.context.membership.key_of)


def repair(node: Node) -> None:
    mending = Mending(node.context, look(node).mendable)
    while mending.step():
        pass
    node.ask()
    node.grew()


LOST: dict[str, str] = {
    "gone": "DELETE FROM meshnode_log WHERE event = ?",
    "damaged": "UPDATE meshnode_log SET event = CAST(substr(event, 1, 200) AS BLOB) WHERE event = ?",
    "forged": "UPDATE meshnode_log SET event = substr(event, 1, length(event) - 1) || x'00' WHERE event = ?",
}


@pytest.mark.parametrize("how", LOST)
@pytest.mark.parametrize("whose", ["its own", "another's"])
def test_a_lost_event_stops_no_stream_for_good_and_comes_again(tmp_path: Path, how: str, whose: str) -> None:
    first, second, third = devices(tmp_path, 3)
    wire = Wire(first, second)
    written = [(first if whose == "another's" else second).write("row", title) for title in ("old", "new")]
    wire.settle()
    event = written[-1]
    second.query(LOST[how], event.data)

    onward = Wire(second, third)
    onward.settle()
    assert "new" not in third.rows().values()
    assert any("check --repair" in notice.text for notice in second.notices) or how == "forged"
    repair(second)
    settle([wire, onward])
    second.time.now_ms += 60_000
    for each in (wire.left, wire.right, onward.left, onward.right):
        each.timer()
    settle([wire, onward])
    assert third.rows() == second.rows() == first.rows() == {"row": "new"}
    assert {each.data for each in written} == second.events()
    assert look(second).differences == []


def test_what_nobody_else_has_stays_named_and_the_stream_goes_on(tmp_path: Path) -> None:
    first, second = devices(tmp_path, 2)
    first.write("a", "lost")
    first.write("b", "kept")
    first.query("DELETE FROM meshnode_log WHERE position = 1")
    wire = Wire(first, second)
    wire.settle()
    assert second.rows() == {}
    repair(first)
    wire.cut()
    wire = Wire(first, second)
    wire.settle()
    assert second.rows() == {"b": "kept"}
    assert first.rows() == {"a": "lost", "b": "kept"}
    left = look(first)
    assert [each.where for each in left.differences] == ['row id="a"']
    first.write("a", "lost")  # what its owner can do: write it again
    wire.settle()
    assert second.rows() == first.rows()
    assert look(first).differences == []

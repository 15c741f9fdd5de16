"""Local writes: one door, one transaction, signed, stamped above everything seen, and told apart from mistakes."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from support.engines import NOTES, PLAIN, Bench, members
from support.records import site_key

from meshnode.engine.registry import TableSpec
from meshnode.engine.write import LocalChange
from meshnode.errors import MeshError, NotFoundError, StoreError, UsageError
from meshnode.model.hlc import Hlc


def _put(key: dict[str, Any], columns: dict[str, Any] | None, table: str = "t") -> LocalChange:
    return LocalChange("main", table, key, columns)


def _bench(folder: Path, **options: Any) -> Bench:
    bench = Bench(folder, **options)
    bench.engine.register_table(PLAIN)
    return bench


def test_a_batch_is_ordered_signed_and_readable(tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    events = bench.engine.write([_put({"id": 1}, {"a": 1}), _put({"id": 1}, {"b": 2}), _put({"id": 2}, {"a": True})])
    assert [event.hlc.logical for event in events] == [0, 1, 2]
    assert bench.get({"id": 1}) == {"a": 1, "b": 2}
    assert bench.get({"id": 2}) == {"a": 1}
    other = Bench(tmp_path, own=2, name="other.db")
    other.engine.register_table(PLAIN)
    assert other.deliver(events, peer=1) == ["applied"] * 3
    assert other.digest() == bench.digest()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (_put({"id": 1}, {"a": 1}, "nowhere"), NotFoundError, "'nowhere' is not registered"),
        (_put({"id": 1}, {"z": 1}), UsageError, "no column 'z'"),
        (_put({"id": 1}, {"A": 1}), UsageError, "no column 'A'"),
        (_put({"id": 1}, {"id": 1}), UsageError, "part of the key"),
        (_put({}, {"a": 1}), UsageError, "exactly the key columns id"),
        (_put({"id": 1, "a": 2}, {}), UsageError, "exactly the key columns id"),
        (_put({"id": None}, {}), UsageError, "key"),
        (_put({"id": 1.5}, {}), UsageError, "key"),
        (_put({"id": True}, {}), UsageError, "key"),
        (_put({"id": 2**63}, {}), UsageError, "64-bit"),
        (_put({"id": 1}, {"a": float("nan")}), UsageError, "finite"),
        (_put({"id": 1}, {"a": [1]}), UsageError, "'a'"),
        (_put({"id": 1}, {"a": 2**63}), UsageError, "64-bit"),
        (_put({"id": 1}, {"a": "\ud800"}), UsageError, "surrogate"),
        (_put({"id": "\ud800"}, {"a": 1}), UsageError, "surrogate"),
        (_put({"id": 1}, {"a": "x" * 2**20}), UsageError, "limit"),
        (_put({"id": 1}, None), NotFoundError, "no row"),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(
    change: LocalChange, error: type[MeshError], message: str, tmp_path: Path
) -> None:
    bench = _bench(tmp_path)
    with pytest.raises(error, match=message):
        bench.engine.write([_put({"id": 9}, {"a": 1}), change])
    assert bench.sql("SELECT count(*) FROM meshnode_log") == [(0,)]
    assert bench.sql("SELECT count(*) FROM t") == [(0,)]
    assert bench.engine.write([_put({"id": 9}, {"a": 1})])


def test_strict_column_and_affinity_of_keys(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.sql("CREATE TABLE t (id TEXT PRIMARY KEY, n INTEGER) STRICT")
    bench.engine.register_table(TableSpec("main", "t"))
    with pytest.raises(UsageError, match=r"'n'.*INTEGER"):
        bench.engine.write([_put({"id": "x"}, {"n": "text"})])
    with pytest.raises(UsageError, match="id TEXT"):
        bench.engine.write([_put({"id": 5}, {"n": 1})])


def test_a_device_that_may_not_write_is_told(tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    bench.membership = members([site_key(1).public_key], {site_key(1).site: "reader"})
    bench.engine.context.set_membership(bench.membership)
    with pytest.raises(UsageError, match="is a reader"):
        bench.engine.write([_put({"id": 1}, {})])
    assert bench.rows() == {}


def test_the_clock_survives_restart_and_a_wall_clock_that_steps_back(tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    first = bench.engine.write([_put({"id": 1}, {"a": 1})])[0]
    bench.time.now_ms -= 3_600_000
    bench.reopen()
    second = bench.engine.write([_put({"id": 1}, {"a": 2})])[0]
    assert second.hlc == Hlc(first.hlc.physical, first.hlc.logical + 1)
    assert bench.get({"id": 1}) == {"a": 2}
    assert "clock-behind" in bench.notices()


def test_a_stale_clock_beside_a_newer_log_starts_above_both(tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    bench.deliver([bench.event(2, 90_000, {"id": 1}, {"a": 1})])
    bench.engine.close()
    bench.sql("DELETE FROM meshnode_meta WHERE name = 'clock'")
    bench.reopen()
    assert bench.engine.write([_put({"id": 1}, {"a": 2})])[0].hlc > Hlc(bench.time.now_ms + 90_000, 0)


def test_what_was_seen_is_below_the_next_write(tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    ahead = bench.event(2, (bench.time.now_ms + 1000, 2**64 - 1), {"id": 1}, {"a": 1})
    assert bench.deliver([ahead]) == ["applied"]
    own = bench.engine.write([_put({"id": 1}, {"a": 2})])[0]
    assert own.hlc > ahead.hlc
    assert own.hlc.physical == ahead.hlc.physical + 1  # the logical counter carried over
    assert bench.get({"id": 1}) == {"a": 2}


def test_a_failing_transaction_takes_its_memory_with_it(tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    bench.engine.write([_put({"id": 1}, {"a": 1})])
    clock = bench.engine.context.clock

    def fail_at(point: str) -> None:
        if point == "COMMIT":
            raise sqlite3.OperationalError("disk I/O error")

    bench.fault = fail_at
    with pytest.raises(StoreError, match="nothing of this batch was kept"):
        bench.engine.write([_put({"id": 2}, {"a": 1})])
    with pytest.raises(StoreError):
        bench.deliver([bench.event(2, 5, {"id": 3}, {"a": 1}, table="new"), bench.event(2, 6, {"id": 3}, {"a": 1})])
    bench.fault = lambda _point: None
    again = bench.engine.write([_put({"id": 2}, {"a": 2})])[0]
    assert again.hlc == Hlc(clock.physical, clock.logical + 1)
    assert bench.deliver([bench.event(2, 6, {"id": 3}, {"a": 1})]) == ["applied"]
    assert [row[0] for row in bench.sql("SELECT position FROM meshnode_log ORDER BY 1")] == [1, 2, 3]


class _StopAt:
    """A fault hook that stops the node at one statement."""

    def __init__(self, statement: int) -> None:
        self._left = statement

    def __call__(self, _point: str) -> None:
        if self._left == 0:
            self._left = -1
            raise sqlite3.OperationalError("stopped")
        self._left -= 1


def test_every_statement_may_fail_and_nothing_is_half_done(tmp_path: Path) -> None:
    """The fault hook stops a delivery at each of its statements; afterwards the same delivery succeeds."""
    bench = _bench(tmp_path)
    bench.deliver([bench.event(2, 1, {"id": 1}, {"a": 1})])
    events = [bench.event(3, 2, {"id": 1}, {"a": 2}), bench.event(3, 3, {"id": 2}, None), bench.event(3, 4, {}, {})]
    counts = "SELECT (SELECT count(*) FROM meshnode_log), (SELECT count(*) FROM meshnode_notices)"
    before = bench.sql(counts)
    stopped = 0
    while True:
        fault = _StopAt(stopped)
        bench.fault = fault
        try:
            verdicts = bench.deliver(events, peer=3)
            break
        except StoreError:
            bench.fault = lambda _point: None
        assert bench.sql(counts) == before
        stopped += 1
    assert stopped > 10
    assert verdicts == ["applied", "applied", "dropped:empty-key"]
    assert bench.get({"id": 1}) == {"a": 2}


def test_positions_are_never_used_again(tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    bench.engine.write([_put({"id": 1}, {"a": n}) for n in range(3)])
    bench.engine.close()
    bench.sql("DELETE FROM meshnode_log")
    bench.reopen()
    bench.engine.write([_put({"id": 1}, {"a": 9})])
    assert bench.sql("SELECT position FROM meshnode_log") == [(4,)]


def test_changes_tell_what_happened_in_order(tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    bench.engine.write([_put({"id": 1}, {"a": 1, "b": 1})])
    bench.engine.write([_put({"id": 1}, {"a": 2})])
    bench.deliver([bench.event(2, -5, {"id": 1}, {"a": 0})])  # loses: nobody sees anything
    bench.engine.write([_put({"id": 1}, None)])
    bench.engine.write([_put({"id": 1}, {"c": b"x"})])
    found = bench.changes()
    assert [(each.seq, each.change.op, each.change.values) for each in found] == [
        (1, "upsert", {"a": 1, "b": 1}),
        (2, "upsert", {"a": 2}),
        (3, "delete", {}),
        (4, "resurrect", {"c": b"x"}),
    ]
    assert {tuple(each.key.items()) for each in found} == {(("id", 1),)}
    assert bench.changes(3) == found[3:]


def test_read_only_tools_have_no_key(tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    bench.engine.context.key = None
    with pytest.raises(UsageError, match="site key"):
        bench.engine.write([_put({"id": 1}, {})])


def test_another_nodes_database_is_refused(tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    bench.engine.close()
    bench.key = site_key(2)
    with pytest.raises(StoreError, match="another site"):
        bench.reopen()


def test_digest_is_spelled_as_documented(tmp_path: Path) -> None:
    import cbor2
    from blake3 import blake3

    bench = Bench(tmp_path)
    bench.engine.register_table(NOTES)
    bench.engine.write([_put({"id": "b"}, {"title": "x", "rank": 1.5, "done": True}, "notes")])
    bench.engine.write([_put({"id": "a"}, {"title": "gone"}, "notes"), _put({"id": "c"}, {"n": 1}, "notes")])
    bench.engine.write([_put({"id": "c"}, None, "notes"), _put({"id": "a"}, {"note": None}, "notes")])
    bench.engine.write([_put({"id": "c"}, {"blob": b"z"}, "notes")])
    cleared = {"blob": b"z", "n": None, "done": None, "note": None, "rank": None, "title": None}
    rows = [
        [{"id": "a"}, {"title": "gone", "note": None}],
        [{"id": "b"}, {"title": "x", "rank": 1.5, "done": 1}],
        [{"id": "c"}, cleared],
    ]
    assert bench.digest("notes") == (blake3(cbor2.dumps(rows, canonical=True)).digest(), 3)

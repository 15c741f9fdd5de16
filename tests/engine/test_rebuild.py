"""SSP/1 §13.4, profile §5: rows recomputed from the retained log, and what the horizon keeps out of it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from support.engines import PLAIN, Bench

from meshnode.engine.rebuild import Choice, Rebuild
from meshnode.engine.registry import required
from meshnode.model.hlc import Hlc


def rebuild(bench: Bench, keys: Collection[bytes] | None = None) -> int:
    """Step by step, each in a transaction of its own; returns how many rows of SQL changed."""
    context = bench.engine.context
    choice: Choice | None = None if keys is None else lambda key, _state: key in keys
    work = context.transact(lambda tx: Rebuild(context, tx, *required(context, tx, "main", "t"), choice))
    while context.transact(work.step):
        pass
    return work.rewritten


def _filled(folder: Path) -> Bench:
    bench = Bench(folder)
    bench.engine.register_table(PLAIN)
    events = [bench.event(2, n, {"id": n % 40}, {"a": n, "b": str(n)} if n % 3 else {"c": n}) for n in range(300)]
    events += [bench.event(3, 300 + n, {"id": n}, None) for n in range(0, 40, 5)]
    events += [bench.event(3, 400 + n, {"id": n}, {"c": "back"}) for n in range(0, 40, 10)]
    bench.deliver(events)
    return bench


def test_rebuilding_what_is_right_changes_nothing(tmp_path: Path) -> None:
    bench = _filled(tmp_path)
    before = bench.digest(), len(bench.changes()), bench.sql("SELECT * FROM meshnode_rows")
    assert rebuild(bench) == 0
    assert rebuild(bench, list(bench.rows())) == 0
    assert (bench.digest(), len(bench.changes()), bench.sql("SELECT * FROM meshnode_rows")) == before


def test_lost_rows_and_lost_clocks_come_back(tmp_path: Path) -> None:
    bench = _filled(tmp_path)
    before = bench.digest(), bench.sql("SELECT * FROM t ORDER BY id"), bench.sql("SELECT * FROM meshnode_rows")
    bench.sql("DELETE FROM t WHERE id % 2")
    assert rebuild(bench) == 20 - 4  # of the odd ones four are deleted
    bench.sql("DELETE FROM meshnode_rows")
    rebuild(bench)
    after = bench.digest(), bench.sql("SELECT * FROM t ORDER BY id"), bench.sql("SELECT * FROM meshnode_rows")
    assert after == before


def test_events_that_left_the_log_leave_the_rows(tmp_path: Path) -> None:
    bench = _filled(tmp_path)
    number = bench.sql("SELECT DISTINCT site_no FROM meshnode_log ORDER BY position DESC LIMIT 1")[0][0]
    kept = [data for (data,) in bench.sql("SELECT event FROM meshnode_log WHERE site_no <> ?", number)]
    fresh = Bench(tmp_path, name="fresh.db")
    fresh.engine.register_table(PLAIN)
    fresh.deliver(kept)
    bench.sql("DELETE FROM meshnode_log WHERE site_no = ?", number)
    rebuild(bench, [key for (key,) in bench.sql("SELECT key FROM meshnode_rows")])
    assert bench.digest() == fresh.digest()
    assert bench.sql("SELECT * FROM t ORDER BY id") == fresh.sql("SELECT * FROM t ORDER BY id")
    assert bench.sql("SELECT key, state FROM meshnode_rows") == fresh.sql("SELECT key, state FROM meshnode_rows")


def test_below_the_horizon_stays_as_given_and_feeds_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    start = bench.time.now_ms
    bench.deliver([bench.event(2, 1, {"id": 1}, {"a": "old", "b": "old"}), bench.event(2, 1, {"id": 2}, {"a": "old"})])
    bench.deliver([bench.event(3, 50, {"id": 1}, {"b": "new"})])
    bench.engine.set_horizon("main", "t", Hlc(start + 10, 0))
    assert rebuild(bench) == 0
    assert bench.get({"id": 1}) == {"a": "old", "b": "new"}
    bench.sql("DELETE FROM meshnode_log WHERE position = 3")  # taken back: what it replaced lies below the horizon
    assert rebuild(bench) == 1
    assert bench.get({"id": 1}) == {"a": "old"}
    assert "row (1,)" in bench.notices()["partial"].sample
    bench.sql("DELETE FROM meshnode_rows")  # nothing is given any more, and the old bytes feed nothing
    rebuild(bench)
    assert bench.rows() == {}

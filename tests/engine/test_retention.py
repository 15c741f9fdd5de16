"""Horizons, eviction, rehydration and compaction over a real database (profile §5; SSP/1 §13.4, §13.5)."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.engines import PLAIN, Bench
from support.mesh_context import TestTime
from support.records import site_key

from meshnode.codec import cbor
from meshnode.engine import retention
from meshnode.engine.links import open_link
from meshnode.engine.registry import TableSpec
from meshnode.engine.sweep import Sweep
from meshnode.engine.write import LocalChange
from meshnode.errors import NotFoundError, UsageError
from meshnode.model.delivery import Adopt
from meshnode.model.hlc import ZERO, Hlc
from meshnode.model.wording import time_text
from meshnode.store import inbound, removed
from meshnode.store.delivery import Stream

NOW = TestTime().now_ms
ROW = {"id": "x"}


def run(sweep: Sweep) -> int:
    while sweep.step():
        pass
    sweep.finish()
    return sweep.events


def evict(bench: Bench, before: int, *, everything: bool = False) -> int:
    context = bench.engine.context
    count = run(retention.evict(context, "main", "t", Hlc(NOW + before, 0), everything=everything))
    retention.evicted(context, "main", "t")
    return count


def compact(bench: Bench) -> int:
    return run(retention.compaction(bench.engine.context, "main", "t"))


def log_size(bench: Bench) -> int:
    return int(bench.sql("SELECT count(*) FROM meshnode_log")[0][0])


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    bench.time.now_ms = NOW + 100_000
    return bench


def filled(bench: Bench) -> Bench:
    """Row x: a written three times, b once and first; row y written once and deleted."""
    events = [
        bench.event(2, 10, ROW, {"a": 1, "b": "first"}),
        bench.event(2, 20, ROW, {"a": 2}),
        bench.event(2, 30, ROW, {"a": 3}),
        bench.event(2, 40, {"id": "y"}, {"a": 1}),
        bench.event(2, 50, {"id": "y"}, None),
    ]
    assert set(bench.deliver(events)) == {"applied"}
    return bench


def test_eviction_changes_no_row_and_keeps_each_row_s_winners(bench: Bench) -> None:
    before = filled(bench).digest()
    assert evict(bench, 60) == 2  # the second write of a, and the write under the delete
    assert (bench.digest(), log_size(bench)) == (before, 3)
    assert bench.get(ROW) == {"a": 3, "b": "first"}


def test_a_joiner_gets_today_s_rows_from_what_is_kept(bench: Bench, tmp_path: Path) -> None:
    evict(filled(bench), 60)
    (tmp_path / "j").mkdir()
    joiner = Bench(tmp_path / "j", own=3)
    joiner.engine.register_table(PLAIN)
    joiner.time.now_ms = NOW + 100_000
    joiner.deliver([each[0] for each in bench.sql("SELECT event FROM meshnode_log ORDER BY position")])
    assert joiner.digest() == bench.digest()


def test_all_takes_the_winners_too_and_rows_stay(bench: Bench) -> None:
    before = filled(bench).digest()
    assert evict(bench, 60, everything=True) == 5
    assert (bench.digest(), log_size(bench)) == (before, 0)
    bench.reopen()
    assert bench.digest() == before


def test_only_what_is_below_the_horizon_goes(bench: Bench) -> None:
    filled(bench)
    assert evict(bench, 20, everything=True) == 1
    assert log_size(bench) == 4  # the event at exactly the horizon is not below it


def test_a_withheld_row_keeps_its_evidence_even_from_all(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.time.now_ms = NOW + 100_000
    bench.sql("CREATE TABLE t (id TEXT PRIMARY KEY NOT NULL, a, b NOT NULL)")
    bench.engine.register_table(TableSpec("main", "t"))
    bench.deliver([bench.event(2, 10, ROW, {"a": "kept"}), bench.event(2, 9, ROW, {"a": "old"})])
    assert bench.get(ROW) is None
    assert evict(bench, 60, everything=True) == 1
    bench.deliver([bench.event(2, 70, ROW, {"b": 1})])
    assert bench.get(ROW) == {"a": "kept", "b": 1}


def test_a_row_that_is_withheld_after_its_evidence_went_comes_back_partial(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.time.now_ms = NOW + 100_000
    bench.sql("CREATE TABLE t (id TEXT PRIMARY KEY NOT NULL, a, b CHECK (b > 0))")
    bench.engine.register_table(TableSpec("main", "t"))
    bench.deliver([bench.event(2, 10, ROW, {"a": "gone", "b": 1})])
    assert evict(bench, 60, everything=True) == 1
    bench.deliver([bench.event(2, 70, ROW, {"b": -1})])
    assert bench.get(ROW) is None
    assert "partial" not in bench.notices()
    bench.deliver([bench.event(2, 80, ROW, {"b": 2})])
    assert bench.get(ROW) == {"a": None, "b": 2}
    partial = bench.notices()["partial"]
    assert 'id="x"' in partial.sample
    assert "values of a" in partial.sample


def test_arrivals_below_the_horizon_count_as_applied_and_write_nothing(bench: Bench) -> None:
    evict(filled(bench), 60)
    size, before = log_size(bench), bench.digest()
    late = bench.event(3, 35, ROW, {"a": "late", "c": 1})
    assert bench.deliver([late, bench.event(2, 20, ROW, {"a": 2})], peer=3) == ["below-horizon", "below-horizon"]
    assert (bench.digest(), log_size(bench)) == (before, size)


def test_removed_positions_are_recorded(bench: Bench) -> None:
    evict(filled(bench), 60)
    gone = bench.read(lambda tx: [each for each in range(1, 7) if removed.is_recorded(tx, each)])
    assert gone == [2, 4]


def test_an_interrupted_eviction_goes_on_after_a_restart(bench: Bench) -> None:
    filled(bench)
    sweep = retention.evict(bench.engine.context, "main", "t", Hlc(NOW + 60, 0))
    sweep.step()
    assert log_size(bench) == 5
    bench.reopen()
    ((entry, again),) = retention.pending(bench.engine.context)
    assert (entry.text, run(again), log_size(bench)) == ("t", 2, 3)
    retention.evicted(bench.engine.context, "main", "t")
    assert retention.pending(bench.engine.context) == []


def test_work_between_the_steps_is_not_lost(bench: Bench) -> None:
    filled(bench)
    sweep = retention.evict(bench.engine.context, "main", "t", Hlc(NOW + 60, 0))
    sweep.step()
    bench.deliver([bench.event(2, 80, ROW, {"a": "meanwhile"})])
    run(sweep)
    assert (bench.get(ROW) or {})["a"] == "meanwhile"
    assert log_size(bench) == 4


def test_a_horizon_only_rises_and_lies_in_the_past(bench: Bench) -> None:
    evict(filled(bench), 60)
    with pytest.raises(UsageError, match="rehydrate"):
        evict(bench, 50)
    with pytest.raises(UsageError, match="past"):
        evict(bench, 200_000)
    with pytest.raises(NotFoundError):
        retention.evict(bench.engine.context, "main", "nowhere", Hlc(1, 0))


def test_a_resurrection_above_a_tombstone_below_the_horizon_is_partial(bench: Bench) -> None:
    evict(filled(bench), 60)
    bench.deliver([bench.event(2, 70, {"id": "y"}, {"a": 2})])
    partial = bench.notices()["partial"]
    assert 'id="y"' in partial.sample
    assert time_text(NOW + 60) in partial.sample
    assert partial.table == "t"


def test_a_resurrection_above_the_horizon_is_not_partial(bench: Bench) -> None:
    evict(filled(bench), 50)  # the tombstone lies at the horizon: complete (SSP/1 §13.4)
    bench.deliver([bench.event(2, 70, {"id": "y"}, {"a": 2})])
    assert "resurrected" in bench.notices()
    assert "partial" not in bench.notices()


def test_own_history_that_was_evicted_is_still_known(bench: Bench) -> None:
    """Watermarks and the clock stand: the node does not take itself for one restored from an old copy."""
    context = bench.engine.context
    (event,) = bench.engine.write([LocalChange("main", "t", ROW, {"a": 1})])
    bench.time.now_ms += 10
    evict(bench, 100_005, everything=True)
    assert log_size(bench) == 0
    bench.reopen()
    state = open_link(bench.engine.context, site_key(2).site, "quic")
    assert dict(state.max_hlc)[context.site] == event.hlc
    assert bench.engine.write([LocalChange("main", "t", ROW, {"a": 2})])[0].hlc > event.hlc


def hear_from(bench: Bench, number: int) -> Stream:
    """A peer whose stream this node holds a part of."""
    context = bench.engine.context
    with context.transaction() as tx:
        stream = Stream(site_key(number).site, context.sites.number(tx, site_key(number).site), "quic")
        inbound.adopt(tx, stream, Adopt(bytes(8), 1, 1))
    return stream


def test_rehydration_drops_the_horizon_and_asks_durably_once(bench: Bench) -> None:
    evict(filled(bench), 60, everything=True)
    stream = hear_from(bench, 2)
    assert retention.rehydrate(bench.engine.context, "main", "t") == 1
    assert retention.rehydrate(bench.engine.context, "main", "t") == 1
    bench.reopen()
    (body,) = bench.read(lambda tx: inbound.requests(tx, stream))
    request = cbor.decode_untrusted(body)
    assert isinstance(request, dict)
    assert (request["what"], request["schema"], request["table"]) == ("table", "main", "t")
    with bench.engine.context.transaction() as tx:
        assert bench.engine.context.tables.entry(tx, "main", "t").horizon == ZERO


def test_a_rehydrated_table_takes_its_history_again(bench: Bench) -> None:
    history = [bench.event(2, 10, ROW, {"a": 1, "b": 2}), bench.event(2, 20, ROW, {"a": 3})]
    bench.deliver(history)
    before = bench.digest()
    evict(bench, 60, everything=True)
    missed = bench.event(3, 30, ROW, {"c": "missed"})
    assert bench.deliver([missed], peer=3) == ["below-horizon"]
    retention.rehydrate(bench.engine.context, "main", "t")
    assert bench.deliver(history) == ["applied", "applied"]
    assert bench.digest() == before
    assert bench.deliver([missed], peer=3) == ["applied"]
    assert (bench.get(ROW) or {})["c"] == "missed"
    assert log_size(bench) == 3


def test_compaction_drops_what_is_superseded_and_changes_no_row(bench: Bench) -> None:
    before = filled(bench).digest()
    assert compact(bench) == 2
    assert (bench.digest(), log_size(bench)) == (before, 3)
    assert compact(bench) == 0
    assert bench.deliver([bench.event(2, 20, ROW, {"a": 2})]) == ["applied"]  # unknown by now, and without effect
    assert bench.digest() == before


def test_compaction_keeps_values_of_columns_that_are_not_here_yet(bench: Bench) -> None:
    bench.deliver([bench.event(2, 10, ROW, {"later": 1}), bench.event(2, 20, ROW, {"a": 2})])
    assert compact(bench) == 0


def test_compaction_keeps_what_a_strict_column_elsewhere_would_show(bench: Bench) -> None:
    """A STRICT INTEGER column ignores the later text and shows the earlier number (profile §5)."""
    bench.deliver([bench.event(2, 10, ROW, {"a": 1}), bench.event(2, 20, ROW, {"a": "text"})])
    assert compact(bench) == 0
    bench.deliver([bench.event(2, 30, ROW, {"a": None})])  # null is taken by every column
    assert compact(bench) == 2

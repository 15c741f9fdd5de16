"""profile §6, §12: what a member can make this node store is bounded, inclusive, and what is over is offered again."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.engines import PLAIN, Bench
from support.records import site_key

from meshnode import limits
from meshnode.engine import judge, progress, retention
from meshnode.model.hlc import Hlc
from meshnode.model.scope import Scope
from meshnode.store import changes, held, notices


def _watermark(bench: Bench, site: int, table: str = "t") -> Hlc | None:
    rows = bench.sql(
        "SELECT w.physical, w.logical FROM meshnode_watermarks AS w JOIN meshnode_sites AS s ON s.no = w.site_no "
        "JOIN meshnode_tables AS t ON t.no = w.table_no WHERE s.site = ? AND t.name = ?",
        site_key(site).site,
        table,
    )
    return Hlc(*rows[0]) if rows else None


def test_skew_bound_is_inclusive_and_own_events_are_exempt(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    edge = limits.SKEW_MS
    events = [
        bench.event(2, edge, {"id": 1}, {}),
        bench.event(2, edge + 1, {"id": 1}, {}),
        bench.event(1, edge + 9, {"id": 1}, {}),
    ]
    assert bench.deliver(events) == ["applied", "rejected:skew", "applied"]
    assert set(bench.notices()) >= {"skew", "clock-behind"}
    assert bench.engine.context.clock >= events[2].hlc
    bench.time.now_ms += 1
    assert bench.deliver([events[1]]) == ["applied"]


def test_watermark_waits_for_rejected_events(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    far = limits.SKEW_MS
    early, low, high = (bench.event(2, clock, {"id": clock}, {}) for clock in (5, far + 1, far + 2))
    bench.deliver([early, low, high])
    assert _watermark(bench, 2) == early.hlc
    bench.time.now_ms += far
    late = bench.event(2, far + 3, {"id": 9}, {})
    bench.deliver([late, high])
    assert _watermark(bench, 2) == early.hlc
    bench.reopen()
    bench.deliver([low])
    assert _watermark(bench, 2) == late.hlc


@pytest.mark.parametrize("first_peer", [2, 3], ids=["claimed", "relayed and not claimed yet"])
def test_a_repeat_that_a_clock_set_back_rejects_opens_nothing(tmp_path: Path, first_peer: int) -> None:
    """Nobody need offer again what is here: whoever repeats it could hold the group back for ever."""
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    known = bench.event(2, 5, {"id": 1}, {})
    assert bench.deliver([known], peer=first_peer) == ["applied"]
    bench.time.now_ms -= 3_600_000
    assert bench.deliver([known], peer=3) == ["rejected:skew"]
    bench.time.now_ms += 3_600_000
    later = bench.event(2, 6, {"id": 1}, {})
    bench.deliver([later])
    assert _watermark(bench, 2) == later.hlc


def test_a_repeat_of_what_was_claimed_opens_nothing_though_it_was_taken_out(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    first, delete = bench.event(2, 5, {"id": 1}, {}), bench.event(2, 6, {"id": 1}, None)
    bench.deliver([first, delete])
    sweep = retention.compaction(bench.engine.context, "main", "t")
    while sweep.step():
        pass
    assert sweep.events == 1
    bench.time.now_ms -= 3_600_000
    assert bench.deliver([first], peer=3) == ["rejected:skew"]
    bench.time.now_ms += 3_600_000
    later = bench.event(2, 7, {"id": 1}, {})
    bench.deliver([later])
    assert _watermark(bench, 2) == later.hlc


def test_watermarks_advance_from_the_authors_own_stream_only(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    own, relayed = bench.event(2, 1, {"id": 1}, {}), bench.event(3, 2, {"id": 1}, {})
    bench.deliver([own, relayed], peer=2)
    assert (_watermark(bench, 2), _watermark(bench, 3)) == (own.hlc, None)
    bench.deliver([bench.event(2, 3, {"id": 1}, {})], peer=3)
    assert _watermark(bench, 2) == own.hlc
    # An older one does not take it back, and what is dropped with attribution advances it.
    bench.deliver([bench.event(2, 0, {"id": 1}, {})])
    assert _watermark(bench, 2) == own.hlc
    empty = bench.event(2, 7, {}, {})
    assert bench.deliver([empty]) == ["dropped:empty-key"]
    assert _watermark(bench, 2) == empty.hlc


def test_held_groups_do_not_advance_until_released(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    first = bench.event(2, 1, {"id": 1}, {})
    bench.deliver([first])
    assert _watermark(bench, 2) == Hlc(0, 0)
    bench.engine.register_table(PLAIN)
    assert _watermark(bench, 2) == first.hlc


def test_held_bytes_are_bounded_per_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path)
    events = [bench.event(2, n, {"id": n}, {"a": "x" * 200}, table="unknown") for n in range(4)]
    size = len(events[0].data)
    assert {len(event.data) for event in events} == {size}
    monkeypatch.setattr(judge, "HELD_BYTES_PER_SITE", 2 * size)
    assert bench.deliver(events[:3]) == ["held", "held", "rejected:quota"]
    assert bench.deliver(events[1:]) == ["duplicate", "rejected:quota", "rejected:quota"]
    assert bench.deliver([bench.event(3, 1, {"id": 1}, {}, table="unknown")]) == ["held"]
    bench.engine.register_table(PLAIN)
    assert bench.deliver([bench.event(2, 9, {"id": 1}, {})]) == ["applied"]
    assert limits.HELD_BYTES_PER_SITE == 64 * 2**20


def test_groups_of_unknown_tables_are_bounded_per_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path)
    monkeypatch.setattr(progress, "UNKNOWN_GROUPS_PER_SITE", 3)
    events = [bench.event(2, n, {"id": 1}, {}, table=f"u{n}") for n in range(5)]
    assert bench.deliver(events) == ["held", "held", "held", "rejected:quota", "rejected:quota"]
    assert bench.deliver([bench.event(2, 9, {"id": 2}, {}, table="u0")]) == ["held"]
    # Names out of scope count as well, but cost the event nothing else.
    bench.deliver([bench.event(3, n, {"id": 1}, {}, table=f"s{n}") for n in range(9)], peer=3, scope=Scope(("main.t",)))
    assert bench.sql("SELECT count(*) FROM meshnode_watermarks WHERE site_no = 2") == [(3,)]
    assert bench.sql("SELECT count(*) FROM meshnode_tables")[0][0] <= 6
    assert limits.UNKNOWN_GROUPS_PER_SITE == 256


def test_notices_are_bounded_per_site_and_in_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path)
    monkeypatch.setattr(notices, "NOTICE_TABLES_PER_SITE", 3)
    names = [f"sqlite_{n}" for n in range(9)]
    events = [bench.event(2, n, {"id": 1}, {}, table=name) for n, name in enumerate(names)]
    assert set(bench.deliver(events)) == {"dropped:reserved-name"}
    found = dict(bench.sql("SELECT table_name, count FROM meshnode_notices"))
    assert found == {"sqlite_0": 1, "sqlite_1": 1, "sqlite_2": 1, notices.OTHER_TABLES: 6}
    monkeypatch.setattr(notices, "NOTICE_ROWS", 4)
    bench.deliver([bench.event(3, n, {}, {}, table="t") for n in range(3)])
    shared = bench.sql("SELECT count FROM meshnode_notices WHERE kind = 'empty-key' AND site = x''")
    assert shared == [(3,)]
    assert limits.NOTICE_ROWS == 10_000


def test_ignored_columns_are_metered_within_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    monkeypatch.setattr(held, "IGNORED_COLUMNS_PER_TABLE", 2)
    bench.deliver([bench.event(2, n, {"id": n}, {f"x{k}": 1 for k in range(5)}) for n in range(3)])
    assert sum(count for (count,) in bench.sql("SELECT count FROM meshnode_ignored")) == 15
    assert bench.sql("SELECT count(*) FROM meshnode_ignored") == [(3,)]


def test_changes_are_trimmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    monkeypatch.setattr(changes, "CHANGES_KEPT", 10)
    monkeypatch.setattr(changes, "_TRIM_EVERY", 4)
    for number in range(40):
        bench.deliver([bench.event(2, number, {"id": number}, {"a": number})])
    kept = [seq for (seq,) in bench.sql("SELECT seq FROM meshnode_changes ORDER BY 1")]
    assert kept[-1] == 40
    assert 10 <= len(kept) <= 14
    assert kept == list(range(kept[0], 41))


def test_one_clock_used_again_and_again(tmp_path: Path) -> None:
    """Each of them is found by its own id, so a hostile member's repeats stay cheap."""
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    events = [bench.event(2, 5, {"id": 1}, {"a": number}) for number in range(300)]
    assert bench.deliver(events[:150]) == ["applied"] * 150
    assert bench.deliver(events) == ["duplicate"] * 150 + ["applied"] * 150
    assert bench.notices()["hlc-reuse"].count == 299
    winner = max(events, key=lambda event: event.rank)
    assert winner.columns is not None
    assert bench.get({"id": 1}) == {"a": winner.columns["a"]}
    plan = bench.sql(
        "EXPLAIN QUERY PLAN SELECT position, event FROM meshnode_log "
        "WHERE site_no = 1 AND physical = 1 AND logical = 1 AND id_prefix = 1"
    )
    assert "id_prefix=?" in plan[0][3]

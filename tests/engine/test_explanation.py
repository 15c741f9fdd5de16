"""Every column of a row is written, cleared or unmaterialized, by a clock that can be named (profile §5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.engines import PLAIN, Bench
from support.mesh_context import START_MS
from support.records import site_key

from meshnode.engine import retention
from meshnode.engine.forget import forget
from meshnode.engine.registry import TableSpec
from meshnode.errors import NotFoundError, UsageError
from meshnode.model.hlc import Hlc
from meshnode.node import reading
from meshnode.node.explaining import explanation
from meshnode.node.jsonvalues import to_json_builtins
from meshnode.node.views import ClockView, RowExplanation, RowView

ROW = {"id": "x"}
NO_VALUE = msgspec.UNSET


def bench_with(folder: Path, sql: str = "") -> Bench:
    bench = Bench(folder)
    if sql:
        bench.sql(sql)
    bench.engine.register_table(TableSpec("main", "t") if sql else PLAIN)
    bench.time.now_ms = START_MS + 100_000
    return bench


def explain(bench: Bench, key: dict[str, Any] = ROW) -> RowExplanation:
    found = bench.read(explanation, "main", "t", key)
    assert isinstance(found, RowExplanation)
    columns = [msgspec.structs.replace(each, clock=_without_id(each.clock)) for each in found.columns]
    ends = {"existence": _without_id(found.existence), "tombstone": _without_id(found.tombstone)}
    return msgspec.structs.replace(found, columns=columns, **ends)


def _without_id(clock: ClockView | None) -> ClockView | None:
    return None if clock is None else msgspec.structs.replace(clock, event="")


def cells(found: RowExplanation) -> list[tuple[str, str, Any]]:
    return [(each.name, each.state, each.value) for each in found.columns]


def clock(site: int, at: int) -> ClockView:
    return ClockView(site=site_key(site).site.hex(), hlc=(START_MS + at, 0))


def get(bench: Bench, key: dict[str, Any] = ROW) -> RowView | None:
    found: RowView | None = bench.read(reading.one_row, "main", "t", key)
    return found


def test_each_column_names_the_write_that_it_comes_from(tmp_path: Path) -> None:
    bench = bench_with(tmp_path)
    bench.deliver([bench.event(2, 3, ROW, {"a": 1, "b": None}), bench.event(2, 9, ROW, {"a": 2})])
    bench.deliver([bench.event(3, 5, ROW, {"a": "late", "b": 3})], peer=3)
    found = explain(bench)
    assert cells(found) == [("a", "written", 2), ("b", "written", 3), ("c", "unmaterialized", NO_VALUE)]
    assert [each.clock for each in found.columns] == [clock(2, 9), clock(3, 5), None]
    assert (found.table, found.key, found.exists, found.withheld, found.reason) == ("t", ROW, True, False, "")
    assert (found.existence, found.tombstone, found.horizon) == (clock(2, 9), None, None)
    assert "value" not in to_json_builtins(found)["columns"][2]


def test_each_clock_names_its_event(tmp_path: Path) -> None:
    bench = bench_with(tmp_path)
    written, removed = bench.event(2, 3, ROW, {"a": 1}), bench.event(3, 2, ROW, None)
    bench.deliver([written])
    bench.deliver([removed], peer=3)
    found = bench.read(explanation, "main", "t", ROW)
    assert [each.clock and each.clock.event for each in found.columns][:2] == [
        written.event_id.hex(),
        removed.event_id.hex(),
    ]
    assert (found.existence.event, found.tombstone.event) == (written.event_id.hex(), removed.event_id.hex())


def test_an_explicit_null_a_cleared_column_and_one_never_written_are_three_things(tmp_path: Path) -> None:
    bench = bench_with(tmp_path)
    bench.deliver([bench.event(2, 1, ROW, {"a": None})])
    assert get(bench) == RowView(key=ROW, columns={"a": None}, unmaterialized=["b", "c"])
    assert cells(explain(bench))[:2] == [("a", "written", None), ("b", "unmaterialized", NO_VALUE)]
    bench.deliver([bench.event(2, 2, ROW, None), bench.event(2, 3, ROW, {"b": None})])
    assert get(bench) == RowView(key=ROW, columns={"a": None, "b": None, "c": None}, cleared=["a", "c"])
    found = explain(bench)
    assert cells(found) == [("a", "cleared", None), ("b", "written", None), ("c", "cleared", None)]
    assert [each.clock for each in found.columns] == [clock(2, 2), clock(2, 3), clock(2, 2)]
    bench.reopen()
    assert explain(bench) == found
    assert bench.read(reading.row_page, "main", "t", 10, None) == [get(bench)]


def test_a_cleared_column_is_null_whatever_somebody_put_into_sql(tmp_path: Path) -> None:
    bench = bench_with(tmp_path)
    bench.deliver([bench.event(2, 2, ROW, None), bench.event(2, 3, ROW, {"b": 1})])
    bench.sql("UPDATE t SET a = 'by hand'")
    assert get(bench) == RowView(key=ROW, columns={"a": None, "b": 1, "c": None}, cleared=["a", "c"])
    assert cells(explain(bench))[0] == ("a", "cleared", None)


def test_a_default_that_sql_shows_is_no_value(tmp_path: Path) -> None:
    bench = bench_with(tmp_path, "CREATE TABLE t (id PRIMARY KEY NOT NULL, a NOT NULL DEFAULT 'd', b)")
    bench.deliver([bench.event(2, 1, ROW, {"b": 1})])
    assert bench.sql("SELECT a, b FROM t") == [("d", 1)]
    assert get(bench) == RowView(key=ROW, columns={"b": 1}, unmaterialized=["a"])
    assert cells(explain(bench)) == [("a", "unmaterialized", NO_VALUE), ("b", "written", 1)]


def test_a_deleted_row_is_explained_by_its_delete(tmp_path: Path) -> None:
    bench = bench_with(tmp_path)
    bench.deliver([bench.event(2, 1, ROW, {"a": 1})])
    bench.deliver([bench.event(3, 2, ROW, None)], peer=3)
    found = explain(bench)
    assert (found.exists, found.withheld, found.existence, found.tombstone) == (False, False, clock(3, 2), clock(3, 2))
    assert cells(found) == [(name, "cleared", None) for name in "abc"]
    assert get(bench) is None


def test_a_losing_delete_is_the_tombstone_and_not_the_existence(tmp_path: Path) -> None:
    bench = bench_with(tmp_path)
    bench.deliver([bench.event(2, 5, ROW, {"a": 1})])
    bench.deliver([bench.event(3, 4, ROW, None)], peer=3)
    found = explain(bench)
    assert (found.exists, found.existence, found.tombstone) == (True, clock(2, 5), clock(3, 4))


def test_a_withheld_row_is_explained_with_its_reason_and_its_values(tmp_path: Path) -> None:
    bench = bench_with(tmp_path, "CREATE TABLE t (id PRIMARY KEY NOT NULL, a NOT NULL, b, c)")
    bench.deliver([bench.event(2, 1, ROW, {"b": True})])
    found = explain(bench)
    assert (found.exists, found.withheld, found.existence) == (False, True, clock(2, 1))
    assert "NOT NULL" in found.reason
    assert cells(found) == [("a", "unmaterialized", NO_VALUE), ("b", "written", 1), ("c", "unmaterialized", NO_VALUE)]


def test_a_value_whose_event_was_evicted_while_sql_did_not_hold_it_is_not_made_up(tmp_path: Path) -> None:
    bench = bench_with(tmp_path, "CREATE TABLE t (id PRIMARY KEY NOT NULL, a, b CHECK (b > 0))")
    bench.deliver([bench.event(2, 10, ROW, {"a": "gone", "b": 1})])
    sweep = retention.evict(bench.engine.context, "main", "t", Hlc(START_MS + 60, 0), everything=True)
    while sweep.step():
        pass
    bench.deliver([bench.event(2, 70, ROW, {"b": -1})])
    found = explain(bench)
    assert cells(found) == [("a", "written", NO_VALUE), ("b", "written", -1)]
    assert (found.withheld, found.columns[0].clock, found.horizon) == (True, clock(2, 10), (START_MS + 60, 0))


def test_a_row_that_somebody_took_out_of_sql_says_so(tmp_path: Path) -> None:
    bench = bench_with(tmp_path)
    bench.deliver([bench.event(2, 1, ROW, {"a": 1})])
    bench.sql("DELETE FROM t")
    found = explain(bench)
    assert (found.exists, found.withheld) == (False, False)
    assert "something other than this node" in found.reason
    assert cells(found)[0] == ("a", "written", 1)


def test_a_deleted_row_that_a_trigger_keeps_says_why(tmp_path: Path) -> None:
    bench = bench_with(tmp_path)
    bench.sql("CREATE TRIGGER kept BEFORE DELETE ON t BEGIN SELECT RAISE(ABORT, 'kept by the application'); END")
    bench.deliver([bench.event(2, 1, ROW, {"a": 1})])
    bench.deliver([bench.event(2, 2, ROW, None)])
    assert bench.sql("SELECT a FROM t") == [(1,)]
    found = explain(bench)
    assert (found.exists, found.withheld, found.existence) == (False, False, clock(2, 2))
    assert "kept by the application" in found.reason
    assert cells(found)[0] == ("a", "cleared", None)


def test_what_was_never_heard_of_or_is_forgotten_has_no_explanation(tmp_path: Path) -> None:
    bench = bench_with(tmp_path)
    bench.deliver([bench.event(2, 1, ROW, {"a": 1})])
    assert bench.read(explanation, "main", "t", {"id": "y"}) is None
    forget(bench.engine.context, "main", "t", ROW)
    assert bench.read(explanation, "main", "t", ROW) is None
    with pytest.raises(UsageError, match="exactly the columns id"):
        bench.read(explanation, "main", "t", {"no": 1})
    with pytest.raises(NotFoundError, match="not registered"):
        bench.read(explanation, "main", "u", ROW)


def test_a_column_view_says_not_null_where_the_table_does(tmp_path: Path) -> None:
    bench = bench_with(
        tmp_path, "CREATE TABLE t (id PRIMARY KEY NOT NULL, a NOT NULL, b NOT NULL DEFAULT 1, c DEFAULT 2)"
    )
    (table,) = bench.read(reading.table_views)
    assert [(each.name, each.not_null) for each in table.columns] == [("a", True), ("b", True), ("c", False)]

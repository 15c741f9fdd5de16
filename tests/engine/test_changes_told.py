"""What a change says of a row: written, cleared and unmaterialized apart, whole where nobody saw it before (§5)."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.engines import PLAIN, Bench, members
from support.mesh_context import START_MS
from support.mirror import Mirror, as_rows, follow, told
from support.records import site_key
from test_taking_back import judge_anew, retired

from meshnode.engine import retention
from meshnode.engine.registry import TableSpec
from meshnode.engine.write import LocalChange
from meshnode.model.hlc import Hlc
from meshnode.node import reading
from meshnode.node.following import begin
from meshnode.node.views import ChangeView
from meshnode.store import changes
from meshnode.store.changes import RowChange

ROW = {"id": "x"}
KEYS = [site_key(number).public_key for number in (1, 2, 3)]


def bench_with(folder: Path, sql: str = "", **more: Any) -> Bench:
    bench = Bench(folder, **more)
    if sql:
        bench.sql(sql)
    bench.engine.register_table(TableSpec("main", "t") if sql else PLAIN)
    bench.time.now_ms = START_MS + 100_000
    return bench


def evict_all(bench: Bench, before: int) -> None:
    sweep = retention.evict(bench.engine.context, "main", "t", Hlc(START_MS + before, 0), everything=True)
    while sweep.step():
        pass
    sweep.finish()


def shape(change: ChangeView) -> tuple[str, bool, dict[str, Any], list[str], list[str]]:
    return change.op, change.exists, change.columns, change.cleared, change.unmaterialized


def test_an_explicit_null_is_told_as_a_value_and_a_cleared_column_as_cleared(tmp_path: Path) -> None:
    bench = bench_with(tmp_path)
    bench.deliver([bench.event(2, 1, ROW, {"a": None, "b": 1})])
    bench.deliver([bench.event(2, 2, ROW, None)])
    bench.deliver([bench.event(2, 3, ROW, {"b": None})])
    assert [shape(each) for each in told(bench)] == [
        ("upsert", True, {"a": None, "b": 1}, [], []),
        ("delete", False, {}, [], []),
        ("resurrect", True, {"a": None, "b": None, "c": None}, ["a", "c"], []),
    ]


def test_the_first_delete_clears_what_nobody_ever_wrote_too(tmp_path: Path) -> None:
    bench = bench_with(tmp_path)
    bench.deliver([bench.event(2, 5, ROW, {"a": 1})])
    bench.deliver([bench.event(3, 4, ROW, None)], peer=3)  # loses: the row stays, and b and c are cleared
    bench.deliver([bench.event(3, 6, ROW, {"b": 2})], peer=3)
    bench.deliver([bench.event(2, 5, {"id": "y"}, {"a": 1}), bench.event(2, 4, {"id": "y"}, None)])
    assert [shape(each) for each in told(bench, 1)] == [
        ("upsert", True, {"b": None, "c": None}, ["b", "c"], []),
        ("upsert", True, {"b": 2}, [], []),
        ("upsert", True, {"a": 1, "b": None, "c": None}, ["b", "c"], []),
    ]
    bench.deliver([bench.event(2, 8, ROW, {"b": 3})])
    bench.deliver([bench.event(3, 7, ROW, None)], peer=3)  # a later losing delete tells what it cleared, and no more
    assert shape(told(bench)[-1]) == ("upsert", True, {"a": None}, ["a"], [])


def test_a_row_that_is_allowed_again_is_told_whole(tmp_path: Path) -> None:
    bench = bench_with(tmp_path, "CREATE TABLE t (id PRIMARY KEY NOT NULL, a NOT NULL, b, c)")
    bench.deliver([bench.event(2, 1, ROW, {"a": 1, "b": True})])
    bench.deliver([bench.event(2, 2, ROW, {"a": None, "c": 3})])
    bench.deliver([bench.event(3, 3, ROW, {"a": 4})], peer=3)
    assert [shape(each) for each in told(bench)] == [
        ("upsert", True, {"a": 1, "b": 1}, [], []),
        ("withhold", False, {}, [], []),
        ("show", True, {"b": 1, "c": 3, "a": 4}, [], []),
    ]


def test_a_row_that_a_schema_change_allows_is_told_whole(tmp_path: Path) -> None:
    bench = bench_with(tmp_path, "CREATE TABLE t (id PRIMARY KEY NOT NULL, a CHECK (a < 10), b, c)")
    bench.deliver([bench.event(2, 1, ROW, None), bench.event(2, 2, ROW, {"a": 11, "b": None})])
    assert told(bench) == []
    with bench.engine.context.transaction() as tx:
        tx.execute("PRAGMA writable_schema = ON")
        tx.execute("UPDATE sqlite_master SET sql = replace(sql, '< 10', '< 99') WHERE name = 't'")
        tx.execute("PRAGMA writable_schema = OFF")
    bench.reopen()
    assert [shape(each) for each in told(bench)] == [
        ("show", True, {"a": 11, "b": None, "c": None}, ["c"], []),
    ]


def test_a_resurrection_is_partial_where_its_tombstone_is_below_the_horizon(tmp_path: Path) -> None:
    bench = bench_with(tmp_path)
    bench.deliver([bench.event(2, at, {"id": at}, None) for at in (50, 60)])
    bench.engine.set_horizon("main", "t", Hlc(START_MS + 60, 0))
    bench.deliver([bench.event(2, 70, {"id": at}, {"a": 1}) for at in (50, 60, 70)])
    found = {each.key["id"]: (each.op, each.partial) for each in told(bench)}
    assert found == {50: ("resurrect", True), 60: ("resurrect", False), 70: ("upsert", False)}


def test_a_resurrection_above_a_later_tombstone_of_the_same_batch_is_not_partial(tmp_path: Path) -> None:
    bench = bench_with(tmp_path)
    bench.deliver([bench.event(2, 50, ROW, None)])
    bench.engine.set_horizon("main", "t", Hlc(START_MS + 60, 0))
    bench.deliver([bench.event(2, 80, ROW, {"a": 1}), bench.event(3, 70, ROW, None)], author_stream=False)
    (change,) = told(bench)
    assert (change.op, change.partial) == ("resurrect", False)
    assert "partial" not in bench.notices()


def test_a_row_shown_without_evicted_values_is_partial(tmp_path: Path) -> None:
    bench = bench_with(tmp_path, "CREATE TABLE t (id PRIMARY KEY NOT NULL, a, b CHECK (b > 0))")
    bench.deliver([bench.event(2, 10, ROW, {"a": "gone", "b": 1})])
    evict_all(bench, 60)
    bench.deliver([bench.event(2, 70, ROW, {"b": -1})])
    bench.deliver([bench.event(2, 80, ROW, {"b": 2})])
    *_, change = told(bench)
    assert (shape(change), change.partial) == (("show", True, {"a": None, "b": 2}, [], []), True)


def test_a_row_resurrected_while_it_was_withheld_is_partial_once_it_is_shown(tmp_path: Path) -> None:
    bench = bench_with(tmp_path, "CREATE TABLE t (id PRIMARY KEY NOT NULL, a, b NOT NULL)")
    bench.deliver([bench.event(2, 50, ROW, None)])
    bench.engine.set_horizon("main", "t", Hlc(START_MS + 60, 0))
    bench.deliver([bench.event(2, 70, ROW, {"a": 1})])
    assert told(bench) == []
    bench.deliver([bench.event(2, 80, ROW, {"b": 2})])
    (change,) = told(bench)
    assert (shape(change), change.partial) == (("show", True, {"a": 1, "b": 2}, [], []), True)


def test_what_is_taken_back_is_as_if_never_written_and_not_null(tmp_path: Path) -> None:
    bench = bench_with(tmp_path)
    bench.deliver([bench.event(3, 1, {"id": 1}, {"a": 1})], peer=3)
    bench.deliver([bench.event(2, 9, {"id": 1}, {"a": 2, "b": 2})])
    bench.deliver([bench.event(3, 1, {"id": 2}, {"a": 1, "b": 1})], peer=3)
    bench.deliver([bench.event(2, 9, {"id": 2}, None)])
    bench.deliver([bench.event(2, 9, {"id": 3}, {"a": 1})])
    bench.deliver([bench.event(3, 12, {"id": 4}, {"a": 1})], peer=3)
    bench.deliver([bench.event(2, 11, {"id": 4}, None)])
    last = told(bench)[-1]
    assert shape(last) == ("upsert", True, {"b": None, "c": None}, ["b", "c"], [])
    judge_anew(bench, retired(5))
    assert {each.key["id"]: shape(each) for each in told(bench, last.seq)} == {
        1: ("taken-back", True, {"a": 1}, [], ["b"]),
        2: ("taken-back", True, {"a": 1, "b": 1}, [], []),
        3: ("taken-back", False, {}, [], []),
        4: ("taken-back", True, {}, [], ["b", "c"]),
    }


def test_what_is_taken_back_across_the_horizon_is_partial(tmp_path: Path) -> None:
    bench = bench_with(tmp_path)
    bench.deliver([bench.event(3, 1, {"id": 1}, {"a": "old"}), bench.event(3, 1, {"id": 2}, {"a": "old"})], peer=3)
    bench.deliver([bench.event(3, 8, {"id": 2}, {"b": 1})], peer=3)
    last = bench.deliver([bench.event(2, 9, {"id": number}, {"a": "late"}) for number in (1, 2)])
    assert last == ["applied", "applied"]
    bench.engine.set_horizon("main", "t", Hlc(START_MS + 5, 0))
    judge_anew(bench, retired(6))
    gone, cut = sorted(told(bench)[-2:], key=lambda each: each.key["id"])
    assert (shape(gone), gone.partial) == (("taken-back", False, {}, [], []), True)
    assert (shape(cut), cut.partial) == (("taken-back", True, {}, [], ["a"]), True)


def test_a_row_whose_delete_is_taken_back_is_told_whole_whatever_sql_shows(tmp_path: Path) -> None:
    bench = bench_with(tmp_path)
    bench.sql("CREATE TRIGGER kept BEFORE DELETE ON t WHEN old.id = 1 BEGIN SELECT RAISE(ABORT, 'kept'); END")
    bench.deliver([bench.event(3, 1, {"id": number}, {"a": 1, "b": 2}) for number in (1, 2)], peer=3)
    bench.deliver([bench.event(2, 9, {"id": number}, None) for number in (1, 2)])
    bench.sql("INSERT INTO t VALUES (2, 1, 2, NULL)")  # by hand: no node wrote it
    last = told(bench)[-1]
    assert bench.sql("SELECT id, a, b FROM t ORDER BY id") == [(1, 1, 2), (2, 1, 2)]
    judge_anew(bench, retired(5))
    expected: Any = ("taken-back", True, {"a": 1, "b": 2}, [], [])
    assert [shape(each) for each in told(bench, last.seq)] == [expected, expected]


def test_a_rebuild_that_finds_a_row_gone_from_sql_does_not_call_it_taken_back(tmp_path: Path) -> None:
    bench = bench_with(tmp_path)
    bench.deliver([bench.event(3, 1, {"id": 1}, {"a": 1})], peer=3)
    bench.deliver([bench.event(2, 9, {"id": 2}, {"a": 2})])
    last = told(bench)[-1]
    bench.sql("CREATE UNIQUE INDEX u ON t (a)")
    judge_anew(bench, retired(5))  # of a table that cannot be used now, every row is rebuilt once it can be
    bench.sql("DELETE FROM t WHERE id = 1")
    bench.sql("DROP INDEX u")
    bench.reopen()
    assert {each.key["id"]: shape(each) for each in told(bench, last.seq)} == {
        1: ("upsert", True, {"a": 1}, [], []),
        2: ("taken-back", False, {}, [], []),
    }


def test_a_row_that_a_new_table_allows_without_its_evicted_values_is_partial(tmp_path: Path) -> None:
    bench = bench_with(tmp_path, "CREATE TABLE t (id PRIMARY KEY NOT NULL, a, b CHECK (b > 0), c)")
    bench.deliver([bench.event(2, 10, ROW, {"a": "gone", "b": 1})])
    evict_all(bench, 60)
    bench.deliver([bench.event(2, 70, ROW, {"b": -1, "c": 1})])
    assert "partial" not in bench.notices()
    bench.sql("DROP TABLE t")
    bench.sql("CREATE TABLE t (id PRIMARY KEY NOT NULL, a, b)")
    bench.reopen()
    *_, change = told(bench)
    assert (shape(change), change.partial) == (("show", True, {"a": None, "b": -1}, [], []), True)
    assert "values of a" in bench.notices()["partial"].sample


def test_a_change_says_whether_this_node_wrote_it(tmp_path: Path) -> None:
    bench = bench_with(tmp_path)
    bench.engine.write([LocalChange("main", "t", ROW, {"a": 1})])
    bench.deliver([bench.event(2, 100_000, ROW, {"b": 1})])
    own, other = told(bench)
    assert (own.local, own.site) == (True, site_key(1).site.hex())
    assert (other.local, other.site) == (False, site_key(2).site.hex())


def test_a_change_kept_by_an_earlier_program_is_still_read(tmp_path: Path) -> None:
    bench = bench_with(tmp_path)
    bench.engine.write([LocalChange("main", "t", ROW, {"a": 1})])
    ((stored,),) = bench.sql("SELECT change FROM meshnode_changes")
    earlier = msgspec.msgpack.encode(msgspec.msgpack.decode(stored)[:7])
    bench.sql("UPDATE meshnode_changes SET change = ?", earlier)
    (change,) = told(bench)
    assert (shape(change), change.partial) == (("upsert", True, {"a": 1}, [], []), False)
    assert changes.unpack(earlier) == changes.unpack(stored)
    assert len(RowChange._fields) > 7


# --- a subscriber that was away


def test_a_subscriber_too_far_behind_gets_every_row_with_its_columns_apart(tmp_path: Path) -> None:
    bench = bench_with(tmp_path, "CREATE TABLE t (id PRIMARY KEY NOT NULL, a, b NOT NULL DEFAULT 0, c)")
    bench.deliver([bench.event(2, 1, {"id": 1}, {"a": None}), bench.event(2, 1, {"id": 2}, None)])
    bench.deliver([bench.event(2, 1, {"id": 3}, None), bench.event(2, 2, {"id": 3}, {"b": 1})])
    bench.deliver([bench.event(2, 1, {"id": 4}, {"a": 1})])
    bench.deliver([bench.event(2, 2, {"id": 4}, {"b": None})])
    newest = told(bench)[-1].seq
    bench.sql("DELETE FROM meshnode_changes WHERE seq < ?", newest)
    assert [(each.seq, *shape(each)) for each in told(bench, 0)] == [
        (0, "upsert", True, {"a": None}, [], ["b", "c"]),
        (0, "delete", False, {}, [], []),
        (0, "upsert", True, {"a": None, "b": 1, "c": None}, ["a", "c"], []),
        (newest, "withhold", False, {}, [], []),
    ]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
def test_rows_come_in_pages_and_only_the_last_one_ends_them(limit: int, tmp_path: Path) -> None:
    bench = bench_with(tmp_path)
    bench.engine.register_table(TableSpec("main", "u", {"id": ""}, {"a": ""}))
    for table in ("u", "t"):
        bench.deliver([bench.event(2, number, {"id": number}, {"a": 1}, table=table) for number in range(4)])
    bench.sql("DELETE FROM meshnode_changes WHERE seq < 8")
    found = list(follow(bench, begin_at(bench, 2), limit=limit))
    assert [each.seq for each in found] == [2] * 7 + [8]
    assert sorted((each.table, each.key["id"]) for each in found) == [(t, n) for t in ("t", "u") for n in range(4)]
    only = list(follow(bench, begin_at(bench, 2), limit=limit, table="u"))
    assert [(each.table, each.seq) for each in only] == [("u", 2)] * 3 + [("u", 8)]


def test_what_is_written_between_two_pages_of_rows_is_told_afterwards(tmp_path: Path) -> None:
    bench = bench_with(tmp_path)
    bench.deliver([bench.event(2, 1, {"id": number}, {"a": 1}) for number in (1, 3, 5)])
    bench.sql("DELETE FROM meshnode_changes WHERE seq < 3")
    mirror = Mirror()
    following = follow(bench, begin_at(bench, 0), limit=1)
    mirror.take(next(following))
    bench.deliver([bench.event(2, 2, {"id": 0}, {"a": "before"}), bench.event(2, 2, {"id": 4}, {"a": "behind"})])
    bench.deliver([bench.event(2, 3, {"id": 1}, None), bench.event(2, 3, {"id": 3}, {"a": None})])
    for change in following:
        mirror.take(change)
    assert mirror.rows() == as_rows(bench.read(reading.row_page, "main", "t", 100, None))
    assert change.seq == 7


def test_a_slow_subscriber_gets_the_rows_and_never_skips_what_was_trimmed(tmp_path: Path) -> None:
    bench = bench_with(tmp_path)
    bench.deliver([bench.event(2, 1, {"id": number}, {"a": 1}) for number in range(3)])
    following = follow(bench, begin_at(bench, 0), limit=1)
    assert next(following).key == {"id": 0}
    bench.sql("DELETE FROM meshnode_changes WHERE seq < 3")
    assert [(each.key["id"], each.seq) for each in following] == [(0, 1), (1, 1), (2, 3)]


def begin_at(bench: Bench, since: int) -> Any:
    return bench.read(begin, since)


SCHEMAS = {
    "plain": "CREATE TABLE t (id PRIMARY KEY NOT NULL, a, b, c)",
    "not null": "CREATE TABLE t (id PRIMARY KEY NOT NULL, a NOT NULL, b NOT NULL DEFAULT 5, c)",
    "trigger": "CREATE TABLE t (id PRIMARY KEY NOT NULL, a, b, c CHECK (c IS NOT 3))",
}
TRIGGER = "CREATE TRIGGER kept BEFORE DELETE ON t WHEN old.a = 4 BEGIN SELECT RAISE(ABORT, 'kept'); END"


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("seed", range(4))
def test_a_copy_kept_by_the_changes_alone_is_the_table(schema: str, seed: int, tmp_path: Path) -> None:
    chooser = random.Random(seed)
    bench = bench_with(tmp_path, SCHEMAS[schema])
    if schema == "trigger":
        bench.sql(TRIGGER)
    mirror, since, seen = Mirror(), 0, set()
    for now in range(60):
        bench.deliver(_some_events(bench, chooser, now), author_stream=False)
        if chooser.random() < 0.1:
            bench.reopen()
        if seed % 2 and chooser.random() < 0.15:
            after = retired(now - chooser.randrange(10), chooser.choice((2, 3)))
            judge_anew(bench, chooser.choice((after, members(KEYS))))
        if not seed % 2 and chooser.random() < 0.2:  # what went without a trace is told by the changes alone
            bench.sql("DELETE FROM meshnode_changes WHERE seq < ?", since + chooser.randrange(1, 4))
        if chooser.random() < 0.5:
            for change in follow(bench, begin_at(bench, since), limit=chooser.randrange(1, 6)):
                mirror.take(change)
                since = change.seq
                seen.add(change.op)
            assert mirror.rows() == as_rows(bench.read(reading.row_page, "main", "t", 100, None))
    usual = {"upsert", "delete", "resurrect"} | ({"taken-back"} if seed % 2 else set())
    assert seen >= usual | ({"withhold", "show"} if schema != "plain" else set())


def _some_events(bench: Bench, chooser: random.Random, now: int) -> list[Any]:
    events = []
    for _ in range(chooser.randrange(1, 5)):
        columns: dict[str, Any] | None = None
        if chooser.random() < 0.85:
            names = chooser.sample(("a", "b", "c", "z"), chooser.randrange(1, 5))
            columns = {name: chooser.choice((None, 0, 3, 4, "x", True)) for name in names}
        clock = now + chooser.randrange(-6, 3)
        events.append(bench.event(chooser.choice((2, 3)), clock, {"id": chooser.randrange(4)}, columns))
    return events


def test_what_a_row_held_before_is_told_with_its_change(tmp_path: Path) -> None:
    bench = bench_with(tmp_path)
    long = "x" * (changes.OLD_BYTES + 1)
    bench.deliver([bench.event(2, 1, ROW, {"a": 1, "b": long})])
    bench.deliver([bench.event(2, 2, ROW, {"a": 2}), bench.event(2, 3, ROW, {"a": 3, "c": None})])
    bench.deliver([bench.event(2, 4, ROW, {"b": "short"})])
    bench.deliver([bench.event(2, 5, ROW, {"b": None})])
    bench.deliver([bench.event(2, 6, ROW, None)])
    bench.deliver([bench.event(2, 7, ROW, {"a": 4})])
    assert [(each.op, each.columns, each.old) for each in told(bench)] == [
        ("upsert", {"a": 1, "b": long}, {}),
        ("upsert", {"a": 3, "c": None}, {"a": 1}),  # of a batch once; nobody had written `c`
        ("upsert", {"b": "short"}, {}),  # what was longer is not kept twice
        ("upsert", {"b": None}, {"b": "short"}),
        ("delete", {}, {"a": 3, "b": None, "c": None}),
        ("resurrect", {"a": 4, "b": None, "c": None}, {}),
    ]


def test_what_was_taken_back_is_told_as_what_the_row_held(tmp_path: Path) -> None:
    bench = bench_with(tmp_path)
    bench.deliver([bench.event(1, 1, ROW, {"a": "kept"})])
    bench.deliver([bench.event(2, 2, ROW, {"a": "lost", "b": "too"})])
    judge_anew(bench, retired(1))
    change = told(bench)[-1]
    assert (change.op, change.columns, change.unmaterialized) == ("taken-back", {"a": "kept"}, ["b"])
    assert change.old == {"a": "lost", "b": "too"}

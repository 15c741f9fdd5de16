"""Rows that the application's triggers, functions or values break, or whose events are gone; each failed before."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from support.engines import PLAIN, Bench, members
from support.mesh_context import START_MS
from support.records import site_key

from meshnode.engine import takeback
from meshnode.engine.check import check_store
from meshnode.engine.registry import TableSpec
from meshnode.engine.standing import take_effect
from meshnode.model.hlc import Hlc
from meshnode.store import history
from meshnode.store.database import Tx

KEYS = [site_key(number).public_key for number in (1, 2, 3)]


def follow(bench: Bench) -> int:
    steps = 0
    while bench.engine.follow_schema():
        steps += 1
        assert steps < 1000
    return steps


def differences(bench: Bench) -> list[str]:
    return [each.what for each in bench.read(check_store, sqlite3, bench.membership.key_of).differences]


def judge(bench: Bench, cutoffs: dict[int, int]) -> None:
    """The membership in which these sites are cut off so many milliseconds after the start."""
    cut = {site_key(number).site: Hlc(START_MS + after, 0) for number, after in cutoffs.items()}
    context, following = bench.engine.context, members(KEYS, cutoffs=cut)

    def work(tx: Tx) -> None:
        before = context.membership
        context.set_membership(following)
        take_effect(context, tx, before, following)

    context.transact(work)
    bench.membership = following


def test_standing_that_returns_while_events_are_taken_back_leaves_no_row_on_an_event_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeback, "STEPS_AT_ONCE", 0)
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    kept, gone = bench.event(3, 1, {"id": 1}, {"a": "early"}), bench.event(3, 8, {"id": 2}, {"a": "late"})
    bench.deliver([kept, gone])
    judge(bench, {3: 5})
    assert bench.engine.follow_schema()  # the event has left the log, its row stands
    number = bench.sql("SELECT no FROM meshnode_sites WHERE site = ?", site_key(3).site)[0][0]
    bench.sql("INSERT INTO meshnode_inbound (site_no, path, epoch, next, first) VALUES (?, 0, x'00', 2, 0)", number)
    requests = len(bench.read(history.requests))
    judge(bench, {})
    follow(bench)
    assert bench.sql("SELECT id, a FROM t") == [(1, "early")]
    assert differences(bench) == []
    assert len(bench.read(history.requests)) > requests  # what was taken out is asked for again
    bench.deliver([gone])
    assert bench.sql("SELECT id, a FROM t ORDER BY id") == [(1, "early"), (2, "late")]
    assert differences(bench) == []


def test_rows_that_share_a_job_with_many_that_roll_it_back_are_shown_without_what_was_taken_back(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    bench.deliver([bench.event(3, number, {"id": number}, {"a": number}) for number in range(100)], author_stream=False)
    late = [bench.event(2, 1000 + number, {"id": number}, {"a": -number}) for number in range(1, 100)]
    bench.deliver(late, author_stream=False)
    bench.sql("CREATE TRIGGER g BEFORE INSERT ON t WHEN new.id % 9 = 7 BEGIN SELECT RAISE(ROLLBACK, 'no'); END")
    judge(bench, {2: 5})
    assert bench.sql("SELECT * FROM t WHERE a < 0") == []
    follow(bench)
    assert bench.sql("SELECT id, a FROM t ORDER BY id") == [
        (number, number) for number in range(100) if number % 9 != 7
    ]
    assert not bench.engine.context.is_behind
    assert differences(bench) == []


def test_rows_that_cannot_even_be_taken_out_of_sql_say_so_and_are_tried_a_bounded_number_of_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    bench.deliver([bench.event(3, number, {"id": number}, {"a": number}) for number in range(60)], author_stream=False)
    for event in ("INSERT", "UPDATE", "DELETE"):
        bench.sql(f"CREATE TRIGGER g{event} BEFORE {event} ON t BEGIN SELECT RAISE(ROLLBACK, 'no'); END")
    begun = 0
    load = type(bench.engine.context)._load

    def counted(*arguments: object) -> None:
        nonlocal begun
        begun += 1
        load(*arguments)

    monkeypatch.setattr(type(bench.engine.context), "_load", counted)
    late = [bench.event(2, 1000 + number, {"id": number}, {"a": -1}) for number in range(60)]
    assert bench.deliver(late, author_stream=False) == ["applied"] * 60
    follow(bench)
    assert begun < 4 * 60
    reasons = {row[0] for row in bench.sql("SELECT reason FROM meshnode_rows")}
    assert reasons == {"a trigger rolled back the whole batch; its old values stay"}
    for event in ("INSERT", "UPDATE", "DELETE"):
        bench.sql(f"DROP TRIGGER g{event}")
    bench.deliver([])
    follow(bench)
    assert bench.sql("SELECT DISTINCT a FROM t") == [(-1,)]
    assert differences(bench) == []


def test_text_that_is_not_utf8_keeps_no_member_from_being_retired_and_is_read_as_bytes(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    bench.sql("CREATE TRIGGER g AFTER INSERT ON t BEGIN UPDATE t SET c = new.a || '!' WHERE id = new.id; END")
    bench.deliver([bench.event(3, 1, {"id": 1}, {"a": "kept", "c": "named"}), bench.event(2, 9, {"id": 2}, {"c": "c"})])
    bench.deliver([bench.event(2, 2, {"id": 3}, {"a": b"\xff", "c": "given"}), bench.event(2, 9, {"id": 3}, {"b": 1})])
    assert bench.get({"id": 3}) == {"a": b"\xff", "b": 1, "c": b"\xff!"}
    assert len(bench.digest()[0]) == 32
    assert differences(bench) != []  # the trigger wrote over what the events say, and the check goes on
    judge(bench, {2: 5})
    bench.sql("ALTER TABLE t ADD COLUMN z")
    assert bench.deliver([bench.event(3, 2, {"id": 7}, {"a": 1, "z": 2})], peer=3) == ["applied"]
    bench.reopen()
    follow(bench)
    assert sorted(row[0] for row in bench.sql("SELECT id FROM t")) == [1, 3, 7]


def test_rows_whose_text_is_not_utf8_are_not_adopted_as_other_rows(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.sql("CREATE TABLE t (id PRIMARY KEY, a, b, c)")
    bench.sql("INSERT INTO t VALUES (CAST(x'ff' AS TEXT), 1, 2, 3), ('x', CAST(x'ff' AS TEXT), 2, 3)")
    bench.engine.register_table(TableSpec("main", "t"))
    assert [(row.key, row.columns) for row in bench.rows().values()] == [({"id": "x"}, {"b": 2, "c": 3})]
    assert bench.sql("SELECT count(*) FROM t") == [(2,)]


@pytest.mark.parametrize(
    "default", ["(mine())", "(CAST(x'ff' AS TEXT))", "(abs(-9223372036854775808))", "(json('not json'))"]
)
def test_a_default_that_cannot_be_told_here_is_no_columns_value(default: str, tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    bench.deliver([bench.event(2, 1, {"id": 1}, {"a": 1}), bench.event(2, 9, {"id": 2}, {"a": 2})])
    bench.sql("DROP TABLE t")
    connection = sqlite3.connect(bench.path)
    connection.create_function("mine", 0, lambda: 1, deterministic=True)
    connection.execute(f"CREATE TABLE t (id PRIMARY KEY, a, b, c DEFAULT {default})")
    connection.execute("INSERT INTO t (id, c) VALUES (1, 'own')")
    connection.commit()
    connection.close()
    assert bench.deliver([bench.event(3, 1, {"id": 3}, {"a": 3})]) == ["applied"]
    judge(bench, {2: 5})
    follow(bench)
    bench.reopen()
    assert bench.sql("SELECT id, a FROM t ORDER BY id") == [(1, 1), (3, 3)]
    assert differences(bench) == []


@pytest.mark.parametrize("index", ["(mine(a))", "(a COLLATE mine)"])
def test_an_index_that_only_the_application_can_read_is_told_by_the_check(index: str, tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    bench.deliver([bench.event(2, 1, {"id": 1}, {"a": 1})])
    connection = sqlite3.connect(bench.path)
    connection.create_function("mine", 1, lambda value: value, deterministic=True)
    connection.create_collation("mine", lambda one, other: (one > other) - (one < other))
    connection.execute(f"CREATE INDEX i ON t {index}")
    connection.commit()
    connection.close()
    assert bench.deliver([bench.event(3, 1, {"id": 3}, {"a": 3})]) == ["applied"]
    found = differences(bench)
    assert len(found) == 1
    assert "cannot be checked here" in found[0]
    bench.reopen()

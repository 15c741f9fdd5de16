"""Taking back more than one transaction should hold: in small steps, durable, and in the end as if it had been one."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engines import PLAIN, Bench, members
from support.mesh_context import START_MS
from support.records import site_key

from meshnode.engine import rebuild, retention, takeback
from meshnode.engine.check import check_store
from meshnode.engine.forget import forget
from meshnode.engine.registry import TableSpec
from meshnode.engine.standing import take_effect
from meshnode.engine.sweep import Sweep
from meshnode.engine.takeback import TAKING_BACK
from meshnode.limits import BATCH_EVENTS
from meshnode.merge.rows import RowState
from meshnode.model.event import Event
from meshnode.model.hlc import Hlc
from meshnode.model.membership import Membership
from meshnode.store import shapes
from meshnode.store.database import Tx, no_fault

KEYS = [site_key(number).public_key for number in (1, 2, 3)]
CUTOFF = 1000
ROWS = 40
ALL = members(KEYS)
RETIRED = members(KEYS, cutoffs={site_key(2).site: Hlc(START_MS + CUTOFF, 0)})


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing at once, and few events, rows and positions at a time."""
    monkeypatch.setattr(takeback, "STEPS_AT_ONCE", 0)
    monkeypatch.setattr(takeback, "EVENTS_A_STEP", 7)
    monkeypatch.setattr(rebuild, "ROWS_LOOKED_AT", 11)
    monkeypatch.setattr(rebuild, "POSITIONS_A_STEP", 13)
    monkeypatch.setattr(rebuild, "BATCH_EVENTS", 5)


def judge_anew(bench: Bench, after: Membership) -> None:
    """The walk came to another result."""
    context = bench.engine.context

    def work(tx: Tx) -> None:
        before = context.membership
        context.set_membership(after)
        take_effect(context, tx, before, after)

    context.transact(work)
    bench.membership = after


def steps(bench: Bench) -> Iterator[int]:
    """One step after the other, to the end."""
    number = 0
    while bench.engine.follow_schema():
        number += 1
        assert number < 5000
        yield number


def finish(bench: Bench) -> int:
    return sum(1 for _ in steps(bench))


def written(bench: Bench) -> list[Event]:
    """Every row by both sites, before and after the cutoff, overwritten, deleted, and brought back."""
    events = [bench.event(2, n, {"id": n}, {"a": f"early {n}", "b": n}) for n in range(ROWS)]
    events += [bench.event(3, 100 + n, {"id": n}, {"b": f"by three {n}", "c": n}) for n in range(0, ROWS, 2)]
    events += [bench.event(2, 1100 + n, {"id": n}, {"a": f"late {n}", "c": None, "new": 1}) for n in range(0, ROWS, 3)]
    events += [bench.event(2, 1200 + n, {"id": n}, None) for n in range(0, ROWS, 5)]
    events += [bench.event(2, 1300 + n, {"id": n}, {"b": "back"}) for n in range(0, ROWS, 10)]
    events += [bench.event(2, 1400 + n, {"id": 100 + n}, {"a": "only late"}) for n in range(20)]
    events += [bench.event(2, 1500 + n, {"id": n}, {"a": 1}, table="absent") for n in range(10)]
    return events


def acceptable(events: Sequence[Event]) -> list[Event]:
    return [each for each in events if each.site != site_key(2).site or each.hlc <= Hlc(START_MS + CUTOFF, 0)]


def state(bench: Bench) -> tuple[Any, ...]:
    """All that a row is: what SQL shows and the clocks behind it."""
    return (
        bench.sql("SELECT * FROM t ORDER BY id"),
        [
            (key, found.tombstone, found.upsert, found.columns, reason)
            for key, stored, reason in bench.sql("SELECT key, state, reason FROM meshnode_rows ORDER BY key")
            for found in [RowState.unpack(stored)]
        ],
        sorted(data for (data,) in bench.sql("SELECT event FROM meshnode_log")),
        bench.sql("SELECT events, bytes FROM meshnode_held WHERE events > 0"),
    )


def never_wrote(bench: Bench, events: Sequence[Event], *, create: str = "") -> Bench:
    """Another node, which got only what is acceptable."""
    other = Bench(bench.path.parent, name="never.db", membership=RETIRED)
    if create:
        other.sql(create)
    other.engine.register_table(TableSpec("main", "t") if create else PLAIN)
    other.deliver(acceptable(events), author_stream=False)
    return other


def sound(bench: Bench) -> list[str]:
    return [each.what for each in bench.read(check_store, sqlite3, bench.membership.key_of).differences]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    bench.deliver(written(bench), author_stream=False)
    return bench


# --- one after the other


@pytest.mark.usefixtures("small_steps")
def test_the_end_is_that_of_one_transaction(bench: Bench) -> None:
    judge_anew(bench, RETIRED)
    assert finish(bench) > 20
    assert state(bench) == state(never_wrote(bench, written(bench)))
    assert sound(bench) == []


@pytest.mark.usefixtures("small_steps")
def test_it_is_told_while_it_lasts_and_surfaced_once_with_the_whole_count(bench: Bench) -> None:
    late = len(written(bench)) - len(acceptable(written(bench)))
    judge_anew(bench, RETIRED)
    for number in steps(bench):
        if number == 9:
            bench.reopen()
        assert bench.notices()[TAKING_BACK].site == site_key(2).site
        assert "taken-back" not in bench.notices()
        assert sound(bench) == ["what is no longer acceptable is not all taken back yet: run the node"]
    assert TAKING_BACK not in bench.notices()
    notice = bench.notices()["taken-back"]
    assert (notice.count, notice.site) == (1, site_key(2).site)
    assert notice.sample == f"taken back, since no longer acceptable: {late} events"


def test_what_is_short_is_done_at_once_and_never_told_as_lasting(bench: Bench) -> None:
    judge_anew(bench, RETIRED)
    assert not bench.engine.follow_schema()
    assert not bench.engine.context.is_behind
    assert TAKING_BACK not in bench.notices()
    assert state(bench) == state(never_wrote(bench, written(bench)))


@pytest.mark.usefixtures("small_steps")
def test_every_row_is_wholly_as_before_or_wholly_as_after(bench: Bench) -> None:
    before = {row[0]: row for row in bench.sql("SELECT * FROM t")}
    after = {row[0]: row for row in never_wrote(bench, written(bench)).sql("SELECT * FROM t")}
    judge_anew(bench, RETIRED)
    mixed = 0
    for _ in steps(bench):
        shown = {row[0]: row for row in bench.sql("SELECT * FROM t")}
        for key in before.keys() | after.keys():
            assert shown.get(key) in (before.get(key), after.get(key))
        mixed += shown not in (before, after)
    assert mixed > 3


def test_no_step_holds_the_writer_for_long_whatever_there_is(tmp_path: Path) -> None:
    """Rows changed by one transaction, the node's own tables included: bounded, though all is one site's."""
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    count = 12_000
    for start in range(0, count, 1000):
        bench.deliver([bench.event(2, 2000 + n, {"id": n % 5000}, {"a": n}) for n in range(start, start + 1000)])
    connection = bench.engine.context.db._connection
    at = connection.total_changes
    judge_anew(bench, RETIRED)
    worst = [connection.total_changes - at]
    for _ in steps(bench):
        worst.append(connection.total_changes - at - sum(worst))
    assert bench.sql("SELECT count(*) FROM meshnode_log") == [(0,)]
    assert bench.sql("SELECT count(*) FROM t") == [(0,)]
    assert len(worst) > 15
    assert worst[0] < 1.2 * 2 * takeback.STEPS_AT_ONCE * takeback.EVENTS_A_STEP  # each event is counted out as well
    assert max(worst[1:]) <= 3 * BATCH_EVENTS + 10  # a batch of rows, with its clocks and its changes


# --- what happens meanwhile


def meanwhile(bench: Bench, act: dict[int, Callable[[], object]]) -> None:
    """Take back, and do these things after the steps with these numbers."""
    judge_anew(bench, RETIRED)
    done = 0
    for number in steps(bench):
        if number in act:
            act[number]()
            done += 1
    assert done == len(act)


@pytest.mark.usefixtures("small_steps")
def test_what_arrives_meanwhile_is_judged_by_the_new_membership_and_kept(bench: Bench) -> None:
    events = written(bench)
    judge_anew(bench, RETIRED)
    for number in steps(bench):
        row = number % ROWS
        late = bench.event(2, 5000 + number, {"id": row}, {"a": "too late"})
        new = [
            bench.event(3, 3000 + number, {"id": row}, {"a": f"new {number}"}),
            bench.event(3, number, {"id": (row + 7) % ROWS}, {"c": "old"}),
            bench.event(3, 3000 + number, {"id": 200 + number}, {"b": "a new row"}),
            bench.event(2, number, {"id": 300 + number}, {"b": "early, arriving late"}),
        ]
        assert bench.deliver([late, *new], author_stream=False) == ["dropped:retired-signer", *["applied"] * 4]
        events += new
        if number == 40:
            break
    finish(bench)
    assert state(bench) == state(never_wrote(bench, events))
    assert sound(bench) == []


@pytest.mark.usefixtures("small_steps")
def test_stopped_before_any_statement_it_goes_on_after_the_restart(tmp_path: Path) -> None:
    class Stopped(BaseException):
        """The process ends here."""

    expected, stops, left = None, 0, -1

    def fault(_point: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Stopped

    for start in range(1, 2000, 29):
        folder = tmp_path / str(start)
        folder.mkdir()
        bench = Bench(folder)
        bench.engine.register_table(PLAIN)
        bench.deliver(written(bench), author_stream=False)
        expected = expected or state(never_wrote(bench, written(bench)))
        judge_anew(bench, RETIRED)
        bench.fault, left = fault, start
        try:
            finish(bench)
        except Stopped:
            stops += 1
            bench.fault = no_fault
            bench.reopen()
            finish(bench)
        bench.fault = no_fault
        assert state(bench) == expected
        assert sound(bench) == []
        assert bench.notices()["taken-back"].count == 1
        bench.engine.close()
        if left > 0:
            break
    assert stops > 10


@pytest.mark.usefixtures("small_steps")
def test_an_error_in_one_step_lets_the_living_process_go_on(bench: Bench) -> None:
    judge_anew(bench, RETIRED)
    left = 0

    def fault(_point: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise sqlite3.OperationalError("disk I/O error")

    bench.fault = fault
    failed = 0
    for number in range(1, 400):
        left = number % 50
        try:
            if not bench.engine.follow_schema():
                break
        except Exception:
            failed += 1
    bench.fault = no_fault
    finish(bench)
    assert failed > 10
    assert state(bench) == state(never_wrote(bench, written(bench)))


@pytest.mark.usefixtures("small_steps")
def test_compaction_meanwhile_drops_nothing_that_comes_back(bench: Bench) -> None:
    def compact() -> None:
        sweep: Sweep = retention.compaction(bench.engine.context, "main", "t")
        while sweep.step():
            pass
        sweep.finish()

    meanwhile(bench, {1: compact})
    other = never_wrote(bench, written(bench))
    assert state(bench)[:2] == state(other)[:2]


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("after", [1, 8, 15, 18, 22, 28])
def test_a_row_that_is_forgotten_meanwhile_stays_away(bench: Bench, after: int) -> None:
    key = {"id": 3}
    meanwhile(bench, {after: lambda: forget(bench.engine.context, "main", "t", key)})
    assert bench.get(key) is None
    other = never_wrote(bench, written(bench))
    forget(other.engine.context, "main", "t", key)
    assert state(bench)[:2] == state(other)[:2]
    assert sound(bench) == []


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("after", [1, 5, 8, 15, 20, 28])
def test_who_is_acceptable_again_meanwhile_gets_all_of_it_back(bench: Bench, after: int) -> None:
    """What left the log is asked for again; what did not is still in its rows (profile §9)."""
    before = state(bench)[:2]
    meanwhile(bench, {after: lambda: judge_anew(bench, ALL)})
    verdicts = bench.deliver(written(bench), author_stream=False)
    assert set(verdicts) <= {"applied", "duplicate", "held"}
    assert state(bench)[:2] == before
    assert sound(bench) == []


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("after", [1, 8, 15, 20, 28])
def test_a_second_site_that_goes_meanwhile_is_taken_back_as_well(bench: Bench, after: int) -> None:
    both = members(KEYS, cutoffs={site_key(n).site: Hlc(START_MS + at, 0) for n, at in ((2, CUTOFF), (3, 110))})
    meanwhile(bench, {after: lambda: judge_anew(bench, both)})
    other = Bench(bench.path.parent, name="never.db", membership=both)
    other.engine.register_table(PLAIN)
    other.deliver(written(bench), author_stream=False)
    assert state(bench) == state(other)
    assert bench.sql("SELECT count(*), sum(count) FROM meshnode_notices WHERE kind = 'taken-back'") == [(2, 2)]


CHANGES = {
    "gained": ["ALTER TABLE t ADD COLUMN new"],
    "dropped": ["ALTER TABLE t DROP COLUMN a"],
    "recreated": ["DROP TABLE t", "CREATE TABLE t (id PRIMARY KEY, c, b NOT NULL)"],
}


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("after", [1, 8, 15, 20, 28])
def test_the_schema_may_change_meanwhile(bench: Bench, change: str, after: int) -> None:
    meanwhile(bench, {after: lambda: [bench.sql(statement) for statement in CHANGES[change]]})
    create = bench.sql("SELECT sql FROM sqlite_master WHERE name = 't'")[0][0]
    assert state(bench) == state(never_wrote(bench, written(bench), create=create))
    assert sound(bench) == []


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("after", [1, 8, 15, 20, 28])
def test_a_table_that_cannot_be_used_meanwhile_is_right_once_it_can_be(bench: Bench, after: int) -> None:
    meanwhile(bench, {after: lambda: bench.sql("ALTER TABLE t RENAME TO away")})
    assert "taken-back" in bench.notices()
    bench.sql("ALTER TABLE away RENAME TO t")
    finish(bench)
    assert state(bench) == state(never_wrote(bench, written(bench)))
    assert sound(bench) == []


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("after", [1, 8, 15, 20, 28])
def test_a_horizon_that_is_dropped_meanwhile_loses_nothing(bench: Bench, after: int) -> None:
    bench.engine.set_horizon("main", "t", Hlc(START_MS + 50, 0))
    meanwhile(bench, {after: lambda: retention.rehydrate(bench.engine.context, "main", "t")})
    bench.deliver(written(bench), author_stream=False)
    assert state(bench)[:2] == state(never_wrote(bench, written(bench)))[:2]
    assert sound(bench) == []


# --- a table as a whole


def lose(bench: Bench) -> None:
    """The log loses events while the table cannot be used."""
    bench.sql("ALTER TABLE t RENAME TO away")
    context = bench.engine.context

    def take(tx: Tx) -> None:
        number = context.sites.find(tx, site_key(2).site)
        bound = START_MS + CUTOFF
        tx.execute("DELETE FROM meshnode_log WHERE site_no = ? AND physical > ?", (number, bound))
        shapes.recompute_later(tx, context.tables.number(tx, context.tables.entry(tx, "main", "t")), 0)

    context.transact(take)
    bench.sql("ALTER TABLE away RENAME TO t")


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("killed_after", [0, 5, 12, 17, 22, 30])
def test_a_table_is_recomputed_step_by_step_and_goes_on_after_a_kill(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, killed_after: int
) -> None:
    monkeypatch.setattr("meshnode.engine.growth.STEPS_AT_ONCE", 0)
    lose(bench)
    events = [each for each in acceptable(written(bench)) if each.table == "t"]
    total = 0
    for number in steps(bench):
        total = number
        new = [
            bench.event(3, 3000 + number, {"id": number % ROWS}, {"a": f"new {number}"}),
            bench.event(3, number, {"id": 200 + number}, {"b": "a new row"}),
        ]
        if number < 50:
            bench.deliver(new)
            events += new
        if number == killed_after:
            bench.reopen()
    assert total > 20
    other = never_wrote(bench, events)
    assert state(bench)[:2] == state(other)[:2]


@pytest.mark.usefixtures("small_steps")
def test_after_a_kill_rows_that_were_recomputed_are_not_recomputed_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("meshnode.engine.growth.STEPS_AT_ONCE", 0)
    lose(bench)
    bench.engine.write([])
    number = bench.sql("SELECT no FROM meshnode_tables WHERE name = 't'")[0][0]
    reached = b""
    for _ in steps(bench):
        progress = bench.read(shapes.read, number)[1]
        assert progress is not None
        if not progress.whole:
            break
        assert progress.after >= reached
        if progress.after > reached:
            reached = progress.after
            bench.engine.context.work.clear()  # what a kill takes
    else:
        raise AssertionError("it never came to the rows")
    assert reached > b""
    finish(bench)
    assert state(bench)[:2] == state(never_wrote(bench, written(bench)))[:2]


# --- any of it


EVENTS = st.lists(
    st.tuples(
        st.sampled_from((2, 3)),
        st.integers(0, 12),
        st.integers(0, 3),
        st.one_of(st.none(), st.dictionaries(st.sampled_from("abz"), st.sampled_from(("x", "y", None)), max_size=2)),
    ),
    max_size=10,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=5), st.integers(0, 12), st.integers(0, 8), st.integers(0, 12))
def test_any_events_before_and_between_the_steps(
    drawn: list[list[tuple[int, int, int, Any]]], cutoff: int, horizon: int, killed_after: int
) -> None:
    after = members(KEYS, cutoffs={site_key(2).site: Hlc(START_MS + cutoff, 0)})
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(takeback, "STEPS_AT_ONCE", 0)
        patch.setattr(takeback, "EVENTS_A_STEP", 2)
        patch.setattr(rebuild, "BYTES_A_STEP", 1)
        left, right = Bench(Path(name), name="left.db"), Bench(Path(name), name="right.db", membership=after)
        batches = [[left.event(by, at, {"id": key}, columns) for by, at, key, columns in each] for each in drawn]
        for bench in (left, right):
            bench.engine.register_table(PLAIN)
            bench.engine.set_horizon("main", "t", Hlc(START_MS + horizon, 0))
        left.deliver(batches[0], author_stream=False)
        judge_anew(left, after)
        waiting = iter(batches[1:])
        for number in steps(left):
            left.deliver(next(waiting, []), author_stream=False)
            if number == killed_after:
                left.reopen()
        for batch in waiting:
            left.deliver(batch, author_stream=False)
        right.deliver([event for batch in batches for event in batch], author_stream=False)
        assert state(left) == state(right)
        assert sound(left) == []
        for bench in (left, right):
            bench.engine.close()

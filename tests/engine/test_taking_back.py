"""What the membership accepts no longer leaves the log, and its rows are as if it had never come (profile §9)."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engines import PLAIN, Bench, members
from support.mesh_context import START_MS
from support.records import site_key

from meshnode.engine import rebuild, takeback
from meshnode.engine.check import check_store
from meshnode.engine.standing import take_effect
from meshnode.merge.rows import RowState
from meshnode.model.event import Event
from meshnode.model.hlc import Hlc
from meshnode.model.membership import Membership
from meshnode.store import log, removed, watermarks
from meshnode.store.database import no_fault

KEYS = [site_key(number).public_key for number in (1, 2, 3)]


def retired(cutoff: int, site: int = 2) -> Membership:
    return members(KEYS, cutoffs={site_key(site).site: Hlc(START_MS + cutoff, 0)})


def judge_anew(bench: Bench, after: Membership) -> None:
    """The walk came to another result."""
    context = bench.engine.context

    def work(tx: Any) -> None:
        before = context.membership
        context.set_membership(after)
        take_effect(context, tx, before, after)

    context.transact(work)
    bench.membership = after


def step_by_step(bench: Bench, after: Membership, killed_after: int) -> None:
    """The same where it is long: nothing at once, one event and one row at a time, and a restart after some step."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(takeback, "STEPS_AT_ONCE", 0)
        for module, name in ((takeback, "EVENTS_A_STEP"), (rebuild, "BYTES_A_STEP")):
            patch.setattr(module, name, 1)
        judge_anew(bench, after)
        for number in range(1000):
            if number == killed_after:
                bench.reopen()
            if not bench.engine.follow_schema():
                return
        raise AssertionError("it never comes to its end")


def state(bench: Bench) -> tuple[Any, ...]:
    """All that a row is: what SQL shows and the clocks behind it."""
    return (
        bench.sql("SELECT * FROM t ORDER BY id"),
        [
            (key, found.tombstone, found.upsert, found.columns, reason)
            for key, stored, reason in bench.sql("SELECT key, state, reason FROM meshnode_rows ORDER BY key")
            for found in [RowState.unpack(stored)]
        ],
        sorted(bench.sql("SELECT state, event FROM meshnode_log")),
    )


def with_table(folder: Path, **more: Any) -> Bench:
    bench = Bench(folder, **more)
    bench.engine.register_table(PLAIN)
    return bench


def test_a_retired_sites_later_events_go_and_its_earlier_ones_stay(tmp_path: Path) -> None:
    bench = with_table(tmp_path)
    bench.deliver([bench.event(2, 5, {"id": 1}, {"a": "early"}), bench.event(2, 9, {"id": 1}, {"a": "late", "b": 1})])
    bench.deliver([bench.event(2, 10, {"id": 2}, {"a": "only"})])
    bench.deliver([bench.event(3, 7, {"id": 3}, {"a": "kept"})], peer=3)
    bench.deliver([bench.event(2, 11, {"id": 3}, None)])
    assert bench.sql("SELECT id FROM t ORDER BY id") == [(1,), (2,)]
    before = bench.changes()[-1].seq
    judge_anew(bench, retired(5))
    assert bench.sql("SELECT id, a, b FROM t ORDER BY id") == [(1, "early", None), (3, "kept", None)]
    assert bench.sql("SELECT position FROM meshnode_log ORDER BY position") == [(1,), (4,)]
    assert bench.sql("SELECT first, last, why FROM meshnode_removed") == [
        (2, 3, removed.TAKEN_BACK),
        (5, 5, removed.TAKEN_BACK),
    ]
    notice = bench.notices()["taken-back"]
    assert (notice.count, notice.site) == (1, site_key(2).site)
    assert notice.sample.endswith(": 3 events")
    told = sorted((each.key["id"], each.change.op, each.change.exists) for each in bench.changes(before))
    assert told == [(1, "taken-back", True), (2, "taken-back", False), (3, "taken-back", True)]
    judge_anew(bench, retired(5))
    assert bench.notices()["taken-back"].count == 1
    assert bench.deliver([bench.event(2, 9, {"id": 1}, {"a": "late"})]) == ["dropped:retired-signer"]


def test_a_site_that_fell_out_of_the_mesh_leaves_nothing(tmp_path: Path) -> None:
    bench = with_table(tmp_path)
    bench.deliver([bench.event(2, number, {"id": number}, {"a": number}) for number in range(1200)])
    judge_anew(bench, members([KEYS[0], KEYS[2]]))
    assert state(bench) == ([], [], [])
    assert bench.sql("SELECT first, last FROM meshnode_removed") == [(1, 1200)]
    assert bench.engine.context.next_position == 1201


def test_what_a_reader_wrote_is_taken_back(tmp_path: Path) -> None:
    bench = with_table(tmp_path)
    bench.deliver([bench.event(2, 1, {"id": 1}, {"a": 1})])
    judge_anew(bench, members(KEYS, roles={site_key(2).site: "reader"}))
    assert state(bench) == ([], [], [])


def test_held_events_are_taken_back_and_uncounted(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    early, late = (bench.event(2, number, {"id": number}, {"a": 1}) for number in (1, 9))
    bench.deliver([early, late])
    judge_anew(bench, retired(5))
    assert bench.sql("SELECT events, bytes FROM meshnode_held") == [(1, len(early.data))]
    bench.engine.register_table(PLAIN)
    assert bench.sql("SELECT id FROM t") == [(1,)]


def test_a_group_goes_on_once_what_it_waited_for_was_taken_back(tmp_path: Path) -> None:
    bench = with_table(tmp_path)
    far = bench.event(2, 400_000, {"id": 2}, {})
    assert bench.deliver([bench.event(2, 1, {"id": 1}, {}), far]) == ["applied", "rejected:skew"]
    judge_anew(bench, retired(5))
    groups = bench.sql("SELECT rejected_low, rejected_high FROM meshnode_watermarks")
    assert groups == [(None, None)]
    assert bench.deliver([bench.event(2, 4, {"id": 1}, {})]) == ["applied"]
    [mark] = bench.read(watermarks.all_watermarks)
    assert mark.hlc == Hlc(START_MS + 4, 0)


def test_below_the_horizon_the_signers_own_values_go_and_the_row_is_partial(tmp_path: Path) -> None:
    bench = with_table(tmp_path)
    bench.deliver([bench.event(3, 1, {"id": 1}, {"a": "old", "b": "stays"})], peer=3)
    bench.deliver([bench.event(2, 4, {"id": 1}, {"a": "forged"})])
    bench.engine.set_horizon("main", "t", Hlc(START_MS + 5, 0))
    judge_anew(bench, retired(2))
    assert bench.sql("SELECT id, a, b FROM t") == [(1, None, "stays")]
    assert bench.notices()["partial"].table == "t"
    assert bench.read(check_store, sqlite3, bench.membership.key_of).differences == []


def test_values_from_below_the_horizon_go_although_their_events_are_not_in_the_log(tmp_path: Path) -> None:
    bench = with_table(tmp_path)
    bench.deliver([bench.event(2, 4, {"id": 1}, {"a": "forged"}), bench.event(2, 4, {"id": 2}, None)])
    bench.engine.set_horizon("main", "t", Hlc(START_MS + 5, 0))
    with bench.engine.context.transaction() as tx:
        log.remove(tx, [1, 2])
        removed.record(tx, [1, 2], removed.EVICTED)
    judge_anew(bench, retired(2))
    assert state(bench) == ([], [], [])
    assert "taken-back" not in bench.notices()


def test_rows_of_a_table_that_cannot_be_used_now_are_right_once_it_can_be(tmp_path: Path) -> None:
    bench = with_table(tmp_path)
    bench.deliver([bench.event(2, 1, {"id": 1}, {"a": "early"}), bench.event(2, 9, {"id": 1}, {"a": "late"})])
    bench.deliver([bench.event(2, 9, {"id": 2}, {"a": "only"})])
    bench.sql("CREATE UNIQUE INDEX u ON t (a)")
    bench.deliver([])
    assert "table-unusable" in bench.notices()
    judge_anew(bench, retired(5))
    bench.sql("DROP INDEX u")
    bench.deliver([])
    assert bench.sql("SELECT id, a FROM t") == [(1, "early")]
    assert bench.sql("SELECT count(*) FROM meshnode_rows") == [(1,)]


class StoppedError(Exception):
    """The process died."""


def test_stopped_anywhere_it_is_done_wholly_or_not_at_all(tmp_path: Path) -> None:
    bench = with_table(tmp_path)
    bench.deliver([bench.event(2, 1, {"id": 1}, {"a": "early"}), bench.event(2, 9, {"id": 1}, {"a": "late"})])
    bench.deliver([bench.event(2, 9, {"id": 2}, {"a": "x"}), bench.event(2, 9, {"id": 3}, {}, table="later")])
    before, accepted = state(bench), bench.membership
    for fuse in range(1000):
        left = [fuse]

        def burn(_point: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise StoppedError

        bench.fault = burn
        try:
            judge_anew(bench, retired(5))
            break
        except StoppedError:
            bench.fault = no_fault
            bench.reopen()
            assert state(bench) == before
            assert bench.membership is accepted
    assert fuse > 10
    bench.fault = no_fault
    bench.reopen()
    assert bench.sql("SELECT id, a FROM t") == [(1, "early")]
    assert bench.sql("SELECT position FROM meshnode_log") == [(1,)]
    assert bench.sql("PRAGMA integrity_check") == [("ok",)]


EVENTS = st.lists(
    st.tuples(
        st.sampled_from((1, 2, 3)),
        st.integers(0, 12),
        st.integers(0, 2),
        st.one_of(st.none(), st.dictionaries(st.sampled_from("abz"), st.sampled_from(("x", "y", None)), max_size=2)),
    ),
    max_size=14,
)


@settings(max_examples=40, deadline=None)
@given(EVENTS, st.integers(0, 12), st.sampled_from((1, 2)), st.booleans(), st.none() | st.integers(0, 30))
def test_taken_back_is_as_if_it_had_never_come(
    drawn: list[tuple[int, int, int, Any]], cutoff: int, site: int, unregistered: bool, killed_after: int | None
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        left, right = Bench(folder, name="left.db"), Bench(folder, name="right.db", membership=retired(cutoff, site))
        for bench in (left, right):
            if not unregistered:
                bench.engine.register_table(PLAIN)
            events: list[Event] = [bench.event(by, at, {"id": key}, columns) for by, at, key, columns in drawn]
            bench.deliver(events, author_stream=False)
        if killed_after is not None:
            step_by_step(left, retired(cutoff, site), killed_after)
        else:
            judge_anew(left, retired(cutoff, site))
        for bench in (left, right):
            bench.reopen()
            if unregistered:
                bench.engine.register_table(PLAIN)
        assert state(left) == state(right)
        assert left.read(check_store, sqlite3, left.membership.key_of).differences == []
        for bench in (left, right):
            bench.engine.close()

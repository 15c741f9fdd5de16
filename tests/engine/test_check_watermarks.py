"""`check` and watermarks: one that claims more than the log can show is named, one that it cannot tell is counted."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from support.engines import PLAIN, Bench
from support.mesh_context import START_MS
from support.records import site_key

from meshnode.engine import retention
from meshnode.engine.check import check_store
from meshnode.engine.findings import Findings
from meshnode.engine.registry import TableSpec
from meshnode.engine.write import LocalChange
from meshnode.limits import SKEW_MS
from meshnode.model.hlc import Hlc
from meshnode.model.site import short_text
from meshnode.model.wording import clock_text
from meshnode.store import watermarks
from meshnode.store.database import Tx
from meshnode.store.watermarks import Group

LATE = TableSpec("main", "late", {"id": ""}, {"a": ""})


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Site 2 has three groups: one applied, one held, one with a rejected event above what is applied."""
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    bench.engine.register_table(TableSpec("s", "t", {"id": ""}, {"a": ""}))
    bench.deliver([bench.event(2, clock, {"id": clock}, {"a": clock}) for clock in (1, 3)])
    bench.deliver([bench.event(2, clock, {"id": clock}, {"a": clock}, table="late") for clock in (4, 6)])
    bench.deliver([bench.event(2, clock, {"id": 1}, {}, schema="s") for clock in (7, SKEW_MS + 1)])
    bench.engine.write([LocalChange("main", "t", {"id": "own"}, {"a": 1})])
    return bench


def checked(bench: Bench) -> Findings:
    found: Findings = bench.read(check_store, sqlite3, bench.membership.key_of)
    return found


def claim(bench: Bench, table: str, ms: int, *, site: int = 2, reached: int | None = None) -> None:
    """Store a watermark as no honest path would."""
    context = bench.engine.context

    def work(tx: Tx) -> None:
        schema, _, name = table.rpartition(".")
        table_no = context.tables.number(tx, context.tables.entry(tx, schema or "main", name))
        site_no = context.sites.number(tx, site_key(site).site)
        before = watermarks.load(tx, site_no, table_no) or Group(site_no, table_no)
        before.applied = Hlc(START_MS + ms, 0)
        before.reached = max(before.reached, before.applied) if reached is None else Hlc(START_MS + reached, 0)
        watermarks.save(tx, [before])

    context.transact(work)


def told(ms: int) -> str:
    return clock_text((START_MS + ms, 0))


def test_what_the_door_claimed_is_recomputed(bench: Bench) -> None:
    found = checked(bench)
    assert (found.differences, found.given) == ([], 0)
    marks = bench.read(watermarks.all_watermarks)
    assert len([mark for mark in marks if mark.site == site_key(2).site]) == 2
    assert len(marks) == 3


FALSIFIED: dict[str, tuple[Callable[[Bench], object], str, int, str]] = {
    "held": (lambda b: claim(b, "late", 5), "late", 2, f"it claims {told(5)}, and the event at {told(4)} is held"),
    "held, at the end": (
        lambda b: claim(b, "late", 6),
        "late",
        2,
        f"it claims {told(6)}, and the event at {told(4)} is held",
    ),
    "rejected": (
        lambda b: claim(b, "s.t", SKEW_MS + 1),
        "s.t",
        2,
        f"it claims {told(SKEW_MS + 1)}, and the event at {told(SKEW_MS + 1)} was rejected and is not here",
    ),
    "beyond what was reached": (
        lambda b: claim(b, "t", 9, reached=3),
        "t",
        2,
        f"it claims {told(9)}, and nothing beyond {told(3)} was reached",
    ),
    "beyond the node's own clock": (
        lambda b: claim(b, "t", 10**9, site=1),
        "t",
        1,
        f"it claims {told(10**9)}, and this node's own clock is at",
    ),
    "an event on which a row stands is gone": (
        lambda b: b.sql("DELETE FROM meshnode_log WHERE position = 1"),
        "t",
        2,
        f"it claims {told(3)}, and the event at {told(1)}, on which a row stands, is not in the log",
    ),
}


@pytest.mark.parametrize("kind", FALSIFIED)
def test_one_that_claims_more_than_can_be_shown_is_named(bench: Bench, kind: str) -> None:
    falsify, table, site, what = FALSIFIED[kind]
    falsify(bench)
    where = f"watermark of {short_text(site_key(site).site)}"
    named = [each for each in checked(bench).differences if each.where == where]
    assert [(each.table, what in each.what) for each in named] == [(table, True)]


UNREADABLE: dict[str, Callable[[Bench], object]] = {
    "reached": lambda b: b.sql("UPDATE meshnode_watermarks SET reached = x'00'"),
    "clock": lambda b: b.sql("UPDATE meshnode_watermarks SET physical = 'x'"),
    "table": lambda b: b.sql("UPDATE meshnode_watermarks SET table_no = 99 WHERE rejected_low IS NOT NULL"),
    "site": lambda b: b.sql("UPDATE meshnode_watermarks SET site_no = 99 WHERE rejected_low IS NOT NULL"),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_one_that_cannot_be_read_is_named(bench: Bench, kind: str) -> None:
    UNREADABLE[kind](bench)
    assert [each.where.split()[0].rstrip("s") for each in checked(bench).differences] == ["watermark"]


def test_one_that_ends_at_no_event_of_the_log_is_taken_as_given(bench: Bench) -> None:
    claim(bench, "t", 8)
    claim(bench, "t", 8, site=3)
    assert (checked(bench).differences, checked(bench).given) == ([], 2)


def test_what_was_taken_out_on_purpose_is_taken_as_given(bench: Bench) -> None:
    bench.time.now_ms += 1000
    sweep = retention.evict(bench.engine.context, "main", "t", Hlc(START_MS + 500, 0), everything=True)
    while sweep.step():
        pass
    sweep.finish()
    found = checked(bench)
    assert found.differences == []
    given = 2 * 2 + 2 + 2  # of both rows a column and its value, and that they exist; both watermarks of the table
    assert found.given >= given


def test_what_is_in_the_log_was_not_missed_whatever_the_wall_clock_made_of_it_later(bench: Bench) -> None:
    bench.time.now_ms -= 2 * SKEW_MS
    assert bench.deliver([bench.event(2, 3, {"id": 3}, {"a": 3})]) == ["rejected:skew"]
    found = checked(bench)
    assert (found.differences, found.given) == ([], 0)


def test_an_event_that_came_late_by_its_authors_fault_is_no_difference(bench: Bench) -> None:
    """The watermark stood above it before it came, and watermarks are monotonic."""
    bench.sql("DROP TABLE t")
    assert bench.deliver([bench.event(2, 2, {"id": 2}, {"a": 2})]) == ["held"]
    found = checked(bench)
    assert ([each.where for each in found.differences], found.given) == (["table"], 1)

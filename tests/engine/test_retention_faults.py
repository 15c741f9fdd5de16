"""The process ends before any statement of an eviction, a compaction or a forgetting: nothing is wrong afterwards."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from support.engines import PLAIN, Bench
from support.mesh_context import TestTime

from meshnode.engine import retention
from meshnode.engine.check import check_store
from meshnode.engine.forget import forget
from meshnode.engine.sweep import Sweep
from meshnode.model.hlc import Hlc
from meshnode.store import removed

NOW = TestTime().now_ms
KEY = {"id": "PRIVATE"}
EVENTS = 9


class Stopped(BaseException):
    """The process ends here."""


def filled(folder: Path) -> Bench:
    folder.mkdir()
    bench = Bench(folder)
    bench.engine.register_table(PLAIN)
    bench.time.now_ms = NOW + 100_000
    bench.deliver([bench.event(2, each, KEY, {"a": f"PRIVATE {each}"}) for each in range(1, 4)])
    bench.deliver([bench.event(3, each, {"id": "y"}, {"b": each, "unknown": 1}) for each in range(4, 7)], peer=3)
    bench.deliver([bench.event(2, 8, {"id": "z"}, {"c": 1}), bench.event(2, 9, {"id": "z"}, None)])
    bench.deliver([bench.event(2, 10, {"id": "z"}, {"a": 2})])
    return bench


def run(sweep: Sweep) -> None:
    while sweep.step():
        pass
    sweep.finish()


def evict(bench: Bench) -> None:
    run(retention.evict(bench.engine.context, "main", "t", Hlc(NOW + 7, 0)))


def evict_all(bench: Bench) -> None:
    run(retention.evict(bench.engine.context, "main", "t", Hlc(NOW + 7, 0), everything=True))


def compact(bench: Bench) -> None:
    run(retention.compaction(bench.engine.context, "main", "t"))


def forget_row(bench: Bench) -> None:
    forget(bench.engine.context, "main", "t", KEY)


def assert_sound(bench: Bench) -> None:
    """Nothing differs from the log, and what is not in the log is recorded as removed."""
    found = bench.read(lambda tx: check_store(tx, sqlite3, bench.membership.key_of))
    assert [(each.where, each.what) for each in found.differences] == []
    kept = {each[0] for each in bench.sql("SELECT position FROM meshnode_log")}
    recorded = bench.read(lambda tx: {each for each in range(1, EVENTS + 1) if removed.is_recorded(tx, each)})
    assert kept | recorded == set(range(1, EVENTS + 1))
    assert kept & recorded == set()


@pytest.mark.parametrize("work", [evict, evict_all, compact, forget_row])
def test_the_process_ends_before_any_statement(work: Callable[[Bench], None], tmp_path: Path) -> None:
    whole = filled(tmp_path / "whole")
    before = whole.digest()
    work(whole)
    assert_sound(whole)
    after = whole.digest()
    for stop in range(10_000):
        bench = filled(tmp_path / str(stop))
        left = iter(range(stop))

        def fault(_point: str, left: object = left) -> None:
            if next(left, None) is None:  # type: ignore[call-overload]
                raise Stopped

        bench.fault = fault
        try:
            work(bench)
        except Stopped:
            done = False
        else:
            done = True
        bench.fault = lambda _point: None
        bench.reopen()
        assert bench.digest() in (before, after)
        assert_sound(bench)
        work(bench)
        assert bench.digest() == after
        assert_sound(bench)
        assert bench.sql("SELECT position FROM meshnode_log") == whole.sql("SELECT position FROM meshnode_log")
        if work is forget_row:
            files = [each for each in bench.path.parent.iterdir() if each.name.startswith(bench.path.name)]
            assert not any(b"PRIVATE" in each.read_bytes() for each in files)
        bench.engine.close()
        if done:
            assert stop > 10
            return
    raise AssertionError("it never came to its end")

"""The erasure that a forgetting promises: durable across a crash at any point, told while it is due, and done."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from support.engines import PLAIN, Bench
from support.mesh_context import TestTime

from meshnode.engine.forget import ERASURE_DUE, erase, forget, go_on_erasing
from meshnode.errors import BusyError, StoreError
from meshnode.store import traces

KEY = {"id": "PRIVATE-KEY-of-the-row"}
WORDS = (b"PRIVATE", b"SECRET")
WAIT_MS = 20
POINTS = ("VACUUM", "PRAGMA wal_checkpoint", "DELETE FROM meshnode_meta WHERE name = ?")  # what follows the forgetting


class Stopped(BaseException):
    """The process ends here."""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A row with long and short values between others, so that free pages and free space of pages hold its text.

    Some builds of SQLite overwrite what is deleted; not all do, and not what moves from one page to another.
    """
    bench = Bench(tmp_path)
    bench.engine.context.db._connection.execute("PRAGMA secure_delete = OFF")
    bench.engine.register_table(PLAIN)
    bench.time.now_ms = TestTime().now_ms + 100_000
    for number in range(60):
        bench.deliver([bench.event(2, number, {"id": f"r{number}"}, {"a": "filler" * (number % 40)})])
    bench.deliver([bench.event(2, 70, KEY, {"a": "SECRET", "b": "SECRET" * 2000})])
    bench.deliver([bench.event(2, 71, KEY, {"a": "SECRET again"})])
    return bench


def found(bench: Bench) -> list[str]:
    """The files of the database that hold any of the words: itself, its WAL, its shared memory."""
    files = [each for each in bench.path.parent.iterdir() if each.name.startswith(bench.path.name)]
    assert bench.path in files
    return sorted(each.name for each in files if any(word in each.read_bytes() for word in WORDS))


def due(bench: Bench) -> str | None:
    stage: str | None = bench.read(traces.erasure_due)
    return stage


@contextmanager
def reading(bench: Bench) -> Iterator[None]:
    """Another program in the middle of a snapshot."""
    with closing(sqlite3.connect(bench.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM meshnode_log").fetchone()
        yield


def forget_row(bench: Bench) -> None:
    forget(bench.engine.context, "main", "t", KEY)


def assert_erased(bench: Bench) -> None:
    assert found(bench) == []
    assert due(bench) is None
    assert ERASURE_DUE not in bench.notices()
    assert bench.get(KEY) is None
    assert bench.sql("PRAGMA integrity_check") == [("ok",)]


@pytest.mark.parametrize("point", POINTS)
def test_a_forgetting_that_was_cut_short_is_finished_after_the_restart(bench: Bench, point: str) -> None:
    """The files are taken as they lie when the power goes."""
    image = bench.path.with_name("image.db")

    def fault(statement: str) -> None:
        if statement == point:
            for suffix in ("", "-wal"):
                shutil.copy(f"{bench.path}{suffix}", f"{image}{suffix}")
            raise Stopped

    bench.fault = fault
    with pytest.raises(Stopped):
        forget_row(bench)
    bench.fault = lambda _point: None
    bench.engine.close()
    bench.path = image
    assert bool(found(bench)) == (point != POINTS[2])
    bench.reopen()
    assert due(bench) == (traces.REWRITE if point == "VACUUM" else traces.EMPTY_WAL)
    go_on_erasing(bench.engine.context, WAIT_MS)
    assert_erased(bench)


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_process_leaves_what_the_next_one_finishes(bench: Bench, point: str) -> None:
    def fault(statement: str) -> None:
        if statement == point:
            os.kill(os.getpid(), signal.SIGKILL)

    bench.engine.close()
    child = os.fork()
    if child == 0:
        bench.fault = fault
        bench.reopen()
        forget_row(bench)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert bool(found(bench)) == (point != POINTS[2])
    bench.reopen()
    assert due(bench) is not None
    go_on_erasing(bench.engine.context, WAIT_MS)
    assert_erased(bench)


def test_it_is_told_from_the_restart_on_until_it_is_done(bench: Bench) -> None:
    def fault(statement: str) -> None:
        if statement == "VACUUM":
            seen.append(ERASURE_DUE in bench.notices())
            if len(seen) == 1:
                raise Stopped

    seen: list[bool] = []
    bench.fault = fault
    with pytest.raises(Stopped):
        forget_row(bench)
    bench.reopen()
    go_on_erasing(bench.engine.context, WAIT_MS)
    assert seen == [False, True]
    assert_erased(bench)


def test_a_reader_in_the_way_is_told_and_the_file_is_written_anew_once(bench: Bench) -> None:
    """A busy checkpoint is not done; but what it waits for is the WAL alone."""
    points: list[str] = []
    bench.fault = points.append
    bench.engine.context.db._connection.execute(f"PRAGMA busy_timeout = {WAIT_MS}")
    with reading(bench):
        with pytest.raises(BusyError, match="another program reads"):
            forget_row(bench)
        for _ in range(3):
            with pytest.raises(BusyError):
                go_on_erasing(bench.engine.context, WAIT_MS)
        assert due(bench) == traces.EMPTY_WAL
        assert found(bench)
        notice = bench.notices()[ERASURE_DUE]
        assert "another program reads" in notice.sample
        assert notice.count == 1
    go_on_erasing(bench.engine.context, WAIT_MS)
    assert_erased(bench)
    assert points.count("VACUUM") == 1
    assert points.count("PRAGMA wal_checkpoint") == 5
    assert bench.path.with_name(bench.path.name + "-wal").stat().st_size < 25_000  # the taking away of the note alone


def test_a_reader_that_outlives_the_process_changes_nothing_of_it(bench: Bench) -> None:
    bench.engine.context.db._connection.execute(f"PRAGMA busy_timeout = {WAIT_MS}")
    with reading(bench):
        with pytest.raises(BusyError):
            forget_row(bench)
        bench.reopen()
        assert ERASURE_DUE in bench.notices()
    go_on_erasing(bench.engine.context, WAIT_MS)
    assert_erased(bench)


def test_another_row_that_is_forgotten_meanwhile_is_erased_as_well(bench: Bench) -> None:
    bench.engine.context.db._connection.execute(f"PRAGMA busy_timeout = {WAIT_MS}")
    bench.deliver([bench.event(2, 80, {"id": "PRIVATE too"}, {"a": "SECRET too"})])
    with reading(bench):
        with pytest.raises(BusyError):
            forget_row(bench)
        with pytest.raises(BusyError):
            forget(bench.engine.context, "main", "t", {"id": "PRIVATE too"})
    go_on_erasing(bench.engine.context, WAIT_MS)
    assert_erased(bench)


def test_a_full_disk_is_told_and_tried_again(bench: Bench) -> None:
    def full(point: str) -> None:
        if point == "VACUUM":
            raise sqlite3.OperationalError("database or disk is full")

    bench.fault = full
    with pytest.raises(StoreError, match="try again"):
        forget_row(bench)
    assert "disk is full" in bench.notices()[ERASURE_DUE].sample
    bench.fault = lambda _point: None
    assert due(bench) == traces.REWRITE
    erase(bench.engine.context)
    assert_erased(bench)


def test_where_nothing_is_due_nothing_is_rewritten(bench: Bench) -> None:
    points: list[str] = []
    bench.fault = points.append
    go_on_erasing(bench.engine.context, WAIT_MS)
    assert "VACUUM" not in points
    assert "PRAGMA wal_checkpoint" not in points

"""The writer stopped before every single SQL statement: what is on disk is one whole state, and going on ends equal.

Once by an error inside the living process, once as the files lay when the power went at that moment (profile §8).
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from support.engines import PLAIN, Bench, members
from support.mesh_context import START_MS
from support.records import site_key

from meshnode.engine import retention
from meshnode.engine.check import check_store
from meshnode.engine.registry import TableSpec
from meshnode.engine.standing import take_effect
from meshnode.engine.sweep import Sweep
from meshnode.engine.write import LocalChange
from meshnode.model.hlc import Hlc
from meshnode.store.database import Tx

Step = Callable[[Bench], object]
State = tuple[tuple[str, tuple[object, ...]], ...]


class StoppedError(Exception):
    """What the fault hook raises."""


def deliver(*writes: tuple[int, int, dict[str, object], dict[str, object] | None], table: str = "t") -> Step:
    """A batch from a peer."""
    return lambda bench: bench.deliver([bench.event(*write, table=table) for write in writes])


def author(*writes: tuple[str, dict[str, object] | None]) -> Step:
    """Writes of the node itself, which a repeat must not double: done only where the rows are not so yet."""

    def step(bench: Bench) -> None:
        wanted = {name: columns for name, columns in writes if bench.get({"id": name}) != columns}
        if wanted:
            bench.engine.write([LocalChange("main", "t", {"id": name}, each) for name, each in wanted.items()])

    return step


def add_column(bench: Bench) -> None:
    """The application changes its table; the next batch meets the change."""
    if not bench.sql("SELECT 1 FROM pragma_table_info('t') WHERE name = 'z'"):
        bench.sql("ALTER TABLE t ADD COLUMN z")


def swept(begin: Callable[[Bench], Sweep]) -> Step:
    """Eviction and compaction: small transactions, begun again after a stop."""

    def step(bench: Bench) -> None:
        bench.time.now_ms = START_MS + 1000  # a horizon lies in the past
        sweep = begin(bench)
        while sweep.step():
            pass
        sweep.finish()

    return step


def retire(bench: Bench) -> None:
    """What site 3 wrote above its cutoff is taken back."""
    context, before = bench.engine.context, bench.membership
    keys = [site_key(number).public_key for number in (1, 2, 3)]
    after = members(keys, cutoffs={site_key(3).site: Hlc(START_MS + 9, 0)})

    def change(tx: Tx) -> None:
        context.set_membership(after)
        take_effect(context, tx, before, after)

    context.transact(change)
    bench.membership = after


STEPS: tuple[Step, ...] = (
    lambda bench: bench.engine.register_table(PLAIN),
    deliver((2, 1, {"id": 1}, {"a": 1, "b": "x"}), (3, 2, {"id": 1}, {"b": "y", "z": 1}), (2, 3, {"id": 2}, {"a": 1})),
    deliver((2, 4, {"id": 2}, None), (2, 4, {"id": 2}, None), (3, 5, {"no": 1}, {}), (2, 600_000, {"id": 1}, {"a": 9})),
    deliver((2, 6, {"id": 1}, {"v": 1}), (3, 7, {"id": 1}, None), (3, 8, {"id": 2}, {"v": b"v"}), table="late"),
    author(("own", {"a": 1}), ("gone", {"b": None})),
    lambda bench: bench.engine.register_table(TableSpec("main", "late", {"id": ""}, {"v": ""})),
    deliver(
        (2, 9, {"id": 2}, {"c": 1.5}), (3, 1, {"id": 3}, {}), (3, 10, {"id": 3}, None), (2, 11, {"id": 3}, {"a": 3})
    ),
    add_column,
    deliver((3, 30, {"id": 1}, {"z": "after"})),
    lambda bench: bench.engine.set_horizon("main", "t", Hlc(START_MS + 5, 0)),
    deliver((2, 2, {"id": 5}, {"a": 5}), (2, 31, {"id": 2}, {"a": 6}), (3, 32, {"id": 1}, None)),
    swept(lambda bench: retention.compaction(bench.engine.context, "main", "late")),
    swept(lambda bench: retention.evict(bench.engine.context, "main", "t", Hlc(START_MS + 5, 0))),
    retire,
)


def whole(path: Path) -> State:
    """Every row of every table, the node's own included."""
    with closing(sqlite3.connect(path)) as connection:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")]
        return tuple((name, row) for name in names for row in connection.execute(f'SELECT * FROM "{name}"').fetchall())


def visible(bench: Bench) -> list[object]:
    """What must not depend on where the node was stopped; clocks of its own writes may."""
    sums = [bench.digest(table) for table in ("t", "late")]
    marks = bench.sql("SELECT * FROM meshnode_watermarks WHERE site_no <> 0 ORDER BY site_no, table_no")
    foreign = [
        row
        for row in marks
        if bench.sql("SELECT site FROM meshnode_sites WHERE no = ?", row[0])[0][0] != bench.key.site
    ]
    return [sums, foreign]


def assert_sound(bench: Bench) -> None:
    while bench.engine.follow_schema():
        pass
    assert bench.sql("PRAGMA integrity_check") == [("ok",)]
    found = bench.read(check_store, sqlite3, bench.membership.key_of)
    assert found.differences == []


def finished(folder: Path) -> list[object]:
    """The state that every run has to end in."""
    bench = Bench(folder, name="whole.db")
    for step in STEPS:
        step(bench)
    assert_sound(bench)
    bench.engine.close()
    return visible(bench)


def test_an_error_before_any_statement_changes_nothing(tmp_path: Path) -> None:
    """The process lives on with the same connection and caches: each step is tried until no statement fails."""
    bench = Bench(tmp_path)
    stops = 0
    for step in STEPS:
        allowed = 0
        while True:
            left, committed = allowed, 0

            def fault(point: str) -> None:
                nonlocal left, committed
                if left == 0:
                    raise StoppedError(point)
                left -= 1
                committed += point == "COMMIT"

            before = whole(bench.path)
            bench.fault = fault
            try:
                step(bench)
                break
            except StoppedError:
                stops += 1
                allowed += 1
                bench.fault = lambda _point: None
                assert committed or whole(bench.path) == before
            finally:
                bench.fault = lambda _point: None
        assert_sound(bench)
    assert stops > 100
    assert visible(bench) == finished(tmp_path)


def test_power_that_goes_before_any_statement_leaves_a_whole_state(tmp_path: Path) -> None:
    """Database and WAL are copied before each statement; each copy opens, is clean, and ends like the others."""
    bench = Bench(tmp_path)
    images: list[tuple[Path, str]] = []

    def fault(point: str) -> None:
        image = tmp_path / f"image-{len(images)}.db"
        for suffix in ("", "-wal"):
            shutil.copy(f"{bench.path}{suffix}", f"{image}{suffix}")
        images.append((image, point))

    bench.fault = fault
    for step in STEPS:
        step(bench)
    bench.fault = lambda _point: None
    expected, before, after_commit = finished(tmp_path), None, True
    for image, point in images:
        now = whole(image)
        assert after_commit or now == before, f"{point} after a statement that committed nothing"
        if after_commit:  # every other copy is equal to the one before
            _goes_on(bench, image, expected)
        before, after_commit = now, point == "COMMIT"
    assert len(images) > 100


def _goes_on(bench: Bench, image: Path, expected: list[object]) -> None:
    """Restart on a copy, look at it, and do everything again: what was done already changes nothing."""
    bench.engine.close()
    bench.path, bench.membership = image, members(site_key(number).public_key for number in (1, 2, 3))
    bench.reopen()
    assert_sound(bench)
    for step in STEPS:
        step(bench)
    assert_sound(bench)
    assert visible(bench) == expected

"""The writer stopped before every single SQL statement: what is on disk is one whole state, and going on ends equal.

Once by an error inside the living process, once as the files lay when the power went at that moment (profile §8).
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from support.engines import PLAIN, Bench, members
from support.mesh_context import START_MS
from support.records import site_key

from meshnode.engine import outbox, retention
from meshnode.engine.check import check_store
from meshnode.engine.forget import forget, unforget
from meshnode.engine.offer import Filter
from meshnode.engine.registry import TableSpec
from meshnode.engine.standing import take_effect
from meshnode.engine.sweep import Sweep
from meshnode.engine.write import LocalChange
from meshnode.errors import NotFoundError
from meshnode.model.delivery import PATH
from meshnode.model.hlc import Hlc
from meshnode.model.membership import Membership
from meshnode.store import log
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


def change_table(*statements: str) -> Step:
    """The application changes its tables, as far as it did not before; the next batch meets the change."""

    def step(bench: Bench) -> None:
        for statement in statements:
            with suppress(sqlite3.OperationalError):
                bench.sql(statement)

    return step


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


def follow(bench: Bench) -> None:
    """Rows that are behind the schema, or a horizon, are brought up."""
    while bench.engine.follow_schema():
        pass


def stage(bench: Bench) -> None:
    """Frames in flight to a peer: what is forgotten later has to leave them too."""
    context, peer = bench.engine.context, site_key(3).site
    if bench.sql("SELECT 1 FROM meshnode_outbound"):
        return
    opened = outbox.open_epoch(context, peer, PATH, expected=None, at=outbox.GENESIS)
    assert opened is not None
    outbox.advance(
        context,
        peer,
        PATH,
        epoch=opened.epoch,
        settled=[],
        known_no=0,
        room=8,
        retry=False,
        watermarks=False,
        offered=Filter(),
    )


def undo_forgetting(bench: Bench) -> None:
    with suppress(NotFoundError):  # done already
        unforget(bench.engine.context, "main", "late", {"id": 2})


FIRST = deliver(
    (2, 1, {"id": 1}, {"a": 1, "b": "x"}), (3, 2, {"id": 1}, {"b": "y", "z": 1}), (2, 3, {"id": 2}, {"a": 1})
)
SECOND = deliver(
    (2, 4, {"id": 2}, None), (2, 4, {"id": 2}, None), (3, 5, {"no": 1}, {}), (2, 600_000, {"id": 1}, {"a": 9})
)
THIRD = deliver(
    (2, 9, {"id": 2}, {"c": 1.5}), (3, 1, {"id": 3}, {}), (3, 10, {"id": 3}, None), (2, 11, {"id": 3}, {"a": 3})
)
LATE = deliver((2, 6, {"id": 1}, {"v": 1}), (3, 7, {"id": 1}, None), (3, 8, {"id": 2}, {"v": b"v"}), table="late")
STEPS: tuple[Step, ...] = (
    lambda bench: bench.engine.register_table(PLAIN),
    FIRST,
    SECOND,
    LATE,
    author(("own", {"a": 1}), ("gone", {"b": None})),
    lambda bench: bench.engine.register_table(TableSpec("main", "late", {"id": ""}, {"v": ""})),
    THIRD,
    change_table("ALTER TABLE t ADD COLUMN z"),
    deliver((3, 30, {"id": 1}, {"z": "after"})),
    lambda bench: bench.engine.set_horizon("main", "t", Hlc(START_MS + 5, 0)),
    deliver((2, 2, {"id": 5}, {"a": 5}), (2, 31, {"id": 2}, {"a": 6}), (3, 32, {"id": 1}, None)),
    swept(lambda bench: retention.compaction(bench.engine.context, "main", "late")),
    swept(lambda bench: retention.evict(bench.engine.context, "main", "t", Hlc(START_MS + 5, 0))),
    retire,
    stage,
    lambda bench: forget(bench.engine.context, "main", "late", {"id": 2}),
    LATE,
    change_table("ALTER TABLE t DROP COLUMN z", "ALTER TABLE t ADD COLUMN y"),
    deliver((2, 40, {"id": 2}, {"y": 1, "z": 2}), (2, 41, {"id": 3}, {"a": 4})),
    change_table("DROP TABLE t", "CREATE TABLE t (id PRIMARY KEY, y INT, a, b, c)"),
    deliver((2, 42, {"id": 6}, {"y": "1"})),
    undo_forgetting,
    LATE,
    lambda bench: retention.rehydrate(bench.engine.context, "main", "t"),
    follow,
    FIRST,
    SECOND,
    THIRD,
)


def whole(path: Path) -> State:
    """Every row of every table, the node's own included."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
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
    events = [data for (data,) in bench.sql("SELECT event FROM meshnode_log")]
    known = sorted(event.event_id for event in map(log.parse, events) if event.site != bench.key.site)
    return [sums, foreign, known]


def assert_sound(bench: Bench) -> None:
    follow(bench)
    assert bench.sql("PRAGMA integrity_check") == [("ok",)]
    assert bench.read(check_store, sqlite3, bench.membership.key_of).differences == []


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


@dataclass(frozen=True)
class Image:
    """The files as they lay before one statement."""

    path: Path
    point: str
    step: int
    membership: Membership


def test_power_that_goes_before_any_statement_leaves_a_whole_state(tmp_path: Path) -> None:
    """Database and WAL are copied before each statement; each copy opens, is clean, and ends like the others.

    It goes on with the step that was under way; every tenth does everything again, which changes nothing.
    """
    bench = Bench(tmp_path)
    initial = bench.membership
    images: list[Image] = []
    for number, step in enumerate(STEPS):

        def fault(point: str, number: int = number) -> None:
            image = Image(tmp_path / f"image-{len(images)}.db", point, number, bench.membership)
            for suffix in ("", "-wal"):
                shutil.copy(f"{bench.path}{suffix}", f"{image.path}{suffix}")
            images.append(image)

        bench.fault = fault
        step(bench)
    bench.fault = lambda _point: None
    expected, before, commits = finished(tmp_path), None, 0
    for place, image in enumerate(images):
        now = whole(image.path)
        if place and images[place - 1].point != "COMMIT":  # equal to the one before
            assert now == before, f"{image.point} after a statement that committed nothing"
        else:
            commits += 1
            again = commits % 10 == 0
            _goes_on(bench, image.path, initial if again else image.membership, STEPS[0 if again else image.step :])
            assert visible(bench) == expected
        before = now
    assert commits > 30


def _goes_on(bench: Bench, image: Path, membership: Membership, steps: Sequence[Step]) -> None:
    """Restart on a copy, look at it, and do these steps."""
    bench.engine.close()
    bench.path, bench.membership = image, membership
    bench.reopen()
    assert_sound(bench)
    for step in steps:
        step(bench)
    assert_sound(bench)

"""Two applications that write SQL at random, events between them, crashes anywhere: rows end equal, nothing is lost.

What each transaction of an application changed is known from the table before and after it; each such value has to be
in an event sooner or later, whatever came from the other node meanwhile, and an idle pair falls silent.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support.engines import Bench
from support.mesh_context import TestTime

from meshnode.engine.check import check_store
from meshnode.engine.findings import Findings
from meshnode.engine.registry import TableSpec
from meshnode.model.event import Event
from meshnode.store import log

TABLES = {
    "rowid": "CREATE TABLE t (id TEXT PRIMARY KEY, a, b INTEGER, c DEFAULT 'new')",
    "without-rowid": "CREATE TABLE t (id TEXT NOT NULL PRIMARY KEY, a, b, c NOT NULL DEFAULT 'new') WITHOUT ROWID",
    "numbers": "CREATE TABLE t (id INTEGER PRIMARY KEY, a, b TEXT, c)",
}
REBUILD = """
    ALTER TABLE t RENAME TO old_t; {create};
    INSERT INTO t (id, a, b, c) SELECT id, a, b, c FROM old_t; DROP TABLE old_t;
"""
STATEMENTS = (
    "INSERT OR IGNORE INTO t (id, a) VALUES (:id, :value)",
    "INSERT OR REPLACE INTO t (id, b) VALUES (:id, :value)",
    "INSERT INTO t (id, a, c) VALUES (:id, :value, 'c') ON CONFLICT (id) DO UPDATE SET a = excluded.a, c = :value",
    "UPDATE t SET a = :value WHERE id = :id",
    "UPDATE t SET b = :value WHERE id >= :id",
    "UPDATE t SET a = NULL, c = :value WHERE id = :id",
    "UPDATE OR REPLACE t SET id = :id WHERE id = :other",
    "UPDATE t SET a = a",
    "DELETE FROM t WHERE id = :id",
    "DELETE FROM t WHERE id > :id",
)
CREATED = STATEMENTS[:3]


class Stopped(Exception):
    """The process dies at this statement."""


class Side:
    """One node with its application."""

    def __init__(self, folder: Path, number: int, time: TestTime, create: str) -> None:
        self.number, self.create = number, create
        self.fuse: int | None = None
        self.bench = Bench(folder, own=number, time=time, name=f"{number}.db", fault=self._fault)
        self.bench.sql(create)
        self.bench.engine.adopt_tables([TableSpec("main", "t", own_numbers=True)])
        self.app = sqlite3.connect(self.bench.path, isolation_level=None, timeout=10)
        self.app.execute("PRAGMA synchronous = OFF")
        self.owed: dict[tuple[Any, str], Any] = {}
        self.read = 0  # position up to which the other node has what is here

    def _fault(self, _point: str) -> None:
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                raise Stopped

    def rows(self) -> dict[Any, dict[str, Any]]:
        found = self.app.execute("SELECT id, a, b, c FROM t ORDER BY id").fetchall()
        return {key: dict(zip("abc", values, strict=True)) for key, *values in found}

    def transact(self, random: Random, counter: int, statements: list[str]) -> None:
        before = self.rows()
        self.app.execute(f"PRAGMA recursive_triggers = {random.randrange(2)}")
        self.app.execute("BEGIN IMMEDIATE")
        for at, statement in enumerate(statements):
            key, other = (random.choice((1, 2, 3)) for _ in range(2))
            text = "PRIMARY KEY, a, b TEXT" not in self.create
            names = {"id": f"k{key}" if text else key, "other": f"k{other}" if text else other}
            value = random.choice((f"v{counter}-{at}", counter * 100 + at, float(counter) + 0.5))
            self.app.execute(statement, {**names, "value": value})
        self.app.execute(random.choice(("COMMIT",) * 4 + ("ROLLBACK",)))
        after = self.rows()
        for key in before.keys() | after.keys():
            for name in "abc":
                old, new = (rows.get(key, {}).get(name) for rows in (before, after))
                if key not in after:
                    self.owed.pop((key, name), None)
                elif (type(old), old) != (type(new), new):
                    self.owed[key, name] = new

    def stop_within(self, fuse: int | None, work: Any) -> None:
        self.fuse = fuse
        with suppress(Stopped):
            work()
            self.fuse = None
            return
        self.fuse = None
        self.bench.reopen()

    def sign_all(self) -> None:
        while self.bench.engine.sign_captured() or self.bench.engine.follow_schema():
            pass

    def events(self, since: int = 0) -> list[tuple[int, Event]]:
        with self.bench.engine.context.transaction() as tx:
            sql = "SELECT position, event FROM meshnode_log WHERE position > ? ORDER BY position"
            return [(at, log.parse(data)) for at, data in tx.execute(sql, (since,)).fetchall()]

    def pay(self) -> None:
        """Everything is signed: each value that the application left is in an event."""
        before = self.rows()
        self.sign_all()
        assert self.rows() == before
        said: set[tuple[Any, str, type, Any]] = set()
        for _, event in self.events():
            for name, value in (event.columns or {}).items():
                said.add(((event.key or {})["id"], name, type(value), value))
        lost = {
            (key, name): value
            for (key, name), value in self.owed.items()
            if value is not None and (key, name, type(value), value) not in said
        }
        assert lost == {}
        self.owed.clear()


class Pair:
    """Both of them."""

    def __init__(self, folder: Path, seed: int, table: str) -> None:
        self.random = Random(f"{seed} {table}")
        self.time = TestTime()
        self.sides = [Side(folder, number, self.time, TABLES[table]) for number in (1, 2)]
        self.counter = 0

    def step(self) -> None:
        random, side = self.random, self.random.choice(self.sides)
        choice = random.random()
        self.counter += 1
        if choice < 0.5:
            statements = [random.choice(STATEMENTS) for _ in range(random.randrange(1, 4))]
            side.transact(random, self.counter, statements)
        elif choice < 0.6:
            side.stop_within(random.choice((None, random.randrange(40))), side.bench.engine.sign_captured)
        elif choice < 0.85:
            self.deliver(side, random.choice((None, random.randrange(80))), random.randrange(1, 8))
        elif choice < 0.9:
            side.pay()
        elif choice < 0.93:
            side.app.executescript(f"BEGIN;{REBUILD.format(create=side.create)}")
            side.app.execute("COMMIT")
            side.transact(random, self.counter, [random.choice(CREATED)])
            while side.bench.engine.follow_schema():
                pass
        else:
            self.time.now_ms += random.choice((1, 1000))

    def deliver(self, side: Side, fuse: int | None = None, most: int = 1000) -> bool:
        """Some events of one node reach the other one."""
        other = self.sides[side is self.sides[0]]
        events = side.events(side.read)[:most]
        if not events:
            return False

        def work() -> None:
            other.bench.deliver([event for _, event in events], peer=side.number)
            side.read = events[-1][0]

        other.stop_within(fuse, work)
        return True

    def settle(self) -> None:
        for side in self.sides:
            side.pay()
        for _ in range(4):  # once each way carries everything, and what comes back carries nothing new
            for side in self.sides:
                self.deliver(side)
            for side in self.sides:
                side.sign_all()
        assert not any(self.deliver(side) for side in self.sides)

    def close(self) -> None:
        for side in self.sides:
            side.app.close()
            side.bench.engine.close()


@pytest.mark.parametrize("table", list(TABLES))
@pytest.mark.parametrize("seed", range(6))
def test_rows_end_equal_and_nothing_is_lost(seed: int, table: str, tmp_path: Path) -> None:
    pair = Pair(tmp_path, seed, table)
    for _ in range(60):
        pair.step()
    pair.settle()
    one, two = (side.rows() for side in pair.sides)
    assert one == two
    for side in pair.sides:
        found: Findings = side.bench.read(check_store, sqlite3, side.bench.membership.key_of)
        assert found.differences == []
        assert side.app.execute("SELECT 1 FROM meshnode_captured UNION SELECT 1 FROM meshnode_gate").fetchall() == []
    pair.close()

"""One case against the reference model: the plan's steps on an engine, and what the model says of each.

The model is told what happened in its own words: which events there are, how SQLite declares each table, where horizons
stand. Verdicts are foretold, rows compared as the API and as SQL shows them, and the node checks itself.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeVar

import cbor2
from blake3 import blake3

from meshnode.engine.check import check_store
from meshnode.engine.registry import TableSpec
from meshnode.engine.write import LocalChange
from meshnode.errors import MeshError
from meshnode.model.event import Event
from meshnode.model.hlc import Hlc
from meshnode.store import queries
from meshnode.store.database import Tx, no_fault
from support.engines import MemoryBench
from support.judge import Judge, judge_of
from support.mesh_context import START_MS
from support.plans import SCHEMAS, TABLES, Plan, Schema, Step, Stop, Write, batches, keys_of
from support.records import site_key
from support.reference import Clock, Fact, Key, Rank, Row, identity, rows_of

T = TypeVar("T")

OWN_MS = 6  # the node's own wall clock, in ms after the tests' start: among those of the others
_SIGNED: dict[str, Event] = {}


class StoppedError(BaseException):
    """The fault hook raises it: nothing of the node may catch it."""


def split(table: str) -> tuple[str, str]:
    schema, dot, name = table.rpartition(".")
    return (schema if dot else "main"), name


@lru_cache(1024)
def _keys(schemas: tuple[Schema, Schema]) -> tuple[tuple[Mapping[str, Any], ...], ...]:
    return tuple(keys_of(schema) for schema in schemas)


class Run:
    """The node, and what the model knows."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.bench = MemoryBench()
        self.bench.time.now_ms = START_MS + OWN_MS
        self.events: dict[bytes, Event] = {}  # everything that was ever delivered or written
        self.facts: dict[bytes, Fact] = {}  # what the node kept of it
        self.tables: dict[str, Judge | None] = {}  # the registered ones; None while there is no table to write to
        self.horizons: dict[str, Clock] = dict.fromkeys(TABLES, (0, 0))
        self.given: dict[str, dict[Key, Row]] = {table: {} for table in TABLES}
        self.forgotten: set[tuple[str, Key]] = set()
        self.cutoff: Clock | None = None  # of site 3
        self.log_is_whole = True  # nothing was taken out of it
        self._batches: list[list[Event]] = []
        self.stop: Stop | None = None  # of the next job
        for table, at in plan.horizons.items():
            self.horizons[table] = (START_MS + at, 0)
            self.bench.engine.set_horizon(*split(table), Hlc(START_MS + at, 0))

    # --- steps

    def go(self, steps: tuple[Step, ...], migrate: Callable[[Step], None]) -> None:
        """Do all of them, and let every table exist at the end."""
        for writes, step in batches(steps):
            if writes:
                self.deliver([self._event(write) for write in writes])
            match step:
                case None | ("cut",):
                    pass
                case ("again", number):
                    self.deliver(self._batches[number % len(self._batches)] if self._batches else [])
                case ("restart",):
                    self.attempt(self.bench.reopen)
                case ("follow",):
                    self.attempt(self.bench.engine.follow_schema)
                case ("stop", number, stays):
                    self.stop = number, stays
                case ("create", table):
                    self.create(table)
                case ("own", table, row, columns):
                    self._write(table, self.key(table, 0, row), columns)
                case _:
                    migrate(step)
        for table in TABLES:
            self.create(table)
        self.settle()

    def attempt(self, work: Callable[[], T]) -> T:
        """Do it; where a stop was asked for, end the node or its job before that statement, and do it again."""
        if self.stop is None:
            return work()
        left, stays = self.stop
        self.stop = None

        def fault(point: str) -> None:
            nonlocal left
            if left == 0:
                raise StoppedError(point)
            left -= 1

        self.bench.fault = fault
        try:
            return work()
        except StoppedError:
            self.bench.fault = no_fault
            if not stays:
                self.bench.reopen()
            self.settle()
            self.check()
            return work()
        finally:
            self.bench.fault = no_fault

    def settle(self) -> None:
        """Let rows follow the schema to the end."""
        while self.attempt(self.bench.engine.follow_schema):
            pass

    # --- events

    def key(self, table: str, clock: int, row: int) -> Mapping[str, Any]:
        """Keys of what the table is first, and of what it may become."""
        keys = _keys(self.plan.schemas[table])[clock % 2]
        return keys[row % len(keys)]

    def _event(self, write: Write) -> Event:
        key = self.key(write.table, write.clock, write.row)
        spelled = repr((write, key))
        if spelled not in _SIGNED:
            schema, name = split(write.table)
            _SIGNED[spelled] = self.bench.event(write.site, write.clock, key, write.columns, table=name, schema=schema)
        return _SIGNED[spelled]

    def deliver(self, events: list[Event]) -> None:
        """One batch from a peer, whose verdicts are foretold."""
        self._batches.append(events)
        self.events.update((event.event_id, event) for event in events)
        found = self.attempt(lambda: self.bench.deliver_verified(events))
        for event, verdict in zip(events, found, strict=True):
            assert verdict in self._verdicts(event), (verdict, event)

    def deliver_all_again(self) -> None:
        self.deliver(list(self.events.values()))

    def _verdicts(self, event: Event) -> tuple[str, ...]:
        """What may become of an event (profile §6); what is kept is a fact from now on."""
        table = event.table if event.schema == "main" else f"{event.schema}.{event.table}"
        judge, key, known = self.tables.get(table), event.key or {}, event.event_id in self.facts
        if not self.stands(event.site, (*event.hlc,)):
            return ("dropped:retired-signer",)
        if self.is_forgotten(table, key):
            return ("dropped:forgotten",)
        if known and self.log_is_whole:
            return ("duplicate",)
        maybe = ("duplicate",) if known else ()
        if event.hlc < self.horizons[table]:
            return (*maybe, "below-horizon")
        if judge is not None and not judge.resolves(key):
            return (*maybe, "dropped:unresolved-key")
        self._keep(event, table)
        return (*maybe, "held" if judge is None else "applied")

    def stands(self, site: bytes, hlc: Clock) -> bool:
        """Whether the signer's events of this clock are acceptable: site 3 may have been retired."""
        return self.cutoff is None or site != site_key(3).site or hlc <= self.cutoff

    def is_forgotten(self, table: str, key: Mapping[str, Any]) -> bool:
        return (table, identity(key)) in self.forgotten

    def _keep(self, event: Event, table: str) -> None:
        fact = Fact(event.site, event.event_id, table, event.key or {}, event.columns, (*event.hlc,))
        self.facts[event.event_id] = fact

    def _write(self, table: str, key: Mapping[str, Any], columns: Mapping[str, Any] | None) -> None:
        """A write of the node itself, which may be refused; its clock is beyond all that the node has seen."""
        newest = max((fact.hlc for fact in self.facts.values()), default=(0, 0))
        with suppress(MeshError):
            change = LocalChange(*split(table), key, columns)
            for event in self.attempt(lambda: self.bench.engine.write([change])):
                assert event.hlc > newest
                self.events[event.event_id] = event
                self._keep(event, table)

    # --- tables

    def create(self, table: str) -> None:
        """Let there be a table that is registered and can be written to."""
        if self.bench.sql("SELECT 1 FROM sqlite_master WHERE name = ?", f"{table}_away"):
            self.bench.sql(f'ALTER TABLE "{table}_away" RENAME TO "{table}"')
            self.look(table)
        if self.tables.get(table) is None:
            self.make(table, next(each for each in (*self.plan.schemas[table], *SCHEMAS) if each.usable))
            spec = TableSpec(*split(table), own_numbers=True)
            self.attempt(lambda: self.bench.engine.register_table(spec))
            self.look(table)

    def make(self, table: str, schema: Schema) -> None:
        """Drop what there is of the table and make it as declared."""
        for name in (table, f"{table}_away"):
            self.bench.sql(f'DROP TABLE IF EXISTS "{name}"')
        for statement in schema.statements(table):
            self.bench.sql(statement)

    def look(self, table: str) -> None:
        """What SQLite says of the table now."""
        sql = "SELECT sql FROM sqlite_master WHERE tbl_name = ? AND type IN ('table', 'trigger') ORDER BY type"
        statements = tuple(each for (each,) in self.bench.sql(sql, table))
        judge = judge_of(table, statements) if statements else None
        self.tables[table] = judge if judge is not None and judge.usable else None

    # --- what has to hold

    def rows(self, table: str) -> dict[Key, Row]:
        """The table as the model has it."""
        judge = self.tables[table]
        assert judge is not None
        facts = [fact for fact in self.facts.values() if fact.hlc >= self.horizons[table]]
        return rows_of(facts, table, judge, self.given[table])

    def compare(self) -> None:
        """Every table against the model, as the API and as SQL shows it."""
        self.settle()
        for table, judge in self.tables.items():
            assert judge is not None
            expected = {key: row for key, row in self.rows(table).items() if row.upsert}
            cells = {key: row.cells(judge) for key, row in expected.items()}
            shown = {key: row for key, row in expected.items() if cells[key] is not None}
            found, counted, digest = self.bench.read(_look, *split(table))
            assert found == {key: _typed(_stored(row, judge)) for key, row in shown.items()}
            assert counted == (len(shown), len(expected) - len(shown))
            assert digest == _digest_of(shown.values(), judge)
            listed = ", ".join(f'"{name}"' for name in (*judge.key, *judge.columns))
            in_sql = self.bench.sql(f'SELECT {listed} FROM "{table}"')
            assert sorted(map(repr, in_sql)) == sorted(repr(row) for row in cells.values() if row is not None)

    def check(self) -> None:
        """The node against its own log; signatures are not in question here."""
        found = self.bench.read(check_store, sqlite3, lambda _site: None).differences
        away = [(table, "table") for table, judge in self.tables.items() if judge is None]
        assert [each for each in found if (each.table, each.where) not in away] == []


def _look(tx: Tx, schema: str, name: str) -> tuple[dict[Key, list[tuple[str, str]]], tuple[int, int], bytes]:
    """A table as the API shows it, how many rows it counts, and its digest."""
    table = queries.Table(tx, schema, name)
    rows = {identity(row.key): _typed(row.columns) for row in table.rows()}
    return rows, queries.row_counts(tx, table.destination), table.digest()[0]


def _digest_of(rows: Iterable[Row], judge: Judge) -> bytes:
    """Profile §13, by another implementation of CBOR, whose order of names is that of §2."""
    pairs = {cbor2.dumps(row.key, canonical=True): [row.key, _stored(row, judge)] for row in rows}
    return blake3(cbor2.dumps([pairs[key] for key in sorted(pairs)], canonical=True)).digest()


def _stored(row: Row, judge: Judge) -> dict[str, Any]:
    return {name: judge.stored(name, value) for name, value in row.values(judge).items()}


def _typed(columns: Mapping[str, Any]) -> list[tuple[str, str]]:
    """1, 1.0 and True are told apart."""
    return sorted((name, repr(value)) for name, value in columns.items())


def below(rows: Iterable[Row], horizon: Clock, stays: Callable[[bytes, Clock], bool]) -> dict[Key, Row]:
    """What a horizon froze of rows: the clocks below it, without those of events that are not acceptable any more.

    A row whose newest upsert was taken back exists as long as a value of it stands.
    """

    def frozen(rank: Rank) -> bool:
        return rank != () and rank[:2] < horizon and stays(rank[2], rank[:2])

    found = {}
    for row in rows:
        columns = {name: won for name, won in row.columns.items() if frozen(won[0])}
        upsert = row.upsert if frozen(row.upsert) else max((rank for rank, _ in columns.values()), default=())
        tombstone = row.tombstone if frozen(row.tombstone) else ()
        found[identity(row.key)] = Row(row.key, tombstone, upsert, columns)
    return found

"""The engine against a plain fold over the event set (profile §5): any delivery gives what the model says.

`MESHNODE_CASES=20` makes each run that many times longer.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.engines import Bench, members
from support.mesh_context import START_MS
from support.records import site_key
from support.reference import Fact, Row, Shape, identity, rows_of

from meshnode.engine import retention
from meshnode.engine.check import check_store
from meshnode.engine.registry import TableSpec
from meshnode.engine.standing import take_effect
from meshnode.engine.sweep import Sweep
from meshnode.model.event import Event
from meshnode.model.hlc import Hlc
from meshnode.store import queries
from meshnode.store.database import Tx

CASES = int(os.environ.get("MESHNODE_CASES", "1"))
MEMORY = Path("/dev/shm")  # where there is one: each case makes a database
LAST = 12  # the highest clock of a write, in ms after the tests' start
TABLES = ("t", "late", "s.t")
NAMES = ("a", "b", "c")
DECLARED = {"plain": "", "not null": " NOT NULL", "default": " NOT NULL DEFAULT 5"}

Write = tuple[int, int, str, dict[str, Any], dict[str, Any] | None]  # site, clock, table, key, columns
Step = tuple[Any, ...]
Kinds = dict[str, str]  # column name to its kind


@dataclass(frozen=True)
class Plan:
    """What one case does: which tables there are, what was written, and what the node goes through."""

    columns: Kinds  # of each table when it is created
    horizons: dict[str, int]
    writes: list[Write]
    end: Step
    steps: list[Step]  # "deliver" numbers of writes, "restart", "create", "recreate", "gain" and "drop" a column


def shape_of(plan: Plan, table: str, kinds: Kinds) -> Shape:
    return Shape(
        key=frozenset({"id"}),
        columns=frozenset(kinds),
        not_null=frozenset(name for name, kind in kinds.items() if kind != "plain"),
        defaults=frozenset(name for name, kind in kinds.items() if kind == "default"),
        horizon=(START_MS + plan.horizons[table], 0) if table in plan.horizons else (0, 0),
    )


values = st.one_of(st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from([1.0, 0.5, "x", "1", b"x"]))
# Few rows, so that most events meet others of their row: what the rules decide shows only there.
keys = st.sampled_from([*[{"id": 1}] * 6, {"id": "1"}, {"id": b"1"}, {"no": 1}, {"id": 1, "no": 1}, {"ID": 1}])
payloads = st.dictionaries(st.sampled_from([*NAMES * 2, "id", "A", "unknown"]), values, max_size=4)
columns = st.one_of(payloads, payloads, payloads, st.none())
writes = st.tuples(st.sampled_from([2, 3]), st.integers(0, LAST), st.sampled_from(["t", "t", *TABLES]), keys, columns)
ends = st.one_of(
    st.tuples(st.just("take back"), st.integers(-1, LAST)),
    st.tuples(st.just("evict"), st.booleans()),
    st.sampled_from([("freeze", None), ("compact", None)]),
)


@st.composite
def plans(draw: st.DrawFn, *, migrating: bool) -> Plan:
    written = draw(st.lists(writes, min_size=8, max_size=24))
    numbers = st.lists(st.integers(0, len(written) - 1), min_size=1, max_size=6)
    once = draw(st.permutations(range(len(written))))
    steps: list[Step] = [("deliver", chunk) for chunk in draw(st.lists(numbers, max_size=4))]
    size = draw(st.integers(1, len(written)))
    steps += [("deliver", list(once[at : at + size])) for at in range(0, len(written), size)]
    steps += [("restart",)] * draw(st.integers(0, 2))
    steps += [("create", table) for table in {"t"} | draw(st.sets(st.sampled_from(TABLES)))]
    gains = st.tuples(
        st.just("gain"), st.sampled_from(TABLES), st.sampled_from(NAMES), st.sampled_from(["plain", "default"])
    )
    drops = st.tuples(st.just("drop"), st.sampled_from(TABLES), st.sampled_from(NAMES))
    again = st.tuples(st.just("recreate"), st.sampled_from(TABLES))
    if migrating:
        steps += draw(st.lists(st.one_of(gains, drops, again), min_size=1, max_size=4))
    return Plan(
        columns=draw(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(sorted(DECLARED)))),
        horizons=draw(st.dictionaries(st.sampled_from(TABLES), st.integers(0, 13))),
        writes=written,
        end=draw(ends),
        steps=draw(st.permutations(steps)),
    )


def split(table: str) -> tuple[str, str]:
    schema, dot, name = table.rpartition(".")
    return (schema if dot else "main"), name


def signed(bench: Bench, write: Write) -> Event:
    site, clock, table, key, written = write
    schema, name = split(table)
    return bench.event(site, clock, key, written, table=name, schema=schema)


def fact_of(event: Event, table: str) -> Fact:
    return Fact(event.site, event.event_id, table, event.key or {}, event.columns, (*event.hlc,))


def create(bench: Bench, table: str, kinds: Kinds) -> None:
    declared = "".join(f', "{name}"{DECLARED[kind]}' for name, kind in kinds.items())
    bench.sql(f'CREATE TABLE IF NOT EXISTS "{table}" ("id" PRIMARY KEY{declared}) WITHOUT ROWID')


def migrate(bench: Bench, step: Step, tables: dict[str, Kinds]) -> None:
    """What an application does to its tables, where it can."""
    kinds = tables.get(step[1])
    match step:
        case ("gain", table, name, kind) if kinds is not None and name not in kinds:
            bench.sql(f'ALTER TABLE "{table}" ADD COLUMN "{name}"{DECLARED[kind]}')
            kinds[name] = kind
        case ("drop", table, name) if kinds is not None and name in kinds:
            bench.sql(f'ALTER TABLE "{table}" DROP COLUMN "{name}"')
            del kinds[name]
        case ("recreate", table) if kinds is not None:
            bench.sql(f'DROP TABLE "{table}"')
            create(bench, table, kinds)


def carry_out(bench: Bench, plan: Plan) -> tuple[list[Fact], dict[str, Kinds]]:
    """Do all steps; returns what was delivered, and the tables that exist at the end with their columns."""
    events = [signed(bench, write) for write in plan.writes]
    for table, at in plan.horizons.items():
        bench.engine.set_horizon(*split(table), Hlc(START_MS + at, 0))
    tables: dict[str, Kinds] = {}
    for step in plan.steps:
        match step:
            case ("deliver", numbers):
                bench.deliver([events[number] for number in numbers], author_stream=False)
            case ("restart",):
                bench.reopen()
            case ("create", table):
                create(bench, table, plan.columns)
                bench.engine.register_table(TableSpec(*split(table)))
                tables[table] = dict(plan.columns)
            case _:
                migrate(bench, step, tables)
    while bench.engine.follow_schema():
        pass
    return [fact_of(event, write[2]) for event, write in zip(events, plan.writes, strict=True)], tables


def shown(bench: Bench, table: str) -> dict[Any, Row]:
    """What the engine holds of a table, in the model's words."""
    found: dict[Any, Row] = {}
    for row in bench.rows(*reversed(split(table))).values():
        found[identity(row.key)] = Row(row.columns, withheld=False)
    return found


def typed(rows: dict[Any, Row]) -> dict[Any, list[tuple[str, str]]]:
    """1, 1.0 and True are told apart."""
    return {key: sorted((name, repr(value)) for name, value in row.columns.items()) for key, row in rows.items()}


def compare(bench: Bench, plan: Plan, facts: list[Fact], tables: dict[str, Kinds]) -> None:
    for table, kinds in tables.items():
        expected = rows_of(facts, table, shape_of(plan, table, kinds))
        allowed = {key: row for key, row in expected.items() if not row.withheld}
        assert typed(shown(bench, table)) == typed(allowed)
        counted = bench.read(
            lambda tx, table=table: queries.row_counts(tx, queries.Table(tx, *split(table)).destination)
        )
        assert counted == (len(allowed), len(expected) - len(allowed))
        assert bench.sql(f'SELECT count(*) FROM "{table}"') == [(len(allowed),)]
    assert bench.read(check_store, sqlite3, bench.membership.key_of).differences == []


def redeliver(bench: Bench, plan: Plan) -> None:
    bench.deliver([signed(bench, write) for write in plan.writes], author_stream=False)


def swept(sweep: Sweep) -> None:
    while sweep.step():
        pass
    sweep.finish()


def take_back(bench: Bench, cutoff: int) -> None:
    """Site 3 is retired: what it wrote above the cutoff is no longer acceptable."""
    context, before = bench.engine.context, bench.membership
    keys = [site_key(number).public_key for number in (1, 2, 3)]
    bench.membership = members(keys, cutoffs={site_key(3).site: Hlc(START_MS + cutoff, 0)})

    def change(tx: Tx) -> None:
        context.set_membership(bench.membership)
        take_effect(context, tx, before, bench.membership)

    context.transact(change)


def end(bench: Bench, plan: Plan, facts: list[Fact], tables: dict[str, Kinds]) -> None:
    """What may follow once all was delivered; whatever is delivered again after it changes nothing."""
    bench.time.now_ms += 1000
    context, latest = bench.engine.context, Hlc(START_MS + LAST + 1, 0)
    match plan.end:
        case ("take back", cutoff):
            take_back(bench, cutoff)
            late = (START_MS + cutoff, 0)
            facts = [fact for fact in facts if fact.site != site_key(3).site or fact.hlc <= late]
        case ("evict", everything):
            for table in tables:
                swept(retention.evict(context, *split(table), latest, everything=everything))
        case ("compact", _):
            for table in tables:
                swept(retention.compaction(context, *split(table)))
        case _:
            for table in TABLES:
                bench.engine.set_horizon(*split(table), latest)
    compare(bench, plan, facts, tables)
    redeliver(bench, plan)
    compare(bench, plan, facts, tables)
    if plan.end[0] == "evict":
        for table in TABLES:
            bench.engine.set_horizon(*split(table), Hlc(0, 0))
        redeliver(bench, plan)
        compare(bench, replace(plan, horizons={}), facts, tables)


def hold(plan: Plan) -> None:
    """Carry it out, and compare after each of its parts."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        bench = Bench(Path(folder))
        try:
            facts, tables = carry_out(bench, plan)
            compare(bench, plan, facts, tables)
            end(bench, plan, facts, tables)
        finally:
            bench.engine.close()


SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)


@settings(deadline=None, max_examples=300 * CASES, suppress_health_check=SLOW)
@given(plans(migrating=False))
def test_state_is_a_function_of_the_event_set(plan: Plan) -> None:
    hold(plan)


@settings(deadline=None, max_examples=200 * CASES, suppress_health_check=SLOW)
@given(plans(migrating=True))
def test_and_of_the_schema_as_it_is_at_the_end(plan: Plan) -> None:
    hold(plan)

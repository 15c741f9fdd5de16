"""The engine against a plain fold over the event set (profile §5): any delivery gives what the model says.

Tables, writes, migrations, stops and deliveries are random (`support.plans`); `MESHNODE_CASES=20` makes each run that
many times longer, `MESHNODE_SEED=7` runs other cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from support.engines import members
from support.laws import cases
from support.mesh_context import START_MS
from support.migrations import migrate, migrate_frozen
from support.plans import TABLES, Plan, plans
from support.records import site_key
from support.reference import identity
from support.reference_run import Run, below, split

from meshnode.engine import growth, materialize, rebuild, registry, retention, sweep, takeback
from meshnode.engine.forget import forget, unforget
from meshnode.engine.standing import take_effect
from meshnode.engine.sweep import Sweep
from meshnode.model.hlc import Hlc
from meshnode.store.database import Tx

PAGES = {
    growth: ("BATCH_EVENTS", "POSITIONS_A_STEP", "STEPS_AT_ONCE"),
    materialize: ("BATCH_EVENTS",),
    rebuild: ("BATCH_EVENTS", "POSITIONS_A_STEP", "ROWS_LOOKED_AT"),
    registry: ("BATCH_EVENTS",),
    sweep: ("BATCH_EVENTS", "SCAN_ROWS"),
    takeback: ("EVENTS_A_STEP", "STEPS_AT_ONCE"),
}


@contextmanager
def in_pages(paged: bool) -> Iterator[None]:
    """What is done in pages takes two items a page, so that a small case has several."""
    with pytest.MonkeyPatch.context() as patch:
        for module, names in PAGES.items() if paged else ():
            for name in names:
                patch.setattr(module, name, 2)
        yield


def hold(plan: Plan) -> None:
    """Carry the plan out, and compare after each of its parts."""
    with in_pages(plan.paged):
        run = Run(plan)
        try:
            run.go(plan.steps, lambda step: migrate(run, step))
            run.compare()
            end(run)
            run.check()
        finally:
            run.bench.close()


def end(run: Run) -> None:
    """What may follow once all was delivered; whatever is delivered again after it changes nothing."""
    run.bench.time.now_ms += 1000
    run.stop = run.plan.stop
    match run.plan.end:
        case ("take back", cutoff):
            take_back(run, cutoff)
            go_on(run)
        case ("evict", at, everything):
            evict(run, at, everything=everything)
            go_on_frozen(run, quiet=everything)
        case ("evict and take back", at, cutoff):
            evict(run, at)
            take_back(run, cutoff)
            go_on_frozen(run)
        case ("freeze", at):
            freeze(run, at)
            for table in TABLES:
                run.attempt(lambda table=table: run.bench.engine.set_horizon(*split(table), Hlc(*run.horizons[table])))
            go_on_frozen(run)
        case ("compact",):
            run.log_is_whole = False
            for table in TABLES:
                run.attempt(lambda table=table: swept(retention.compaction(run.bench.engine.context, *split(table))))
            go_on(run)
        case ("forget", row):
            forget_rows(run, row)


def go_on(run: Run) -> None:
    """More of everything, and then all of it again."""
    run.go(run.plan.late, lambda step: migrate(run, step))
    run.compare()
    run.deliver_all_again()
    run.compare()


def swept(sweep: Sweep) -> None:
    while sweep.step():
        pass
    sweep.finish()


def take_back(run: Run, at: int) -> None:
    """Site 3 is retired: what it wrote above the cutoff is no longer acceptable."""
    run.cutoff = (START_MS + at, 0)
    for table in TABLES:
        run.given[table] = below(run.rows(table).values(), run.horizons[table], run.stands)
    run.facts = {event_id: fact for event_id, fact in run.facts.items() if run.stands(fact.site, fact.hlc)}
    run.attempt(lambda: retire(run, Hlc(*run.cutoff or ())))


def retire(run: Run, cutoff: Hlc) -> None:
    context, before = run.bench.engine.context, run.bench.membership
    after = members([site_key(n).public_key for n in (1, 2, 3)], cutoffs={site_key(3).site: cutoff})

    def change(tx: Tx) -> None:
        context.set_membership(after)
        take_effect(context, tx, before, after)

    context.transact(change)
    run.bench.membership = after


def freeze(run: Run, at: int) -> None:
    """Tell the model that every table is frozen below a clock from now on."""
    run.log_is_whole = False
    for table in TABLES:
        rows = run.rows(table).values()
        run.horizons[table] = max(run.horizons[table], (START_MS + at, 0))
        run.given[table] = below(rows, run.horizons[table], run.stands)


def evict(run: Run, at: int, *, everything: bool = False) -> None:
    freeze(run, at)
    for table in TABLES:
        run.attempt(lambda table=table: evict_one(run, table, everything=everything))


def evict_one(run: Run, table: str, *, everything: bool) -> None:
    context, horizon = run.bench.engine.context, Hlc(*run.horizons[table])
    swept(retention.evict(context, *split(table), horizon, everything=everything))


def go_on_frozen(run: Run, *, quiet: bool = False) -> None:
    """More, under horizons that were set after the delivery; then drop them, and take the whole history again.

    `quiet`: nothing that could withhold a row, for its values are nowhere then (surfaced as `partial`).
    """
    withholding = ("write", "own", "gain", "again")
    late = [step for step in run.plan.late if not (quiet and step[0] in withholding)]
    run.go(tuple(late), lambda step: migrate_frozen(run, step))
    run.compare()
    run.deliver_all_again()
    run.compare()
    run.check()
    for table in TABLES:
        run.horizons[table], run.given[table] = (0, 0), {}
        run.attempt(lambda table=table: retention.rehydrate(run.bench.engine.context, *split(table)))
    if run.plan.end[0] == "freeze":  # nothing has left the log
        run.compare()
    run.deliver_all_again()
    run.compare()


def forget_rows(run: Run, row: int) -> None:
    """A row of each table is forgotten, and taken again where it can still be named."""
    keys = {table: run.key(table, 0, row) for table in TABLES}
    for table, key in keys.items():
        judge = run.tables[table]
        if judge is not None and judge.resolves(key):
            run.attempt(lambda table=table, key=key: forget(run.bench.engine.context, *split(table), key))
            run.forgotten.add((table, identity(key)))
    run.facts = {event_id: fact for event_id, fact in run.facts.items() if not run.is_forgotten(fact.table, fact.key)}
    go_on(run)
    for table, key in keys.items():
        judge = run.tables[table]
        if run.is_forgotten(table, key) and judge is not None and judge.resolves(key):
            run.attempt(lambda table=table, key=key: unforget(run.bench.engine.context, *split(table), key))
            run.forgotten.discard((table, identity(key)))
    run.deliver_all_again()
    run.compare()


@cases(600)
@given(plans(migrating=False))
def test_state_is_a_function_of_the_event_set(plan: Plan) -> None:
    hold(plan)


@cases(600)
@given(plans(migrating=True))
def test_and_of_the_schema_as_it_is_at_the_end(plan: Plan) -> None:
    hold(plan)

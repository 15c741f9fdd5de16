"""What an application does to its tables in the runs against the reference model, each where it can."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from dataclasses import replace

from support.plans import Schema, Step
from support.reference import Row, identity
from support.reference_run import Run


def migrate(run: Run, step: Step) -> None:
    """One change of a registered table."""
    kind, table, *rest = step
    judge = run.tables.get(table)
    if table not in run.tables or (judge is None and kind not in ("recreate", "rename")):
        return
    with suppress(sqlite3.Error):  # what SQLite does not let the application do
        match kind, *rest:
            case ("gain", _, declared):
                run.bench.sql(f'ALTER TABLE "{table}" ADD COLUMN {declared}')
            case ("drop", name):
                run.bench.sql(f'ALTER TABLE "{table}" DROP COLUMN "{name}"')
            case ("renew", name, declared):
                run.bench.sql(f'ALTER TABLE "{table}" DROP COLUMN "{name}"')
                run.bench.sql(f'ALTER TABLE "{table}" ADD COLUMN {declared}')
            case ("recreate", place):
                run.make(table, run.plan.schemas[table][place])
            case ("copy", place):
                run.settle()  # the default of a column that was just added is seen before it is carried over as a value
                _copy(run, table, run.plan.schemas[table][place])
            case ("rename",):
                away, back = f"{table}_away", run.bench.sql("SELECT 1 FROM sqlite_master WHERE name = ?", table)
                run.bench.sql(f'ALTER TABLE "{table if back else away}" RENAME TO "{away if back else table}"')
            case ("empty",):
                empty(run, table)
    run.look(table)


def empty(run: Run, table: str) -> None:
    """Rows are lost, and the schema's number changes as it would with the table itself."""
    for statement in (f'DELETE FROM "{table}"', "CREATE TABLE passing (a)", "DROP TABLE passing"):
        run.bench.sql(statement)


def _copy(run: Run, table: str, schema: Schema) -> None:
    """Another shape with the same rows, the way SQLite's documentation says; only where the key stays as it is."""
    new = f"{table}_new"
    run.bench.sql(f'DROP TABLE IF EXISTS "{new}"')
    run.bench.sql(schema.statements(new)[0])
    described = 'SELECT name, type, pk FROM pragma_table_xinfo(?) WHERE hidden = 0 ORDER BY "pk", name'
    before, after = run.bench.sql(described, table), run.bench.sql(described, new)
    if [each for each in before if each[2]] == [each for each in after if each[2]]:
        # A default that the table showed is no value: carried over, it would be the application's own.
        sql = 'SELECT name FROM pragma_table_xinfo(?) WHERE "notnull" AND dflt_value IS NOT NULL'
        defaults = {name for (name,) in run.bench.sql(sql, table)}
        shared = {each[0] for each in before} & {each[0] for each in after} - defaults
        names = ", ".join(f'"{name}"' for name in sorted(shared))
        run.bench.sql(f'INSERT OR IGNORE INTO "{new}" ({names}) SELECT {names} FROM "{table}"')
        run.bench.sql(f'DROP TABLE "{table}"')
        run.bench.sql(f'ALTER TABLE "{new}" RENAME TO "{table}"')
        for trigger in schema.statements(table)[1:]:
            run.bench.sql(trigger)
    else:
        run.bench.sql(f'DROP TABLE "{new}"')


def migrate_frozen(run: Run, step: Step) -> None:
    """Below a horizon that was set after the delivery, each change counts by itself: what SQL loses is not in the log.

    A dropped column forgets what lies below; so does a row that is lost, but for its tombstone. Withheld rows have
    their values in the log only, and lose nothing with the table.
    """
    kind, table, *rest = step
    judge = run.tables.get(table)
    if judge is None and kind != "rename":
        return
    run.settle()
    match kind, *rest:
        case ("gain" | "rename", *_):
            migrate(run, step)
        case ("renew", name, declared):
            migrate_frozen(run, ("drop", table, name))
            migrate_frozen(run, ("gain", table, name, declared))
        case ("drop", name):
            migrate(run, step)
            if judge is not run.tables[table]:
                run.given[table] = {key: _without(row, name) for key, row in run.given[table].items()}
        case ("recreate" | "empty", *_):
            assert judge is not None
            lost = [row for row in run.rows(table).values() if row.cells(judge) is not None]
            if kind == "empty":
                empty(run, table)
            else:
                _again(run, table)
            run.given[table].update((identity(row.key), Row(row.key, row.tombstone)) for row in lost)
    run.settle()


def _again(run: Run, table: str) -> None:
    """The table as it is, dropped and made again."""
    sql = "SELECT sql FROM sqlite_master WHERE tbl_name = ? AND type IN ('table', 'trigger') ORDER BY type"
    statements = [each for (each,) in run.bench.sql(sql, table)]
    for statement in (f'DROP TABLE "{table}"', *statements):
        run.bench.sql(statement)


def _without(row: Row, name: str) -> Row:
    return replace(row, columns={each: won for each, won in row.columns.items() if each != name})

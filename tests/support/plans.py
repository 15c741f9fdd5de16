"""Random tables, writes and steps for the runs against the reference model, drawn from pools (`support.laws.numbers`).

A table, a write or a step is one number: a place in a pool that a fixed seed filled beforehand, the simplest one first.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeVar

from hypothesis import strategies as st

from support.judge import judge_of
from support.laws import numbers, pick

T = TypeVar("T")
Step = tuple[Any, ...]
Stop = tuple[int, bool]  # before which statement, and whether the process lives on

LAST = 12  # the highest clock of a write, in ms after the tests' start
TABLES = ("t", "s.t")
NAMES = ("a", "b", "c")
VALUES: tuple[Any, ...] = (None, 0, 1, 3, -1, 2**53 + 1, -(2**63), 2**63 - 1, True, False, 1.0, 0.5, -0.0, 1e300)
VALUES += ("x", "", "1", " 1", "1.0", "1e2", "0x10", "9e999", "9223372036854775808", "5", "d", b"", b"x", b"1")
TYPES = ("", "INTEGER", "TEXT", "BLOB", "REAL", "NUMERIC", "VARCHAR(9)", "BOOLEAN", "DATE")
STRICT_TYPES = ("ANY", "INT", "INTEGER", "TEXT", "BLOB", "REAL")
PLAIN = ("",) * 4 + ("DEFAULT 5", "DEFAULT 'd'", "DEFAULT (1 + 1)", 'DEFAULT "x"', "COLLATE NOCASE")
PLAIN += ("REFERENCES no (no)",)
FILLED = ("NOT NULL DEFAULT 5", "NOT NULL DEFAULT 'd'", "NOT NULL DEFAULT x'31'")
FILLED += ("NOT NULL ON CONFLICT IGNORE DEFAULT 1",)
CHECKED = ("CHECK ({} IS NOT 3)", "CHECK (typeof({}) <> 'text')", "NOT NULL DEFAULT 5 CHECK ({} IS NOT 1)")
ABSENT = ("NOT NULL", "NOT NULL ON CONFLICT REPLACE")
ROW_CHECKS = ("CHECK (a IS NOT b)", "CHECK (a IS NULL OR b IS NOT NULL)")
RAISES = ("ABORT, 'no'", "FAIL, 'no'", "ROLLBACK, 'no'", "IGNORE")
KEY_VALUES: tuple[Any, ...] = (1, "x", b"x", "1", 2, "1.5", "", -(2**63))
MIGRATIONS = ("gain", "drop", "renew", "recreate", "copy", "rename", "empty")
ODD_KEYS: tuple[Mapping[str, Any], ...] = ({"no": 1}, {"ID": 1}, {"id": 1, "no": 1, "c": 1}, {"a": 1})


@dataclass(frozen=True)
class Schema:
    """One table as an application might declare it; `{}` stands for its name, `[]` for its name inside of another."""

    create: str
    triggers: tuple[str, ...] = ()
    usable: bool = True  # False: it cannot be a destination

    def statements(self, table: str) -> tuple[str, ...]:
        quoted = f'"{table}"'
        return tuple(each.replace("{}", quoted).replace("[]", table) for each in (self.create, *self.triggers))


@dataclass(frozen=True)
class Write:
    """One event to be; the place of its row among the keys of its table decides whether that can take it."""

    site: int
    clock: int
    table: str
    row: int
    columns: Mapping[str, Any] | None


@dataclass(frozen=True)
class Plan:
    """What one case does, in order; afterwards every table exists, and `end` follows with its own steps."""

    schemas: Mapping[str, tuple[Schema, Schema]]  # of each table: the first one, and what it may become
    horizons: Mapping[str, int]
    steps: tuple[Step, ...]
    end: Step
    stop: Stop | None  # of what ends it
    late: tuple[Step, ...]
    paged: bool  # everything that is done in pages is done in pages of two


# --- tables


def _column(chooser: random.Random, name: str, types: tuple[str, ...]) -> str:
    kind = chooser.choice((PLAIN, PLAIN, PLAIN, FILLED, FILLED, CHECKED, ABSENT))
    return f'"{name}" {chooser.choice(types)} {chooser.choice(kind).replace("{}", name)}'.strip()


def _key(chooser: random.Random, types: tuple[str, ...], *, strict: bool) -> tuple[list[str], str]:
    """Columns of the key, and the constraint where it is not said with the column."""
    if chooser.random() < 0.3:
        pair = [f'"{name}" {chooser.choice(types)} NOT NULL' for name in ("id", "no")]
        return chooser.sample(pair, 2), chooser.choice(('PRIMARY KEY ("id", "no")', 'PRIMARY KEY ("no" DESC, "id")'))
    if chooser.random() < 0.15:
        return ['"id" INTEGER PRIMARY KEY'], ""
    if chooser.random() < 0.15 and not strict:
        return ['"id" INTEGER PRIMARY KEY DESC'], ""
    return [f'"id" {chooser.choice(types)} NOT NULL PRIMARY KEY'], ""


def _triggers(chooser: random.Random, names: list[str]) -> tuple[str, ...]:
    """One condition for new and for changed rows alike: otherwise rows would depend on the order of events."""
    if not names or chooser.random() < 0.75:
        return ()
    name, refused, raised = chooser.choice(names), chooser.choice(("1", "'x'", "NULL")), chooser.choice(RAISES)
    when = chooser.choice(("BEFORE", "AFTER")) if raised != "IGNORE" else "BEFORE"
    body = f'ON {{}} WHEN new."{name}" IS {refused} BEGIN SELECT RAISE({raised}); END'
    return tuple(f'CREATE TRIGGER "[] {verb}" {when} {verb} {body}' for verb in ("INSERT", "UPDATE"))


def _schema(chooser: random.Random) -> Schema:
    strict = chooser.random() < 0.25
    types = STRICT_TYPES if strict else TYPES
    key, constraint = _key(chooser, types, strict=strict)
    names = [name for name in NAMES if chooser.random() < 0.7]
    parts = key + [_column(chooser, name, types) for name in names]
    if len(names) == 2 and chooser.random() < 0.2:
        parts.append('"made" {} AS (1) STORED'.replace("{}", "INT" if strict else ""))
    chooser.shuffle(parts)
    parts += [constraint] if constraint else []
    if {"a", "b"} <= set(names) and chooser.random() < 0.15:
        parts.append(chooser.choice(ROW_CHECKS))
    options = [*(["STRICT"] if strict else []), *(["WITHOUT ROWID"] if chooser.random() < 0.5 else [])]
    usable = chooser.random() > 0.03 or "a" not in names
    parts += [] if usable else ['UNIQUE ("a")']
    create = f"CREATE TABLE {{}} ({', '.join(parts)}) {', '.join(options)}".strip()
    return Schema(create, _triggers(chooser, names), usable)


def keys_of(schema: Schema) -> tuple[Mapping[str, Any], ...]:
    """Row keys to try on a table: three that name a row of it, then some that may not."""
    judge = judge_of("t", schema.statements("t"))
    tried = [dict(zip(judge.key, values, strict=True)) for values in product(KEY_VALUES, repeat=len(judge.key))]
    fit, unfit = [each for each in tried if judge.resolves(each)], [each for each in tried if not judge.resolves(each)]
    return (*fit[:3], *unfit[:2], *ODD_KEYS[:3])


# --- pools


def _pool(seed: int, size: int, make: Callable[[random.Random], T], simplest: T) -> tuple[T, ...]:
    chooser = random.Random(seed)
    return (simplest, *(make(chooser) for _ in range(size)))


def _write(chooser: random.Random) -> Step:
    columns = None
    if chooser.random() < 0.8:
        names = chooser.choices([*NAMES * 3, "id", "A", "unknown", "made"], k=chooser.choice((0, 1, 1, 2, 2, 3)))
        columns = {name: chooser.choice(VALUES) for name in names}
    table = chooser.choice(("t", *TABLES))
    row = chooser.choice((0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7))
    return ("write", Write(chooser.choice((2, 2, 3, 3, 3, 1)), chooser.randint(0, LAST), table, row, columns))


def _migration(chooser: random.Random) -> Step:
    table, name = chooser.choice(("t", *TABLES)), chooser.choice(NAMES)
    declared, kind = chooser.choice(TYPES), chooser.choice((*PLAIN, *FILLED))
    if declared in STRICT_TYPES and kind in FILLED:  # SQLite adds defaults that the same type refuses in a new row
        kind = FILLED[1] if declared == "TEXT" else FILLED[2] if declared == "BLOB" else FILLED[0]
    added = f'"{name}" {declared} {kind}'.strip()
    return chooser.choice(
        (
            ("gain", table, name, added),
            ("gain", table, name, added),
            ("drop", table, name),
            ("renew", table, name, added),
            ("renew", table, name, added),
            ("recreate", table, chooser.randint(0, 1)),
            ("recreate", table, chooser.randint(0, 1)),
            ("copy", table, chooser.randint(0, 1)),
            ("rename", table),
            ("empty", table),
        )
    )


def _event(chooser: random.Random) -> Step:
    if chooser.random() < 0.75:
        return _write(chooser)
    table = chooser.choice(TABLES)
    columns = {name: chooser.choice(VALUES) for name in NAMES if chooser.random() < 0.4}
    return chooser.choice(
        (
            ("cut",),
            ("cut",),
            ("cut",),
            ("again", chooser.randrange(8)),
            ("restart",),
            ("create", table),
            ("create", table),
            ("follow",),
            ("stop", chooser.randrange(45), chooser.random() < 0.5),
            ("own", table, chooser.randrange(3), chooser.choice((columns, columns, None))),
        )
    )


def _step(chooser: random.Random) -> Step:
    return _migration(chooser) if chooser.random() < 0.15 else _event(chooser)


def _end(chooser: random.Random) -> Step:
    return chooser.choice(
        (
            ("take back", chooser.randint(-1, LAST)),
            ("evict", chooser.randint(0, LAST + 1), False),
            ("evict", chooser.randint(0, LAST + 1), True),
            ("freeze", chooser.randint(0, LAST + 1)),
            ("freeze", chooser.randint(0, LAST + 1)),
            ("evict and take back", chooser.randint(0, LAST + 1), chooser.randint(-1, LAST)),
            ("compact",),
            ("forget", chooser.randrange(3)),
        )
    )


def _horizons(chooser: random.Random) -> Mapping[str, int]:
    return {table: chooser.randint(0, LAST + 1) for table in TABLES if chooser.random() < 0.3}


def _late(chooser: random.Random) -> Step:
    return _migration(chooser) if chooser.random() < 0.5 else _event(chooser)


NOTHING: Step = ("cut",)
SCHEMAS = _pool(1, 400, _schema, Schema('CREATE TABLE {} ("id" PRIMARY KEY NOT NULL, "a", "b", "c")'))
EVENTS = _pool(2, 6000, _event, NOTHING)
STEPS = _pool(3, 6000, _step, NOTHING)
LATE = _pool(4, 2000, _late, NOTHING)
LATE_EVENTS = tuple(step for step in LATE if step[0] not in MIGRATIONS)
ENDS = _pool(5, 200, _end, ("freeze", LAST + 1))
STOPS: tuple[Stop | None, ...] = (*[None] * 120, *((at, stays) for at in range(60) for stays in (True, False)))
HORIZONS = _pool(6, 60, _horizons, {})


@st.composite
def plans(draw: st.DrawFn, *, migrating: bool) -> Plan:
    """Cases whose tables stay as they are, or that change them on the way."""
    return plan_of(draw(numbers(min_size=14, max_size=50)), migrating=migrating)


def plan_of(drawn: list[int], *, migrating: bool) -> Plan:
    first, second, third, fourth, turn, end, stop, rest = drawn[:8]
    tail = max(len(drawn) - rest // 3 % 10, 8)
    pairs = ((pick(SCHEMAS, a, turn), pick(SCHEMAS, b, turn)) for a, b in ((first, second), (third, fourth)))
    steps, late = (STEPS, LATE) if migrating else (EVENTS, LATE_EVENTS)
    return Plan(
        schemas=dict(zip(TABLES, pairs, strict=True)),
        horizons=pick(HORIZONS, turn, 0),
        steps=tuple(pick(steps, number, turn) for number in drawn[8:tail]),
        end=pick(ENDS, end, turn),
        stop=pick(STOPS, stop, turn),
        late=tuple(pick(late, number, turn) for number in drawn[tail:]),
        paged=rest % 3 == 2,
    )


def batches(steps: tuple[Step, ...]) -> Iterator[tuple[list[Write], Step | None]]:
    """Writes up to each step of another kind, which is what delivers them."""
    gathered: list[Write] = []
    for step in steps:
        if step[0] == "write":
            gathered.append(step[1])
        else:
            yield gathered, step
            gathered = []
    yield gathered, None

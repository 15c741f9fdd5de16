"""Runs `merge.json`: a scenario's events in many orders, with repeats, all give the rows that it names (profile §5)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

from meshnode.cli.conform.node import deliver, fresh_engine
from meshnode.cli.conform.report import CaseFailedError, Report, expect
from meshnode.cli.conform.values import hlc_of, same, value_of
from meshnode.codec import cbor
from meshnode.engine.engine import Engine
from meshnode.engine.registry import TableSpec
from meshnode.model.scope import parse_scope_untrusted
from meshnode.store import rows
from meshnode.store.tables import quote

_ORDERS_WHOLE = 3  # events up to which every order is run
_ORDERS_DRAWN = 8  # orders drawn beyond that, each with some events repeated
_TABLE = "t"


def run_merge(vectors: dict[str, Any], report: Report) -> None:
    """Every scenario in its orders, each on a node of its own, by turns as one batch and event by event."""
    for scenario in vectors["scenarios"]:
        with report.case(scenario["name"]):
            for number, order in enumerate(_orders(scenario)):
                with fresh_engine(vectors) as engine:
                    _apply(engine, scenario, order, as_one=number % 2 == 0)
                    _check(engine, scenario)


def _orders(scenario: dict[str, Any]) -> Iterator[list[bytes]]:
    events = [bytes.fromhex(text) for text in scenario["events"]]
    if len(events) <= _ORDERS_WHOLE:
        yield from (list(order) for order in itertools.permutations(events))
    draw = random.Random(scenario["name"])  # noqa: S311  # an order, not a secret
    for _ in range(_ORDERS_DRAWN):
        order = events + draw.choices(events, k=draw.randrange(len(events) + 1))
        draw.shuffle(order)
        yield order


def _apply(engine: Engine, scenario: dict[str, Any], order: list[bytes], *, as_one: bool) -> None:
    columns = dict.fromkeys(scenario["columns"], "")
    engine.register_table(TableSpec("main", _TABLE, dict.fromkeys(scenario["key"], ""), columns))
    if scenario["horizon"] is not None:
        engine.set_horizon("main", _TABLE, hlc_of(scenario["horizon"]))
    scope = parse_scope_untrusted([])
    for batch in [order] if as_one else [[event] for event in order]:
        deliver(engine, batch, scope)


def _check(engine: Engine, scenario: dict[str, Any]) -> None:
    """The SQL rows are those that exist, with their values; each row's clocks say the state of each column."""
    names = [*scenario["key"], *scenario["columns"]]
    selected = ", ".join(quote(name) for name in names)
    context = engine.context
    with context.transaction() as tx:
        found = [dict(zip(names, row, strict=True)) for row in tx.execute(f"SELECT {selected} FROM {_TABLE}")]  # noqa: S608
        table_no = context.tables.number(tx, context.tables.entry(tx, "main", _TABLE))
        for row in scenario["rows"]:
            key = {name: value_of(value) for name, value in row["key"]}
            key_bytes = cbor.encode(key)
            stored = rows.load(tx, table_no, [key_bytes]).get(key_bytes)
            if stored is None:
                raise CaseFailedError(f"nothing is known of the row {key}")
            states = {name: _state(stored[0], name) for name in scenario["columns"]}
            expect(f"the states of {key}", states, {name: each["state"] for name, each in row["columns"].items()})
            matching = [values for values in found if all(same(values[name], key[name]) for name in key)]
            expect(f"the SQL rows of {key}", len(matching), int(row["exists"]))
            for values in matching:
                found.remove(values)
                _check_values(values, row["columns"])
    expect("the other SQL rows", found, [])


def _check_values(values: dict[str, Any], columns: dict[str, Any]) -> None:
    for name, column in columns.items():
        value = None if column["value"] is None else value_of(column["value"])
        wanted = int(value) if isinstance(value, bool) else value
        if not same(values[name], wanted):
            raise CaseFailedError(f"column {name} is {values[name]!r} in SQL, not {wanted!r}")


def _state(state: Any, name: str) -> str:
    """`profile §5`: a surviving winner, else cleared where there was any delete, else unmaterialized."""
    if name in state.columns:
        return "value"
    return "cleared" if state.tombstone is not None else "unmaterialized"

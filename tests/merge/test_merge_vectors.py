"""profile §5: every scenario of the shared vectors, in every order or many, one by one and in batches, with repeats."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from support.engines import Bench, members
from support.mesh_context import TestTime
from support.vectors import load, value_of

from meshnode.codec import cbor
from meshnode.engine.commit import commit_events
from meshnode.engine.registry import TableSpec
from meshnode.merge.rows import RowState
from meshnode.model.hlc import Hlc
from meshnode.model.scope import Scope
from meshnode.store.database import Tx
from meshnode.store.queries import Table

VECTORS = load("merge")
SCENARIOS = VECTORS["scenarios"]
ORDERS = 24


def _bench(folder: Path) -> Bench:
    membership = members(bytes.fromhex(each["public_key"]) for each in VECTORS["keyring"])
    return Bench(
        folder,
        own=9,
        membership=membership,
        mesh_id=bytes.fromhex(VECTORS["mesh_id"]),
        time=TestTime(VECTORS["now"]),
    )


def _orders(count: int) -> Iterator[list[int]]:
    """All orders of a few events; many of more, each with some events delivered twice."""
    if count <= 4:
        yield from (list(order) for order in permutations(range(count)))
    chooser = random.Random(count)
    for _ in range(ORDERS):
        order = [*range(count), *chooser.choices(range(count), k=count // 2)]
        chooser.shuffle(order)
        yield order


def _in_sql(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


class _UndoError(Exception):
    """Ends a transaction so that nothing of it stays: the next order starts from nothing, without a new database."""


def _check(tx: Tx, bench: Bench, scenario: dict[str, Any]) -> tuple[bytes, int]:
    table = Table(tx, "main", "t")
    stored = dict(tx.execute("SELECT key, state FROM meshnode_rows").fetchall())
    live = {row.key_bytes: row.columns for row in table.rows()}
    for row in scenario["rows"]:
        key = {name: value_of(value) for name, value in row["key"]}
        key_bytes = cbor.encode(key)
        state = RowState.unpack(stored.pop(key_bytes)) if key_bytes in stored else RowState()
        assert state.exists == row["exists"]
        values = {}
        for name, column in row["columns"].items():
            ranked = name in state.columns
            found = "value" if ranked else "unmaterialized" if state.tombstone is None else "cleared"
            assert found == column["state"]
            if found != "unmaterialized":
                values[name] = _in_sql(value_of(column["value"])) if ranked else None
        assert (key_bytes in live) == row["exists"]
        if row["exists"]:
            got = live[key_bytes]
            assert got == values
            assert {name: type(value) for name, value in got.items()} == {n: type(v) for n, v in values.items()}
    assert not stored
    assert tx.execute("SELECT count(*) FROM t").fetchone()[0] == len(live)
    return table.digest()


def _deliver(tx: Tx, bench: Bench, events: list[bytes]) -> None:
    context, checked = bench.engine.context, bench.engine.verify(events)
    commit_events(context, tx, checked, author_stream=False, scope=Scope(), peer=None)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[each["name"] for each in SCENARIOS])
def test_scenario_in_shuffled_orders(scenario: dict[str, Any], tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    bench.engine.register_table(
        TableSpec("main", "t", dict.fromkeys(scenario["key"], ""), dict.fromkeys(scenario["columns"], ""))
    )
    if scenario["horizon"]:
        bench.engine.set_horizon("main", "t", Hlc(*scenario["horizon"]))
    events = [bytes.fromhex(each) for each in scenario["events"]]
    digests = set()
    for number, order in enumerate(_orders(len(events))):
        delivered = [events[index] for index in order]
        cuts = (1, len(order), len(order) // 2 + 1)
        size = cuts[number % 3]  # one by one, all at once, in two batches
        with suppress(_UndoError), bench.engine.context.transaction() as tx:
            for start in range(0, len(delivered), size):
                _deliver(tx, bench, delivered[start : start + size])
            digests.add(_check(tx, bench, scenario))
            raise _UndoError
    assert len(digests) == 1

"""SSP/1 §13.5 through the whole door: any order, batches and repeats give one digest and one SQL table."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engines import Bench
from support.records import MESH_ID, site_key

from meshnode.codec import cose
from meshnode.engine.registry import TableSpec
from meshnode.model.event import Event

SCHEMAS = {
    "plain": ["CREATE TABLE t (id PRIMARY KEY, a, b, c)"],
    "not null": ["CREATE TABLE t (id PRIMARY KEY, a NOT NULL, b NOT NULL DEFAULT 5, c) WITHOUT ROWID"],
    "strict": ["CREATE TABLE t (id ANY PRIMARY KEY, a INTEGER, b TEXT, c BLOB NOT NULL DEFAULT x'00') STRICT"],
    "check": ["CREATE TABLE t (id PRIMARY KEY, a CHECK (a IS NULL OR a <> 3), b, c, CHECK (b IS NOT c OR b IS NULL))"],
    "trigger": [
        "CREATE TABLE t (id PRIMARY KEY, a, b, c)",
        "CREATE TRIGGER t1 BEFORE INSERT ON t WHEN new.a = 3 BEGIN SELECT RAISE(ABORT, 'three'); END",
        "CREATE TRIGGER t2 BEFORE UPDATE ON t WHEN new.a = 3 BEGIN SELECT RAISE(ABORT, 'three'); END",
        "CREATE TRIGGER t3 BEFORE INSERT ON t WHEN new.a = 4 BEGIN SELECT RAISE(ROLLBACK, 'four'); END",
        "CREATE TRIGGER t4 BEFORE UPDATE ON t WHEN new.a = 4 BEGIN SELECT RAISE(ROLLBACK, 'four'); END",
    ],
}


def _events(bench: Bench, chooser: random.Random, count: int) -> list[Event]:
    events = []
    for _ in range(count):
        site, clock = chooser.choice((2, 3)), chooser.randrange(30)
        key = {"id": chooser.choice((1, 2, "1", b"1"))}
        columns = None
        if chooser.random() < 0.75:
            names = chooser.sample(("a", "b", "c", "z"), chooser.randrange(4))
            columns = {name: chooser.choice((None, 0, 3, 4, 1.5, "x", b"y", True)) for name in names}
        events.append(bench.event(site, clock, key, columns))
    return events


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("seed", range(3))
def test_two_nodes_converge(schema: str, seed: int, tmp_path: Path) -> None:
    chooser = random.Random(seed)
    benches = [Bench(tmp_path, name=f"{number}.db") for number in range(3)]
    events = _events(benches[0], chooser, 60)
    found = []
    for bench in benches:
        for statement in SCHEMAS[schema]:
            bench.sql(statement)
        bench.engine.register_table(TableSpec("main", "t"))
        order = [*events, *chooser.choices(events, k=20)]
        chooser.shuffle(order)
        size = chooser.choice((1, 7, 80))
        for start in range(0, len(order), size):
            verdicts = bench.deliver(order[start : start + size])
            assert set(verdicts) <= {"applied", "duplicate"}
        table = bench.sql("SELECT quote(id), quote(a), quote(b), quote(c) FROM t ORDER BY 1")
        withheld = bench.sql("SELECT key FROM meshnode_rows WHERE reason IS NOT NULL ORDER BY key")
        found.append((bench.digest(), table, withheld))
    assert found[0] == found[1] == found[2]


def test_fuzzed_events_never_raise(tmp_path: Path) -> None:
    """Truncated, flipped and doubled bytes of real events end in a verdict each."""
    bench = Bench(tmp_path)
    bench.engine.register_table(TableSpec("main", "t", {"id": ""}, {"a": ""}))
    chooser = random.Random(7)
    data = []
    for event in _events(bench, chooser, 200):
        raw = bytearray(event.data)
        match chooser.randrange(4):
            case 0:
                raw[chooser.randrange(len(raw))] ^= 1 << chooser.randrange(8)
            case 1:
                del raw[chooser.randrange(len(raw)) :]
            case 2:
                raw += bytes(raw)
        data.append(bytes(raw))
    verdicts = bench.deliver(data)
    assert len(verdicts) == len(data)
    assert {"applied", "dropped:malformed", "dropped:bad-signature"} <= set(verdicts)


names = st.one_of(st.just("t"), st.just("main"), st.text(max_size=5), st.none(), st.binary(max_size=3), st.integers())
scalars = st.one_of(st.none(), st.booleans(), st.integers(-(2**65), 2**65), st.floats(), st.text(), st.binary(), names)
maps = st.dictionaries(st.one_of(st.sampled_from(["id", "a"]), scalars), scalars, max_size=3)
clocks = st.one_of(st.integers(0, 2**64), st.floats(), st.none(), st.just(1_800_000_000_000))
nonsense = st.fixed_dictionaries(
    {
        "table_schema": names,
        "table_name": names,
        "row_key": st.one_of(maps, scalars, st.just({"id": 1})),
        "operation": st.sampled_from(["upsert", "delete", "purge", None, 1]),
        "payload": st.one_of(maps, scalars, st.lists(scalars, max_size=2)),
        "hlc_physical_ms": clocks,
        "hlc_logical": clocks,
    },
    optional={"extra": scalars},
)


@pytest.fixture(scope="module")
def open_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    bench = Bench(tmp_path_factory.mktemp("nonsense"))
    bench.engine.register_table(TableSpec("main", "t", {"id": ""}, {"a": ""}))
    yield bench
    bench.engine.close()


@settings(deadline=None, max_examples=300)
@given(st.lists(nonsense, min_size=1, max_size=4), st.booleans())
def test_signed_nonsense_never_raises(open_bench: Bench, payloads: list[dict[str, Any]], canonical: bool) -> None:
    """A member with a proper key may sign anything; each of it ends in a verdict."""
    key = site_key(2)
    data = [
        cose.seal(
            "sovm/ssp-event-v1",
            key.site,
            cbor2.dumps(payload, canonical=canonical),
            external_aad=MESH_ID,
            sign=key.sign,
        )
        for payload in payloads
    ]
    verdicts = open_bench.deliver(data)
    assert len(verdicts) == len(data)
    assert "dropped:bad-signature" not in verdicts

"""What an embedder does wrong: each time one error of the tree, which says what happened and what to do."""

from __future__ import annotations

import asyncio
import math
import os
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from support.nodes import free_port

from meshnode import BlockingNode, Node
from meshnode.errors import ClosedError, ConfigError, RowError, StoreError, UsageError
from meshnode.node.opening import Settings
from meshnode.node.where import Where


@dataclass
class Note:
    id: str
    n: int = 0


def alone() -> Settings:
    """Settings that hear and say nothing beyond loopback."""
    return {"listen": "127.0.0.1", "port": free_port(), "mdns_enabled": False}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[BlockingNode]:
    with BlockingNode.open(tmp_path / "n", **alone()) as node:
        node.add_table("t", {"id": "TEXT"}, {"n": "INTEGER"})
        yield node


@pytest.mark.parametrize(
    ("key", "columns", "told"),
    [
        ({"id": "a"}, {"n": datetime(2026, 1, 1)}, "column 'n': a value of type datetime"),  # noqa: DTZ001
        ({"id": "a"}, {"n": math.nan}, "column 'n': NaN is no number that can be kept"),
        ({"id": "a"}, {"n": math.inf}, "column 'n': infinity"),
        ({"id": "a"}, {"n": object()}, "column 'n': a value of type object"),
        ({"id": "a"}, {"n": [1]}, "column 'n': an array is no column value: write it as text"),
        ({"id": "a"}, {"n": 2**63}, "column 'n': .* does not fit a signed 64-bit integer"),
        ({"id": "a"}, {"m": 1}, "table 't' has no column 'm'"),
        ({}, {"n": 1}, "nothing is no key of table 't': it has exactly the key columns id TEXT"),
    ],
)
def test_a_value_that_cannot_be_kept_is_told_with_its_column(
    node: BlockingNode, key: dict[str, Any], columns: dict[str, Any], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        node.put("t", key, columns)


@dataclass
class Measure:
    at: float
    good: bool = True


def test_a_field_that_cannot_be_a_key_is_told_when_the_table_is_made(node: BlockingNode) -> None:
    for field, kind in (("at", "float"), ("good", "bool")):
        with pytest.raises(RowError, match=f"column '{field}' of table 'm': a {kind} is no key: let it be a str"):
            node.table("m", Measure).create(key=field)
    assert [table.table for table in node.tables()] == ["t"]


def test_what_is_of_the_wrong_type_altogether(node: BlockingNode, tmp_path: Path) -> None:
    nothing: Any = None
    with pytest.raises(UsageError, match="None names no table"):
        node.put(nothing, {"id": "a"}, {})
    with pytest.raises(UsageError, match="None names no table"):
        node.table(nothing)
    with pytest.raises(UsageError, match=r"a condition is SQL with its parameters, as Where\(.*, not None"):
        Where(nothing)
    number: Any = "7"
    for changes in (lambda: node.changes(since=number), lambda: node.table("t").changes(since=number)):
        with pytest.raises(UsageError, match="`since` is the number of a change"):
            next(changes())
    five: Any = 5
    for given in ({"home": five}, {"home": tmp_path / "m", "database": five}, {"home": tmp_path / "m", "invite": five}):
        with pytest.raises(UsageError, match="not 5"):
            BlockingNode.open(**given, **alone())


CALLS: dict[str, Callable[[Node], Awaitable[object]]] = {
    "status": lambda node: node.status(),
    "config": lambda node: node.config(),
    "doctor": lambda node: node.doctor(),
    "invite": lambda node: node.invite(),
    "nearby": lambda node: node.nearby_open(),
    "online": lambda node: node.set_online(False),
    "query": lambda node: node.query("SELECT 1"),
    "until": lambda node: node.until("SELECT 1"),
    "seq": lambda node: node.seq(),
    "metrics": lambda node: node.metrics(),
    "check": lambda node: node.check(),
    "count": lambda node: node.table("t").count(),
    "put": lambda node: node.put("t", {"id": "a"}, {}),
}


async def test_a_node_that_is_not_entered_was_left_or_is_of_another_loop_says_so(tmp_path: Path) -> None:
    node = Node.open(tmp_path / "n", **alone())
    told: dict[str, dict[str, str]] = {"before": {}, "elsewhere": {}, "after": {}}

    async def ask_all(when: str) -> None:
        for name, call in CALLS.items():
            with pytest.raises(UsageError) as raised:
                await call(node)
            told[when][name] = str(raised.value)

    await ask_all("before")
    async with node:
        await node.add_table("t", {"id": "TEXT"}, {})
        other = threading.Thread(target=lambda: asyncio.run(ask_all("elsewhere")))
        other.start()
        await asyncio.to_thread(other.join)
        assert (await node.status()).online
    await ask_all("after")
    assert set(told["before"].values()) == {"enter the node first: `async with Node.open(…) as node:`"}
    assert {text[:42] for text in told["elsewhere"].values()} == {"this node belongs to another event loop: c"}
    del told["after"]["until"]  # that waits for something which does not come any more
    assert set(told["after"].values()) == {"this node was left: open its home again to go on"}
    assert {len(each) for each in told.values()} == {len(CALLS), len(CALLS) - 1}


def test_a_blocking_node_that_was_closed_gives_no_empty_answer(tmp_path: Path) -> None:
    with BlockingNode.open(tmp_path / "n", **alone()) as node:
        notes = node.table("notes", Note).create(key="id")
        notes.upsert(*[Note(f"{number:04}") for number in range(1000)])
        rows = notes.rows()
        next(rows)
        waiting = node.changes()
    for ask in (notes.rows, notes.changes, node.changes, lambda: node.live("SELECT 1"), node.__enter__):
        with pytest.raises(ClosedError, match="this node was closed"):
            ask()
    with pytest.raises(ClosedError, match="this node was closed"):
        list(rows)  # it had read some of them, and more were to come
    assert list(waiting) == []  # what follows something ends with the node


async def refused(error: type[Exception], told: str, home: Path, **given: Any) -> None:
    with pytest.raises(error, match=told):
        async with Node.open(home, **given, **alone()):
            pass


async def test_a_database_in_which_no_node_can_live_is_told_before_a_home_is_made_of_it(tmp_path: Path) -> None:
    text, noise, home = tmp_path / "text.db", tmp_path / "noise.db", tmp_path / "n"
    text.write_text("no database " * 1000)
    noise.write_bytes(os.urandom(8192))  # as an encrypted one looks
    for each in (text, noise):
        await refused(StoreError, "is no SQLite database, or an encrypted one, .*: name another", home, database=each)
    await refused(StoreError, "no folder .*absent.*: make it first", home, database=tmp_path / "absent" / "app.db")
    await refused(StoreError, "it is no file", home, database=tmp_path)
    assert not (home / "config.toml").exists()
    async with Node.open(home, database=tmp_path / "app.db", **alone()):
        await refused(StoreError, "belongs to a node: open the home of", tmp_path / "m", database=tmp_path / "app.db")


async def test_a_home_that_is_no_folder(tmp_path: Path) -> None:
    file = tmp_path / "app.db"
    file.touch()
    await refused(ConfigError, "app.db is no folder, and the home of a node is one", file)
    await refused(ConfigError, "is no folder, and the home of a node is one", file / "below")


async def test_a_database_of_a_newer_format(tmp_path: Path) -> None:
    async with Node.open(tmp_path / "n", **alone()):
        pass
    with closing(sqlite3.connect(tmp_path / "n" / "meshnode.db")) as connection:
        connection.execute("UPDATE meshnode_meta SET value = 999 WHERE name = 'format'")
        connection.commit()
    await refused(StoreError, "written by a newer meshnode .*: upgrade meshnode", tmp_path / "n")

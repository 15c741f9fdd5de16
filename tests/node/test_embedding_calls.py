"""What a program asks of its node in one call: a query, a wait, a count, rows that go, where to go on from."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.embedded import embedded
from support.nodes import free_port

from meshnode import BlockingNode, Node, TableClass
from meshnode.errors import BehindError, ClosedError, ConfigError, RowError, UsageError
from meshnode.node.embedding import Embedding
from meshnode.node.opening import Settings
from meshnode.node.table import Table
from meshnode.node.where import Where

PATIENCE_S = 60.0


@dataclass
class Note:
    id: str
    n: int = 0
    due: datetime | None = None


@dataclass
class Total:
    n: int


def alone() -> Settings:
    """Settings that hear and say nothing beyond loopback."""
    return {"listen": "127.0.0.1", "port": free_port(), "mdns_enabled": False}


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Embedding]:
    async with embedded(tmp_path / "n") as node:
        yield node


@pytest.fixture
async def notes(node: Embedding) -> Table[Note]:
    notes = await node.table("notes", Note).create(key="id")
    await notes.upsert(*[Note(f"n{number:03}", number) for number in range(600)])  # more than two pages
    return notes


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[BlockingNode]:
    with BlockingNode.open(tmp_path / "desk", name="desk", **alone()) as desk:
        yield desk


async def test_a_query_gives_the_rows_of_a_select_once(node: Embedding, notes: Table[Note]) -> None:
    sql = "SELECT count(*) AS n FROM notes WHERE n < ?"
    assert await node.query(sql, [100], row=Total) == [Total(100)]
    assert await node.query(sql, [100]) == [{"n": 100}]
    assert await node.query("SELECT * FROM notes WHERE n < 0") == []
    for wrong, told in (("DELETE FROM notes", "only a SELECT"), ("SELEC 1", "syntax error"), ("", "no SELECT")):
        with pytest.raises(UsageError, match=told):
            await node.query(wrong)
    with pytest.raises(UsageError, match="the text of a SELECT, not 5"):
        await node.query(5)  # type: ignore[call-overload]
    assert await notes.count() == 600


async def test_until_waits_for_a_row_or_for_what_the_caller_says(node: Embedding, notes: Table[Note]) -> None:
    waiting = asyncio.ensure_future(node.until("SELECT * FROM notes WHERE n = ?", [-1], row=Note))
    many = asyncio.ensure_future(node.until("SELECT count(*) AS n FROM notes", when=lambda rows: rows[0]["n"] == 602))
    await notes.upsert(Note("other"))
    await notes.upsert(Note("wanted", -1))
    async with asyncio.timeout(PATIENCE_S):
        assert (await waiting, await many) == ([Note("wanted", -1)], [{"n": 602}])
    assert len(await node.until("SELECT * FROM notes WHERE n < 3", timeout_s=PATIENCE_S)) == 5  # they are there already
    with pytest.raises(BehindError, match=r"after 0.1 s there is not yet what 'SELECT \* FROM notes WHERE n = 1000'"):
        await node.until("SELECT * FROM notes WHERE n = 1000", timeout_s=0.1)


async def test_until_ends_with_the_node(tmp_path: Path) -> None:
    async with Node.open(tmp_path / "n", **alone()) as node:
        waiting = asyncio.ensure_future(node.until("SELECT 1 AS n WHERE n = 2"))
        with pytest.raises(BehindError):
            await node.until("SELECT 1 AS n WHERE n = 2", timeout_s=0.1)
    with pytest.raises(ClosedError, match="before what was waited for"):
        await waiting
    with pytest.raises(ClosedError, match="open its home again"):
        await node.query("SELECT 1")


async def test_rows_are_counted(node: Embedding, notes: Table[Note]) -> None:
    await notes.patch("n005", due=datetime(2026, 12, 1, tzinfo=UTC))
    assert await notes.count({"n": 5}) == 1
    assert await notes.count(Where("n >= ? -- more", 500)) == 100
    assert await notes.count(Where("due < ?", datetime(2027, 1, 1, tzinfo=UTC))) == 1
    assert await node.table("notes").count({"due": None}) == 599
    with pytest.raises(RowError, match="no such column"):
        await node.table("notes").count({"due_date": None})
    with pytest.raises(UsageError, match="no such column: absent"):
        await notes.count(Where("absent = 1"))


async def test_many_rows_are_deleted_in_one_transaction(node: Embedding, notes: Table[Note]) -> None:
    before = await node.seq()
    receipt = await notes.delete_where(Where("n % 2 = ?", 0))
    assert (receipt.table, receipt.events, len(set(receipt.event_ids))) == ("notes", 300, 300)
    assert await notes.count() == 300
    async with asyncio.timeout(PATIENCE_S):
        changes = notes.changes(since=before)
        assert {(await anext(changes)).op for _ in range(300)} == {"delete"}
    assert (await notes.delete_where({"n": 0})).events == 0  # there is none any more
    assert (await notes.delete_where({"n": 1})).events == 1
    with pytest.raises(UsageError, match=r"all of them are \{\}"):
        await notes.delete_where(None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no such column"):
        await notes.delete_where(Where("absent = 1"))
    with pytest.raises(RowError, match="no such column"):
        await node.table("notes").delete_where({"absent": 1})
    assert await notes.count() == 299
    await notes.delete_where({})
    assert await notes.count() == 0
    assert (await node.check()).count == 0


async def test_what_plain_sql_put_there_is_no_row_to_delete(node: Embedding, notes: Table[Note]) -> None:
    with closing(sqlite3.connect(node.storage.file.path, isolation_level=None)) as connection:
        connection.execute("INSERT INTO notes (id, n) VALUES ('plain', 1), (x'00', 1)")
    assert (await notes.delete_where({"n": 1})).events == 1


async def test_what_an_application_wrote_into_an_adopted_table_goes_too(node: Embedding) -> None:
    with closing(sqlite3.connect(node.storage.file.path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE own (id TEXT PRIMARY KEY, n INTEGER)")
        await node.adopt("own")
        connection.execute("INSERT INTO own VALUES ('a', 1), ('b', 2)")  # and nothing of it is signed yet
        assert (await node.table("own").delete_where(Where("n < 5"))).events == 2
        assert connection.execute("SELECT * FROM own").fetchall() == []
    assert (await node.check()).count == 0


async def test_changes_go_on_from_a_receipt_without_a_gap(node: Embedding, notes: Table[Note]) -> None:
    seen, place = [note async for note in notes.rows()], await node.seq()
    receipt = await notes.patch("n001", n=7)
    assert (len(seen), receipt.seq) == (600, place + 1)
    assert (await notes.patch("n002", n=8)).seq == place + 2
    assert (await notes.upsert(Note("n002", 8))).seq == place + 2  # nothing had to be written
    assert (await notes.upsert()).seq == place + 2
    assert (await node.put("notes", {"id": "n003"}, {"n": 9})).seq == place + 3
    async with asyncio.timeout(PATIENCE_S):
        assert [(await anext(notes.changes(since=since))).key["id"] for since in (place, receipt.seq, place + 2)] == [
            "n001",
            "n002",
            "n003",
        ]


def test_a_blocking_node_has_the_same(desk: BlockingNode) -> None:
    notes = desk.table("notes", Note).create(key="id", table_class=TableClass.RAW)
    place = desk.seq()
    notes.upsert(Note("a", 1), Note("b", 2))
    assert desk.query("SELECT sum(n) AS n FROM notes", row=Total) == [Total(3)]
    assert desk.until("SELECT * FROM notes WHERE n = ?", [2], row=Note) == [Note("b", 2)]
    assert desk.until("SELECT * FROM notes", when=lambda rows: len(rows) == 2, timeout_s=PATIENCE_S)
    with pytest.raises(BehindError, match="after 0"):
        desk.until("SELECT 1 AS n WHERE n = 2", timeout_s=0)
    assert (notes.count(), notes.count({"n": 1})) == (2, 1)
    receipt = notes.delete_where({"n": 1})
    assert (receipt.events, receipt.seq, notes.count()) == (1, place + 3, 1)
    with notes.changes(since=place + 2) as changes:
        assert next(changes).key == {"id": "a"}
    with desk.transaction() as rows:
        pass
    assert (rows.receipt.events, rows.receipt.seq) == (0, receipt.seq)
    assert desk.set_policy("scope", ("main.*",)).scope == ["main.*"]
    assert desk.set_policy("replay_budget_days", 7).classes == {"notes": "raw"}
    with pytest.raises(ConfigError, match="a list of texts"):
        desk.set_policy("scope", "main.*")
    assert desk.evict("notes", before_ms=receipt.hlc[0] + 1).tables == ["notes"]


def test_a_blocking_node_adopts_tables_of_its_database(tmp_path: Path) -> None:
    database = tmp_path / "app.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE own (id TEXT PRIMARY KEY)")
        connection.commit()
    with BlockingNode.open(tmp_path / "n", database=database, **alone()) as node:
        assert node.adopt() == ["own"]

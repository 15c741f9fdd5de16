"""`node.live(…)`: a SELECT whose rows are told again when they are others, and only then."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.embedded import embedded

from meshnode.errors import RowError, UsageError
from meshnode.node import live
from meshnode.node.embedding import Embedding

PATIENCE_S = 30.0


@dataclass
class Total:
    n: int
    label: str | None = None


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Embedding]:
    async with embedded(tmp_path / "n") as node:
        await node.add_table("t", {"id": "TEXT"}, {"n": "INTEGER"})
        await node.add_table("s.u", {"id": "TEXT"}, {"n": "INTEGER"})
        yield node


async def following(results: AsyncIterator[list[Any]]) -> list[Any]:
    async with asyncio.timeout(PATIENCE_S):
        return await anext(results)


async def test_a_result_is_told_at_once_and_again_when_it_differs(node: Embedding) -> None:
    table = node.table("t")
    results = node.live("SELECT count(*) AS n FROM t WHERE n > ?", (1,))
    assert await following(results) == [{"n": 0}]
    coming = asyncio.ensure_future(following(results))
    await table.upsert({"id": "a", "n": 1})  # the rows are the same
    await table.upsert({"id": "b", "n": 2})
    assert await coming == [{"n": 1}]
    for number in range(20):  # told once, or a few times; the last is what is there
        await table.upsert({"id": f"c{number}", "n": 9})
    seen = [await following(results)]
    while seen[-1] != [{"n": 21}]:
        seen.append(await following(results))
    assert len(seen) < 20
    assert sorted(seen, key=lambda rows: rows[0]["n"]) == seen
    await results.aclose()  # type: ignore[attr-defined]


async def test_what_is_not_read_is_not_looked_at_again(node: Embedding, monkeypatch: pytest.MonkeyPatch) -> None:
    query = live.LiveQuery(node.storage.file, "SELECT id FROM t WHERE n = :n", {"n": 1}, dict)
    runs = []
    run = query._run
    monkeypatch.setattr(query, "_run", lambda tx: runs.append(1) or run(tx))
    assert (query.look(), query.reads_others) == ([], False)
    await node.put("s.u", {"id": "x"}, {"n": 1})
    assert (query.look(), len(runs)) == (None, 1)
    await node.put("t", {"id": "x"}, {"n": 2})
    assert (query.look(), len(runs)) == (None, 2)  # looked at, and the same
    await node.put("t", {"id": "x"}, {"n": 1})
    assert (query.look(), len(runs)) == ([{"id": "x"}], 3)
    query.close()


async def test_tables_of_the_program_are_looked_at_too(node: Embedding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LOOK_S", 0.01)
    with closing(sqlite3.connect(node.storage.file.path, isolation_level=None)) as own:
        own.execute("CREATE TABLE own (label TEXT)")
        results = node.live("SELECT count(*) AS n, max(label) AS label FROM own", row=Total)
        assert await following(results) == [Total(0)]
        coming = asyncio.ensure_future(following(results))
        own.execute("INSERT INTO own VALUES ('x')")  # no bell rings
        assert await coming == [Total(1, "x")]
        await results.aclose()  # type: ignore[attr-defined]


async def test_only_a_select_can_be_live(node: Embedding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LIVE_ROWS", 3)
    for text, why in (
        ("DELETE FROM t", "only a SELECT can be run"),
        ("PRAGMA user_version", "only a SELECT can be run"),
        ("ATTACH 'x' AS y", "only a SELECT can be run"),
        ("SELECT * FROM pragma_table_info('t')", "only a SELECT can be run"),
        ("SELECT 1; SELECT 2", "one statement"),
        ("SELECT zzz FROM t", "no such column: zzz"),
        ("SELECT n, n FROM t", "several columns 'n'"),
        ("SELECT ?", "Incorrect number of bindings"),
        ("", "is no SELECT"),
        ("WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n FROM c", "more than 3 rows"),
    ):
        with pytest.raises(UsageError, match=why):
            await following(node.live(text))
    with pytest.raises(UsageError, match="a parameter of 'SELECT \\?': nan"):
        await following(node.live("SELECT ?", [float("nan")]))
    with pytest.raises(RowError, match=r"column 'n' of table .SELECT 'x' AS n.: 'x' is no int"):
        await following(node.live("SELECT 'x' AS n", row=Total))
    assert await following(node.live('SELECT 1 AS "a b"')) == [{"a b": 1}]


async def test_who_closes_it_does_not_wait_for_a_query_that_takes_for_ever(node: Embedding) -> None:
    endless = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT max(n) AS n FROM c"
    task = asyncio.ensure_future(following(node.live(endless)))
    done, _ = await asyncio.wait({task}, timeout=0.1)
    assert not done
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

"""Verbs that neither walk a log or table nor wait do as much on a long log as on a short one, told without a clock.

Counted are the instructions of SQLite's machine, in which shows what a query reads, and its plans are looked at.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest
from support.nodes import TABLE, add_notes, note
from support.records import site_key

from meshnode.model.metering import Counts
from meshnode.node.founding import found
from meshnode.node.home import Home
from meshnode.node.local import LocalNode, open_local
from meshnode.store import logcounts, queries

STEP = 100  # instructions between two counts
SHORT, LONG = 20_000, 60_000  # events: both beyond every bound on what is looked at
ROWS_COUNTED = 2_000

VERBS: dict[str, Callable[[LocalNode], Awaitable[object]]] = {
    "status": lambda node: node.status(),
    "peers": lambda node: node.peers(),
    "members": lambda node: node.members(),
    "tables": lambda node: node.tables(),
    "sync-state": lambda node: node.sync_state(),
    "frontier": lambda node: node.frontier(),
    "policy": lambda node: node.policy(),
    "metrics": lambda node: node.metrics(),
}


async def of_length(folder: Path, events: int) -> Home:
    """A home with that many events, of which two members that never linked have none, and as many rows.

    They are copies of one event and one row: nobody who reads them looks at more than their clocks.
    """
    home = Home(folder)
    home.prepare()
    await found(home, name="desk")
    home = home.reloaded()
    async with open_local(home, writing=True) as node:
        for number in (2, 3):
            await node.vouch(site_key(number).public_key.hex(), name=f"n{number}")
        await add_notes(node)
        await node.import_rows(TABLE, [note(1)])
    with closing(sqlite3.connect(home.database_path)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {events})"
        connection.execute(
            f"INSERT INTO meshnode_log {numbers} SELECT position + i, site_no, physical + i, logical, id_prefix,"
            " table_no, state, event FROM n, meshnode_log WHERE position = 1"
        )
        connection.execute(f"INSERT INTO {TABLE} {numbers} SELECT 'more' || i, 'title', 0 FROM n")
        connection.execute("UPDATE meshnode_meta SET value = value + ? WHERE name = 'next_position'", (events,))
        connection.commit()
    return home


async def work_of(home: Home, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, int], set[str]]:
    """What each verb makes SQLite do, in instructions, and the statements."""
    counts, statements = Counts(), set[str]()
    verb = ""

    def step() -> None:
        counts.add(verb)

    real = sqlite3.connect

    def counting(*arguments: object, **keywords: object) -> sqlite3.Connection:
        connection = real(*arguments, **keywords)  # type: ignore[call-overload]
        connection.set_progress_handler(step, STEP)
        connection.set_trace_callback(statements.add)
        return connection  # type: ignore[no-any-return]

    monkeypatch.setattr(sqlite3, "connect", counting)
    async with open_local(home, writing=False) as node:
        for verb, ask in VERBS.items():  # noqa: B007  # `step` reads it
            await ask(node)
    monkeypatch.setattr(sqlite3, "connect", real)
    return {labels[0]: number * STEP for labels, number in counts.read().items()}, statements


async def test_no_verb_does_more_for_a_longer_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "ROWS_COUNTED", ROWS_COUNTED)
    homes = [await of_length(tmp_path / str(each), each) for each in (SHORT, LONG)]
    (short, _), (long, statements) = [await work_of(home, monkeypatch) for home in homes]
    for verb in VERBS:
        allowed = short.get(verb, 0) * 1.2 + 10 * STEP + 20 * (LONG >> logcounts.CHUNK_BITS)
        assert long.get(verb, 0) <= allowed, (verb, short, long)
    assert walks(homes[0], statements) == []


def walks(home: Home, statements: set[str]) -> list[str]:
    """The statements that read all of the log or of a table without a bound: a plain count is one instruction."""
    with closing(sqlite3.connect(home.database_path)) as connection:
        return [
            statement
            for statement in statements
            if statement.startswith("SELECT") and "LIMIT" not in statement
            for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {statement}")
            if re.match(rf"SCAN (meshnode_log|meshnode_rows|meshnode_changes|{TABLE})\b", detail)
        ]


async def test_rows_are_counted_up_to_a_bound_and_no_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = await of_length(tmp_path / "n", 30)
    async with open_local(home, writing=False) as node:
        (whole,) = await node.tables()
        assert (whole.rows, whole.rows_more, (await node.status()).rows_more) == (31, False, False)
        monkeypatch.setattr(queries, "ROWS_COUNTED", 20)
        (cut,) = await node.tables()
        assert (cut.rows, cut.rows_more) == (20, True)
        status = await node.status()
        assert (status.rows, status.rows_more, status.events) == (20, True, 31)

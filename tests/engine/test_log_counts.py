"""What is counted of the log is what a count would find, whatever put events in or took them out."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from support.engines import PLAIN, Bench

from meshnode.errors import StoreError
from meshnode.model.hlc import Hlc
from meshnode.store import backlog, log, logcounts, schema
from meshnode.store.database import Database, Tx
from meshnode.store.delivery import Outbound, Stream
from meshnode.store.reader import Reader

RECOUNT = "SELECT position >> ?, site_no, table_no, count(*), sum(state = 2) FROM meshnode_log GROUP BY 1, 2, 3"
KEPT = "SELECT * FROM meshnode_log_counts WHERE events > 0 ORDER BY 1, 2, 3"


def assert_counted(bench: Bench) -> None:
    recounted = bench.sql(f"{RECOUNT} ORDER BY 1, 2, 3", logcounts.CHUNK_BITS)
    assert bench.sql(KEPT) == recounted
    assert bench.read(logcounts.total) == sum(row[3] for row in recounted)


def test_events_that_come_and_go_are_counted(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    bench.deliver([bench.event(2, number, {"id": number % 3}, {"a": number}) for number in range(1, 20)])
    bench.deliver([bench.event(3, number, {"id": number}, {}, table="later") for number in range(1, 5)])
    bench.deliver([bench.event(3, 30, {"id": 1, "more": 2}, {"a": 1})])  # names no row: counts as unresolved or dropped
    assert_counted(bench)
    with bench.engine.context.transaction() as tx:
        log.remove(tx, [2, 3])
        log.set_states(tx, log.UNRESOLVED, [4, 5])
        log.set_states(tx, log.APPLIED, [5])
    assert_counted(bench)
    assert bench.sql("SELECT sum(unresolved) FROM meshnode_log_counts") == [(1,)]


def test_what_is_undone_is_not_counted(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    bench.deliver([bench.event(2, 1, {"id": 1}, {"a": 1})])

    def fault(point: str) -> None:
        if point == "COMMIT":
            raise StoreError("stopped")

    bench.fault = fault
    with pytest.raises(StoreError):
        bench.deliver([bench.event(2, 2, {"id": 1}, {"a": 2})])
    bench.fault = lambda _point: None
    bench.deliver([bench.event(2, 3, {"id": 1}, {"a": 3})])
    assert_counted(bench)
    assert bench.engine.context.take_judged().total() == 2


@pytest.mark.parametrize("seed", range(4))
def test_how_far_behind_a_peer_is_is_what_a_count_of_the_log_says(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logcounts, "CHUNK_BITS", 3)
    rng = random.Random(seed)
    bench = Bench(tmp_path)
    with closing(sqlite3.connect(bench.path)) as connection:  # counted in smaller chunks
        for name, text in connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
            connection.execute(text.replace(">> 13", ">> 3"))
    for name in ("t", "u"):
        bench.engine.register_table(replace(PLAIN, name=name))
    for number in range(1, 90):
        site, table = rng.choice((1, 2, 3)), rng.choice(("t", "u", "later"))
        bench.deliver([bench.event(site, number, {"id": number % 5}, {"a": number}, table=table)])
    with bench.engine.context.transaction() as tx:
        log.set_states(tx, log.UNRESOLVED, rng.sample(range(1, 89), 9))
        log.remove(tx, rng.sample(range(1, 89), 9))
    own = bench.read(backlog.own_number)
    peer = bench.sql("SELECT no, site FROM meshnode_sites WHERE no <> ?", own)[0]
    for _ in range(20):
        at = Outbound(b"", cursor=rng.randrange(90), offer_cursor=rng.choice((None, rng.randrange(90))))
        found = bench.read(_open(Stream(peer[1], peer[0], "p"), at))
        others = at.cursor if at.offer_cursor is None else at.offer_cursor
        recounted = bench.sql(
            "SELECT count(*) FROM meshnode_log WHERE position > iif(site_no = ?, ?, ?) AND site_no <> ? AND state <> 2"
            " AND table_no <> (SELECT no FROM meshnode_tables WHERE name = 'u')",
            *(own, at.cursor, others, peer[0]),
        )
        assert found == (recounted[0][0], 0)


def _open(stream: Stream, at: Outbound) -> Callable[[Tx], tuple[int, int]]:
    return lambda tx: backlog.events_open(tx, stream, at, lambda _schema, table: table != "u", 0)


def test_a_database_of_the_format_before_is_counted_once(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    database = Database(path, sqlite=sqlite3)
    with database.transaction() as tx:
        for script in schema._MIGRATIONS[:3]:
            for statement in filter(str.strip, script.split(";\n")):
                tx.execute(statement)
        tx.execute("INSERT INTO meshnode_meta (name, value) VALUES ('format', 3)")
        rows = [(at, 1 + at % 2, 0, 0, at, 7, 2 if at % 5 == 0 else 0, b"") for at in range(1, 20_001)]
        tx.executemany("INSERT INTO meshnode_log VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    with database.transaction() as tx:
        schema.migrate(tx)
    database.close()
    with closing(Reader(path, sqlite=sqlite3)) as reader, reader.snapshot() as tx:
        assert logcounts.total(tx) == 20_000
        parts = logcounts.parts_after(tx, 9_000, 1, of_author=False)
        expected = sum(1 for at in range(9_001, 20_001) if at % 2 and at % 5)
        assert parts == [logcounts.Part(7, 2, expected)]


def test_a_horizon_that_takes_events_out_is_counted(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    bench.deliver([bench.event(2, number, {"id": 1}, {"a": number}) for number in range(1, 9)])
    bench.engine.set_horizon("main", "t", Hlc(bench.time.now_ms + 10, 0))
    bench.deliver([bench.event(2, 5, {"id": 2}, {"a": 1})])
    assert_counted(bench)

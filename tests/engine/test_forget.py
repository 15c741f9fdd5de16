"""Forgetting a row: nothing of its text is left in any file of the database, and nothing of it comes back."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.engines import PLAIN, Bench
from support.mesh_context import TestTime
from support.records import site_key

from meshnode.engine import outbox
from meshnode.engine.forget import forget, unforget
from meshnode.engine.offer import Filter
from meshnode.engine.registry import TableSpec
from meshnode.engine.write import LocalChange
from meshnode.errors import BusyError, NotFoundError, StoreError, UsageError
from meshnode.model.delivery import PATH, Adopt
from meshnode.store import held, inbound, removed
from meshnode.store.delivery import Stream

NOW = TestTime().now_ms
KEY = {"id": "PRIVATE-KEY-of-the-row"}
WORDS = ("PRIVATE", "SECRET")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    bench.time.now_ms = NOW + 100_000
    return bench


def found(bench: Bench) -> list[str]:
    """The files of the database that hold any of the words."""
    files = [each for each in bench.path.parent.iterdir() if each.name.startswith(bench.path.name)]
    assert bench.path in files
    return sorted(each.name for each in files if any(word.encode() in each.read_bytes() for word in WORDS))


def row_with_a_past(bench: Bench) -> None:
    """Between many others: a row that was written, changed, deleted, written again, with long and short values."""
    for number in range(0, 300, 3):
        bench.deliver([bench.event(2, number, {"id": f"r{number}"}, {"a": "filler" * (number % 40)})])
        if number == 99:
            bench.deliver([bench.event(2, number + 1, KEY, {"a": "SECRET one", "b": "SECRET" * 2000})])
        if number == 198:
            bench.deliver(
                [bench.event(2, number + 1, KEY, {"a": "SECRET two"}), bench.event(3, 5, KEY, {"c": "SECRET"})]
            )
    bench.deliver([bench.event(2, 400, KEY, None)])
    bench.deliver(
        [bench.event(2, 410, KEY, {"a": "SECRET three"}), bench.event(2, 411, KEY, {"zzz": "SECRET unknown"})]
    )
    bench.engine.write([LocalChange("main", "t", KEY, {"b": "SECRET four"})])


def test_nothing_of_the_text_is_left_in_any_file(bench: Bench) -> None:
    row_with_a_past(bench)
    others = {key: row for key, row in bench.rows().items() if row.key != KEY}
    assert found(bench)
    assert forget(bench.engine.context, "main", "t", KEY) == 7
    assert found(bench) == []
    assert bench.get(KEY) is None
    assert bench.rows() == others
    assert bench.sql("PRAGMA integrity_check") == [("ok",)]
    bench.reopen()
    assert found(bench) == []


def test_the_receipts_stay_and_the_positions_are_recorded(bench: Bench) -> None:
    event = bench.event(2, 10, KEY, {"a": "SECRET"})
    bench.deliver([event, bench.event(2, 11, {"id": "other"}, {"a": 1})])
    forget(bench.engine.context, "main", "t", KEY)
    assert bench.sql("SELECT event_id FROM meshnode_receipts") == [(event.event_id,)]
    assert bench.read(lambda tx: [removed.is_recorded(tx, position) for position in (1, 2)]) == [True, False]


def test_later_events_are_acknowledged_and_not_kept(bench: Bench) -> None:
    bench.deliver([bench.event(2, 10, KEY, {"a": "SECRET"})])
    forget(bench.engine.context, "main", "t", KEY)
    again = [bench.event(2, 10, KEY, {"a": "SECRET"}), bench.event(2, 20, KEY, {"a": "SECRET later"})]
    assert bench.deliver(again) == ["dropped:forgotten"] * 2
    bench.reopen()
    assert bench.deliver(again) == ["dropped:forgotten"] * 2
    assert found(bench) == []
    assert bench.get(KEY) is None
    with pytest.raises(UsageError, match="forgotten"):
        bench.engine.write([LocalChange("main", "t", KEY, {"a": 1})])


def test_undo_takes_the_row_again_and_asks_for_it(bench: Bench) -> None:
    event = bench.event(2, 10, KEY, {"a": "back"})
    bench.deliver([event])
    context = bench.engine.context
    with context.transaction() as tx:
        stream = Stream(site_key(2).site, context.sites.number(tx, site_key(2).site), PATH)
        inbound.adopt(tx, stream, Adopt(bytes(8), 1, 1))
    with pytest.raises(NotFoundError):
        unforget(context, "main", "t", KEY)
    forget(context, "main", "t", KEY)
    assert unforget(context, "main", "t", KEY) == 1
    assert len(bench.read(lambda tx: inbound.requests(tx, stream))) == 1
    assert bench.deliver([event]) == ["applied"]
    assert bench.get(KEY) == {"a": "back"}


def test_a_frame_in_flight_is_discarded(bench: Bench) -> None:
    """The stored frame holds the bytes; the stream begins another epoch and goes on without them."""
    bench.deliver([bench.event(2, 10, KEY, {"a": "SECRET"}), bench.event(2, 11, {"id": "other"}, {"a": 1})])
    context, peer = bench.engine.context, site_key(3).site
    opened = outbox.open_epoch(context, peer, PATH, expected=None, at=outbox.GENESIS)
    assert opened is not None
    first = stage(bench, peer, opened.epoch)
    assert len(first) == 1
    assert b"SECRET" in first[0]
    forget(context, "main", "t", KEY)
    assert found(bench) == []
    ((epoch,),) = bench.sql("SELECT epoch FROM meshnode_outbound")
    assert epoch != opened.epoch
    (frame,) = stage(bench, peer, epoch)
    assert b"other" in frame
    assert b"PRIVATE" not in frame


def stage(bench: Bench, peer: bytes, epoch: bytes) -> list[bytes]:
    advanced = outbox.advance(
        bench.engine.context,
        peer,
        PATH,
        epoch=epoch,
        settled=[],
        known_no=0,
        room=8,
        retry=False,
        watermarks=False,
        offered=Filter(),
    )
    assert advanced is not None
    return [each.cbor for each in advanced.frames]


def test_notices_and_changes_say_nothing_of_it_any_more(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.time.now_ms = NOW + 100_000
    bench.sql("CREATE TABLE t (id TEXT PRIMARY KEY NOT NULL, a, b NOT NULL)")
    bench.engine.register_table(TableSpec("main", "t"))
    bench.deliver([bench.event(2, 10, KEY, {"a": "SECRET"})])
    assert "PRIVATE" in bench.notices()["withheld"].sample
    forget(bench.engine.context, "main", "t", KEY)
    assert found(bench) == []
    bench.deliver([bench.event(2, 20, {"id": "x"}, {"b": 1})])
    forget(bench.engine.context, "main", "t", {"id": "x"})
    assert [(each.change.op, each.key) for each in bench.changes()] == [("forget", {})]


def test_held_events_of_the_row_go_too(bench: Bench) -> None:
    bench.deliver([bench.event(2, 10, KEY, {"a": "SECRET"})])
    bench.sql("ALTER TABLE t RENAME TO away")
    assert bench.deliver([bench.event(2, 20, KEY, {"a": "SECRET held"})]) == ["held"]
    bench.sql("ALTER TABLE away RENAME TO t")
    forget(bench.engine.context, "main", "t", KEY)
    assert found(bench) == []
    assert bench.read(lambda tx: held.held_bytes(tx, 2)) == 0


def test_a_key_of_another_shape_is_refused(bench: Bench) -> None:
    with pytest.raises(UsageError, match="exactly the columns id"):
        forget(bench.engine.context, "main", "t", {"id": "x", "more": 1})


def test_a_row_that_was_never_here_can_be_forgotten(bench: Bench) -> None:
    assert forget(bench.engine.context, "main", "t", KEY) == 0
    assert bench.deliver([bench.event(2, 10, KEY, {"a": "SECRET"})]) == ["dropped:forgotten"]
    assert found(bench) == []


def test_a_trigger_that_keeps_the_row_is_an_error_and_nothing_is_forgotten(bench: Bench) -> None:
    bench.deliver([bench.event(2, 10, KEY, {"a": 1})])
    bench.sql("CREATE TRIGGER keep BEFORE DELETE ON t BEGIN SELECT RAISE(ABORT, 'never'); END")
    with pytest.raises(UsageError, match="never"):
        forget(bench.engine.context, "main", "t", KEY)
    assert bench.get(KEY) == {"a": 1}
    assert bench.deliver([bench.event(2, 11, KEY, {"a": 2})]) == ["applied"]


def test_what_could_not_be_erased_is_said_and_erased_the_next_time(bench: Bench) -> None:
    bench.deliver([bench.event(2, 10, KEY, {"a": "SECRET"})])

    def fail(point: str) -> None:
        if point == "VACUUM":
            raise sqlite3.OperationalError("database or disk is full")

    bench.fault = fail
    with pytest.raises(StoreError, match="try again"):
        forget(bench.engine.context, "main", "t", KEY)
    bench.fault = lambda _point: None
    assert bench.get(KEY) is None
    assert found(bench)
    assert forget(bench.engine.context, "main", "t", KEY) == 0
    assert found(bench) == []


def test_a_reader_in_the_way_is_said(bench: Bench) -> None:
    bench.deliver([bench.event(2, 10, KEY, {"a": "SECRET"})])
    bench.engine.context.db._connection.execute("PRAGMA busy_timeout = 50")
    with closing(sqlite3.connect(bench.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM meshnode_log").fetchone()
        with pytest.raises(BusyError, match="another program reads"):
            forget(bench.engine.context, "main", "t", KEY)
    assert forget(bench.engine.context, "main", "t", KEY) == 0
    assert found(bench) == []


def test_a_row_left_in_sql_by_the_application_is_not_adopted_again(bench: Bench) -> None:
    forget(bench.engine.context, "main", "t", KEY)
    bench.sql("INSERT INTO t (id, a) VALUES (?, 1)", KEY["id"])
    bench.sql("INSERT INTO t (id, a) VALUES ('other', 1)")
    bench.engine.register_table(PLAIN)
    assert [row.key for row in bench.rows().values()] == [{"id": "other"}]
